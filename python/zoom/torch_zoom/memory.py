"""``torch.zoom.memory``: what every device has, and older names of ``torch.cuda.memory``."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from chorus_device._device import index
from chorus_device.memory import *
from chorus_device.memory import __all__ as _shared
from chorus_device.memory import _dump_snapshot as _dump_snapshot
from chorus_device.memory import _record_memory_history as _record_memory_history
from chorus_device.memory import _snapshot as _snapshot

__all__ = [
    *_shared,
    "ZoomPluggableAllocator",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "change_current_allocator",
    "get_allocator_backend",
    "max_memory_cached",
    "memory_cached",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
]

_raw: dict[int, torch.Tensor] = {}  # by the addresses that caching_allocator_alloc has returned


def caching_allocator_alloc(size: int, device: Any = None, stream: torch.Stream | None = None) -> int:
    """Allocate bytes for another library, for the use on a stream, by default the current one. It returns the address.
    The memory is the library's until :func:`caching_allocator_delete`."""
    if stream is not None and not isinstance(stream, torch.Stream):
        raise TypeError(f"stream is {type(stream).__name__}, and must be a torch.zoom.Stream")
    if size <= 0:
        raise ValueError(f"{size} bytes can't be allocated")
    where = torch.device("zoom", index(device))
    with torch.accelerator.device_index(where.index):
        if stream is None:
            memory = torch.empty(size, dtype=torch.uint8, device=where)
        else:
            with stream:
                memory = torch.empty(size, dtype=torch.uint8, device=where)
    _raw[memory.data_ptr()] = memory
    return memory.data_ptr()


def caching_allocator_delete(mem_ptr: int) -> None:
    """Free what :func:`caching_allocator_alloc` has allocated."""
    if _raw.pop(mem_ptr, None) is None:
        raise ValueError(f"{mem_ptr:#x} is no memory of caching_allocator_alloc")


def get_allocator_backend() -> str:
    """The allocator's name: there is one, the caching allocator."""
    return "native"


class ZoomPluggableAllocator:
    """The original's class for an allocator in a library of the user's. There is no such thing here."""

    def __init__(self, path_to_so_file: str, alloc_fn_name: str, free_fn_name: str) -> None:
        raise NotImplementedError("torch.zoom has one allocator, whose memory is the driver's: it can't be replaced")


def change_current_allocator(allocator: Any) -> None:
    """Refuse: see :class:`ZoomPluggableAllocator`."""
    raise NotImplementedError("torch.zoom has one allocator, whose memory is the driver's: it can't be replaced")


def memory_cached(device: Any = None) -> int:
    """The older name of :func:`memory_reserved`."""
    return int(_older("memory_cached", "memory_reserved", device))


def max_memory_cached(device: Any = None) -> int:
    """The older name of :func:`max_memory_reserved`."""
    return int(_older("max_memory_cached", "max_memory_reserved", device))


def reset_max_memory_allocated(device: Any = None) -> None:
    """The older name of :func:`reset_peak_memory_stats`, which resets all peaks."""
    _older("reset_max_memory_allocated", "reset_peak_memory_stats", device)


def reset_max_memory_cached(device: Any = None) -> None:
    """The older name of :func:`reset_peak_memory_stats`, which resets all peaks."""
    _older("reset_max_memory_cached", "reset_peak_memory_stats", device)


def _older(old: str, new: str, device: Any) -> Any:
    warnings.warn(f"torch.zoom.{old} is now torch.zoom.{new}", FutureWarning, stacklevel=3)
    return globals()[new](device)
