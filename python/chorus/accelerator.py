"""The devices of Chorus from Python, under the names of ``torch.accelerator``.

    x = chorus.accelerator.zeros(1024, device="accinte:0")   # a chorus.DeviceTensor
    with chorus.Stream("accinte:0") as s:                    # the current stream of this thread
        x.copy_(torch.ones(1024))
        s.launch(lambda a: a.mul_(2), x)                     # a kernel of an emulated device
    s.synchronize()
    x.cpu()                                                  # a torch tensor

Communicators on devices are those of :mod:`chorus.torchcomms`, made with ``device="accinte:0"``. Functions of
``torch.accelerator`` do here what they do there, with the process's first type of accelerator; a ``torch.Stream`` is a
:class:`chorus.Stream`, and so on.
"""

from __future__ import annotations

import ctypes
import warnings
from collections import OrderedDict
from typing import Any

from chorus import _lib
from chorus._device import (
    DeviceLike,
    Event,
    Graph,
    Stream,
    accelerator,
    check,
    count,
    current_index,
    current_stream,
    device,
    handle_of,
    resolve,
    set_current_index,
    set_stream,
    synchronize,
)
from chorus._device_tensor import DeviceTensor, empty, empty_pinned, from_dlpack, from_torch, full, zeros
from chorus._tensors import DTYPES
from chorus.errors import InvalidArgumentError, UnsupportedError

__all__ = [
    "DeviceTensor",
    "Event",
    "Graph",
    "Stream",
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "current_stream",
    "device",
    "device_count",
    "device_index",
    "empty",
    "empty_cache",
    "empty_host_cache",
    "empty_pinned",
    "from_dlpack",
    "from_torch",
    "full",
    "get_device_capability",
    "get_memory_info",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_device_idx",
    "set_device_index",
    "set_stream",
    "synchronize",
    "zeros",
]

_library = _lib.library


def current_accelerator(check_available: bool = False) -> device | None:
    """The type of the process's accelerator; None if there is none."""
    try:
        return device(accelerator())
    except UnsupportedError:
        return None


def is_available() -> bool:
    """Whether there is an accelerator."""
    return current_accelerator() is not None


def device_count() -> int:
    """How many devices of the accelerator there are."""
    return count(accelerator()) if is_available() else 0


def current_device_index() -> int:
    """The index of the thread's current device."""
    return current_index(accelerator())


def set_device_index(device: DeviceLike, /) -> None:
    """Make a device of the accelerator the thread's current one. A negative index changes nothing."""
    if isinstance(device, int) and device < 0:
        return
    one = resolve(device)
    if one.type != accelerator():
        raise InvalidArgumentError(f"chorus: set_device_index: {one} is no device of the accelerator, {accelerator()}")
    set_current_index(one.type, one.index or 0)


def current_device_idx() -> int:
    """Deprecated: :func:`current_device_index`."""
    warnings.warn("current_device_idx is deprecated; use current_device_index", DeprecationWarning, stacklevel=2)
    return current_device_index()


def set_device_idx(device: DeviceLike, /) -> None:
    """Deprecated: :func:`set_device_index`."""
    warnings.warn("set_device_idx is deprecated; use set_device_index", DeprecationWarning, stacklevel=2)
    set_device_index(device)


class device_index:
    """Within this the thread's current device is another one; None changes nothing."""

    def __init__(self, device: int | None, /) -> None:
        self._index = device
        self._outer: list[int] = []

    def __enter__(self) -> None:
        if self._index is not None:
            self._outer.append(current_device_index())
            set_current_index(accelerator(), self._index)

    def __exit__(self, *exc: object) -> None:
        if self._index is not None:
            set_current_index(accelerator(), self._outer.pop())


def get_device_capability(device: DeviceLike = None, /) -> dict[str, Any]:
    """What a device can do: ``"supported_dtypes"``, the types that can be reduced."""
    resolve(device)
    return {"supported_dtypes": set(DTYPES)}


def _info(what: DeviceLike) -> _lib.DeviceInfo:
    info = _lib.DeviceInfo(size=ctypes.sizeof(_lib.DeviceInfo))
    check(_library.chorus_device_get(handle_of(resolve(what)), ctypes.byref(info)))
    return info


def get_memory_info(device_index: DeviceLike = None, /) -> tuple[int, int]:
    """Free and total memory of a device, in bytes."""
    info = _info(device_index)
    return info.free_bytes, info.total_bytes


def empty_cache() -> None:
    """Give memory that the allocators of the accelerator keep, and nobody uses, back to the driver."""
    for i in range(device_count()):
        check(_library.chorus_device_empty_cache(handle_of(resolve(i))))


def empty_host_cache() -> None:
    """Give pinned memory that is kept, and nobody uses, back to the driver."""
    if is_available():
        check(_library.chorus_device_empty_host_cache(handle_of(resolve(0))))


def memory_stats(device_index: DeviceLike = None, /) -> OrderedDict[str, Any]:
    """The figures of a device's allocator, such as ``"allocated_bytes.all.current"``."""
    h = handle_of(resolve(device_index))
    n = ctypes.c_int32()
    check(_library.chorus_device_memory_stats(h, None, 0, ctypes.byref(n)))
    figures = (_lib.Figure * n.value)()
    check(_library.chorus_device_memory_stats(h, figures, n.value, ctypes.byref(n)))
    return OrderedDict(sorted((f.name.decode(), f.value) for f in figures))


def memory_allocated(device_index: DeviceLike = None, /) -> int:
    """Bytes that tensors occupy."""
    return int(memory_stats(device_index)["allocated_bytes.all.current"])


def max_memory_allocated(device_index: DeviceLike = None, /) -> int:
    """Their peak, since the start or :func:`reset_peak_memory_stats`."""
    return int(memory_stats(device_index)["allocated_bytes.all.peak"])


def memory_reserved(device_index: DeviceLike = None, /) -> int:
    """Bytes that the allocator has from the driver."""
    return int(memory_stats(device_index)["reserved_bytes.all.current"])


def max_memory_reserved(device_index: DeviceLike = None, /) -> int:
    """Their peak."""
    return int(memory_stats(device_index)["reserved_bytes.all.peak"])


def reset_accumulated_memory_stats(device_index: DeviceLike = None, /) -> None:
    """Let sums and counts begin anew at 0."""
    check(_library.chorus_device_reset_accumulated_stats(handle_of(resolve(device_index))))


def reset_peak_memory_stats(device_index: DeviceLike = None, /) -> None:
    """Let the peaks begin anew at what is in use."""
    check(_library.chorus_device_reset_peak_stats(handle_of(resolve(device_index))))
