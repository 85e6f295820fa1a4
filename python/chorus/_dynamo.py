"""Keeps torch.compile from compiling this package, and lets compiled code use its groups.

While compiled code runs, PyTorch compiles every Python function that is called, also those that
C++ calls, such as a process group's methods. Dynamo has a list of what it leaves alone; but it is
big, and most programs never load it, so this package adds itself when it's loaded.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

_RULES = "torch._dynamo.trace_rules"


class _Loader(importlib.abc.Loader):
    """Loads a module as another loader does, then adds this package to its list."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self.loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        _prepare(module)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _RULES:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def _prepare(rules: ModuleType) -> None:
    rules.add(__package__)
    groups = getattr(sys.modules.get("torch._dynamo.variables.distributed"), "ProcessGroupVariable", None)
    theirs = getattr(groups, "is_process_group", None)
    if groups is None or theirs is None:
        return  # newer versions know groups by other means
    # PyTorch 2.6 takes only objects of its own class for groups, and refuses to compile what uses another's.

    def is_process_group(value: object) -> bool:
        return type(value).__module__ == "chorus.process_group" or bool(theirs(value))

    groups.is_process_group = staticmethod(is_process_group)


def leave_alone() -> None:
    """Call once."""
    if _RULES in sys.modules:
        _prepare(sys.modules[_RULES])
    else:
        sys.meta_path.insert(0, _Finder())
