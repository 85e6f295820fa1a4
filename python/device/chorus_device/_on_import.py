"""Changes to modules of PyTorch that take long to import, made once the program imports them."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any


def when_imported(module: str, tell: Callable[[types.ModuleType], None]) -> None:
    """Call a function with a module: now if it's imported already, else at the end of its import."""
    if module in sys.modules:
        tell(sys.modules[module])
    else:
        sys.meta_path.insert(0, _Finder(module, tell))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module by the other finders, lets a :class:`_Loader` load it, and removes itself."""

    def __init__(self, module: str, tell: Callable[[types.ModuleType], None]) -> None:
        self.module, self.tell = module, tell

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.tell)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any, tell: Callable[[types.ModuleType], None]) -> None:
        self.loader, self.tell = loader, tell

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        made: types.ModuleType | None = self.loader.create_module(spec)
        return made

    def exec_module(self, module: types.ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = self.loader  # as after an ordinary import
        module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.tell(module)
