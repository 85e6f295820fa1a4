"""The current streams of devices whose streams PyTorch makes itself: those of CUDA and HIP.

The library has current streams of its own, for each thread. PyTorch's extension for an emulated device sets them along
with PyTorch's. For other devices a call is made within :func:`current`, which makes PyTorch's current stream the
library's meanwhile.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from typing import Any

import torch

from chorus import _devices, _lib
from chorus.errors import check

# Functions for the native handle of PyTorch's current stream of a device, by PyTorch's names for the types of device.
natives: dict[str, Callable[[torch.device], int]] = {}

# The native handles of default streams, the same for all devices: the library uses another stream instead.
_DEFAULTS = (0, 1, 2)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.inside: set[torch.device] = set()  # that the thread is in current for


_thread = _Thread()


# PyTorch's function for compiled code, which takes a tenth of a microsecond; torch.cuda.current_stream takes four.
_raw_stream: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def cuda(device: torch.device) -> int:
    """CUDA's, or HIP's, handle of the current stream."""
    if _raw_stream is not None and device.index is not None:
        return _raw_stream(device.index)
    return int(torch.cuda.current_stream(device).cuda_stream)


def foreign(device: torch.device | None) -> bool:
    """Whether PyTorch itself makes the streams of a device."""
    return device is not None and device.type in natives


def capturing(device: torch.device) -> bool:
    """Whether a graph captures PyTorch's current stream of a device."""
    module: Any = getattr(torch, device.type)
    return bool(module.is_current_stream_capturing())


class Beside:
    """The stream that stands in for PyTorch's default one of a device. The library keeps it."""

    __slots__ = ("default", "native", "stream")

    def __init__(self, native: int, stream: Any, default: Any):
        self.native = native  # its handle
        self.stream = stream  # PyTorch's object
        self.default = default  # the stream that it stands in for

    def follow(self) -> None:
        """Let it run after the default stream's work so far."""
        self.stream.wait_stream(self.default)

    def lead(self) -> None:
        """Let the default stream run after its work so far."""
        self.default.wait_stream(self.stream)


@functools.cache
def _beside(device: torch.device) -> Beside:
    made, native = ctypes.c_uint64(), ctypes.c_uint64()
    check(_lib.library.chorus_stream_create(_devices.place_of(device), 0, ctypes.byref(made)))
    check(_lib.library.chorus_stream_native(made.value, ctypes.byref(native)))
    module = getattr(torch, device.type)
    return Beside(native.value, module.ExternalStream(native.value, device=device), module.default_stream(device))


@functools.cache
def _default(place: int) -> int:
    """The library's default stream of a device, by the device's number."""
    stream = ctypes.c_uint64()
    check(_lib.library.chorus_stream_default(place, ctypes.byref(stream)))
    return stream.value


def taken(device: torch.device, waits: bool = True) -> tuple[int, Beside | None]:
    """The current stream for one call into the library: its native handle, and None. The handle is 0 if the stream is
    the library's current one already. For the default stream it's the handle of the stream that stands in for it, and
    that stream. With ``waits`` that stream waits for the default one first; the caller lets the default one
    wait for it afterwards."""
    native = natives.get(device.type)
    if native is None or device in _thread.inside:
        return 0, None
    handle = native(device)
    if handle not in _DEFAULTS:
        return handle, None
    beside = _beside(device)
    if handle != 0:  # the same stream by another handle
        beside = Beside(beside.native, beside.stream, torch.accelerator.current_stream(device))
    if waits:
        beside.follow()
    return beside.native, beside


class current:
    """Make PyTorch's current stream of a device the library's, within a ``with``. A stream of the library's stands in
    for the default stream, one for each device. It waits for the default stream before, which waits for it after."""

    __slots__ = ("_after", "_device", "_place", "_stream")

    def __init__(self, device: torch.device | None):
        self._device = device

    def __enter__(self) -> None:
        device = self._device
        if device is None:
            return
        handle, beside = taken(device)
        if not handle:
            self._device = None  # there's nothing to do, here or at the exit
            return
        self._place: int = _devices.place_of(device)
        self._after: tuple[Beside, Any] | None = None
        adopted = ctypes.c_uint64()
        check(_lib.library.chorus_stream_adopt(self._place, handle, ctypes.byref(adopted)))
        self._stream = adopted.value
        if beside is not None:
            entered = getattr(torch, device.type).stream(beside.stream)
            entered.__enter__()
            self._after = beside, entered
        status = _lib.library.chorus_stream_set_current(self._stream)
        _thread.inside.add(device)
        if status:
            self.__exit__()
            check(status)

    def __exit__(self, *_: object) -> None:
        if self._device is None:
            return
        _thread.inside.discard(self._device)
        _lib.library.chorus_stream_set_current(_default(self._place))
        _lib.library.chorus_stream_release(self._stream)
        if self._after is not None:
            beside, entered = self._after
            entered.__exit__(None, None, None)
            beside.lead()
