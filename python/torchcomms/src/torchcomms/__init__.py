"""chorus.torchcomms under the name torchcomms, for programs that were written for that.

Modules and names here are those of ``chorus.torchcomms``. Nothing is loaded before it's used: PyTorch
looks for a package of this name in the middle of its own import, and then finds an empty one.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chorus.torchcomms import *

_ORIGIN = "chorus.torchcomms"
__version__ = "0.1.0"


class _Loader(importlib.abc.Loader):
    """Gives a module of chorus.torchcomms, as it is."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        module = importlib.import_module(_ORIGIN + spec.name.removeprefix(__name__))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: Any) -> None:
        # The import system has given it our specification.
        module.__spec__ = module.__spec__.loader_state


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(__name__ + ".") or _pytorch_is_loading():
            return None
        try:
            there = importlib.util.find_spec(_ORIGIN + fullname.removeprefix(__name__))
        except ModuleNotFoundError:
            there = None
        return importlib.machinery.ModuleSpec(fullname, _Loader()) if there is not None else None


def _pytorch_is_loading() -> bool:
    """Whether PyTorch's import is under way. Chorus needs it whole."""
    torch = sys.modules.get("torch")
    return bool(torch is not None and getattr(getattr(torch, "__spec__", None), "_initializing", False))


def __getattr__(name: str) -> Any:
    if name.startswith("__") or _pytorch_is_loading():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(_ORIGIN), name)
    except AttributeError:
        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *importlib.import_module(_ORIGIN).__all__})


# The names of a star import; they are looked up as they are used.
__all__ = [
    "BatchP2POptions",
    "BatchSendRecv",
    "CommOptions",
    "P2POp",
    "ReduceOp",
    "Timeout",
    "TorchComm",
    "TorchCommBackend",
    "TorchCommWindow",
    "TorchWork",
    "new_comm",
    "register_backend",
]

sys.meta_path.insert(0, _Finder())
