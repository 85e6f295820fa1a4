"""The modules of the package import each other in one direction."""

import ast
import graphlib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def _modules():
    for path in (ROOT / "chorus").rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def _imports(tree):
    """The names that a module imports, in its functions and for type checkers, too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield from _imports(node)


def test_no_circle():
    modules = dict(_modules())
    del modules["chorus"]  # its names are those of modules, which it loads when they are used
    graph = {}
    for name, path in modules.items():
        graph[name] = set()
        for other in _imports(ast.parse(path.read_text())):
            while other and other not in modules:
                other = other.rpartition(".")[0]
            if other and other != name:
                graph[name].add(other)
    assert graph["chorus._comm"] and graph["chorus.backend"]
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, with the circle
