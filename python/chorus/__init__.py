"""Chorus for PyTorch: tensors between processes.

As a backend of ``torch.distributed``::

    torch.distributed.init_process_group("chorus")

PyTorch finds it by itself if the package is installed. Tensors that collectives
use often are faster in memory that the ranks of a host can all map::

    x = chorus.zeros(1024)                 # like torch.zeros
    with chorus.shared_memory(): ...       # what is created here
    chorus.share(model)                    # what exists

Tensors of ``torch.device("accinte")``, which the distribution torch-accinte brings, are served like those of the CPU.

Failures are :class:`chorus.Error` and name the ranks concerned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chorus._lib import version as version
    from chorus._patches import patches as patches
    from chorus.backend import failure as failure
    from chorus.backend import monitored_barrier as monitored_barrier
    from chorus.backend import register as register
    from chorus.backend import split_group as split_group
    from chorus.ddp import ddp_hook as ddp_hook
    from chorus.ddp import in_order as in_order
    from chorus.errors import AbortedError as AbortedError
    from chorus.errors import CanceledError as CanceledError
    from chorus.errors import Error as Error
    from chorus.errors import FinalizedError as FinalizedError
    from chorus.errors import ForkedError as ForkedError
    from chorus.errors import InternalError as InternalError
    from chorus.errors import InvalidArgumentError as InvalidArgumentError
    from chorus.errors import MismatchError as MismatchError
    from chorus.errors import OutOfMemoryError as OutOfMemoryError
    from chorus.errors import PanickedError as PanickedError
    from chorus.errors import PeerLostError as PeerLostError
    from chorus.errors import TimeoutError as TimeoutError
    from chorus.errors import UnsupportedError as UnsupportedError
    from chorus.errors import WorkFailedError as WorkFailedError
    from chorus.memory import empty as empty
    from chorus.memory import is_shared as is_shared
    from chorus.memory import share as share
    from chorus.memory import shared_memory as shared_memory
    from chorus.memory import use_shared_allocator as use_shared_allocator
    from chorus.memory import zeros as zeros
    from chorus.process_group import ProcessGroup as ProcessGroup
    from chorus.process_group import Work as Work

__version__ = "0.1.0"

# The module of each name. PyTorch imports this package at the end of its own import
# (see _autoload), so nothing is loaded here before it is used.
_HOME = {
    "_lib": ("version",),
    "_patches": ("patches",),
    "backend": ("failure", "monitored_barrier", "register", "split_group"),
    "ddp": ("ddp_hook", "in_order"),
    "errors": (
        "AbortedError",
        "CanceledError",
        "Error",
        "FinalizedError",
        "ForkedError",
        "InternalError",
        "InvalidArgumentError",
        "MismatchError",
        "OutOfMemoryError",
        "PanickedError",
        "PeerLostError",
        "TimeoutError",
        "UnsupportedError",
        "WorkFailedError",
    ),
    "memory": ("empty", "is_shared", "share", "shared_memory", "use_shared_allocator", "zeros"),
    "process_group": ("ProcessGroup", "Work"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    import importlib

    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'chorus' has no attribute {name!r}")
    importlib.import_module("torch")  # whose import ends with _autoload: not in the middle of a module's
    value = getattr(importlib.import_module(f"chorus.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


def _autoload() -> None:
    """The entry point "torch.backends", which PyTorch calls at the end of its import."""
    from chorus.backend import register

    register()
