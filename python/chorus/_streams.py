"""The current streams of devices whose streams others make: PyTorch's own of CUDA and HIP.

The library has current streams of its own, for each thread. Where PyTorch's extension for a device sets them along with
PyTorch's there's nothing to do. Elsewhere a call is made within :func:`current`, which lets the library take PyTorch's
current stream meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from chorus import _lib, backend
from chorus.errors import check

# What the library calls PyTorch's current stream of a device, by PyTorch's names for the types of device.
natives: dict[str, Callable[[torch.device], int]] = {}

# The default streams, for which others of the library's wait, and which have one handle for all devices.
_DEFAULTS = (0, 1, 2)

_thread = threading.local()  # inside: the devices that the thread is in current for


def cuda(device: torch.device) -> int:
    """What CUDA, or HIP, calls the current stream."""
    return int(torch.cuda.current_stream(device).cuda_stream)


def foreign(device: torch.device | None) -> bool:
    """Whether others make the streams of a device."""
    return device is not None and device.type in natives


def capturing(device: torch.device) -> bool:
    """Whether a graph captures PyTorch's current stream of a device."""
    module: Any = getattr(torch, device.type)
    return bool(module.is_current_stream_capturing())


@functools.cache
def _beside(device: torch.device) -> tuple[int, Any]:
    """The stream that stands in for PyTorch's default one of a device: the library's handle, and PyTorch's object."""
    made, native = ctypes.c_uint64(), ctypes.c_uint64()
    check(_lib.library.chorus_stream_create(backend.place_of(device), 0, ctypes.byref(made)))
    check(_lib.library.chorus_stream_native(made.value, ctypes.byref(native)))
    return made.value, getattr(torch, device.type).ExternalStream(native.value, device=device)


@contextlib.contextmanager
def current(device: torch.device | None) -> Iterator[None]:
    """Let the library's current stream of a device be PyTorch's. For the default stream a stream of the library's
    stands in, one for each device: it comes after the default one, which then comes after it."""
    if device is None or not foreign(device):
        yield
        return
    key = (device.type, device.index)
    inside: set[Any] = _thread.__dict__.setdefault("inside", set())
    if key in inside:
        yield
        return
    native, place = natives[device.type](device), backend.place_of(device)
    with contextlib.ExitStack() as stack:
        if native in _DEFAULTS:
            before = torch.accelerator.current_stream(device)
            handle, beside = _beside(device)
            beside.wait_stream(before)
            stack.callback(before.wait_stream, beside)
            stack.enter_context(getattr(torch, device.type).stream(beside))
        else:
            adopted = ctypes.c_uint64()
            check(_lib.library.chorus_stream_adopt(place, native, ctypes.byref(adopted)))
            handle = adopted.value
            stack.callback(_lib.library.chorus_stream_release, handle)
        default = ctypes.c_uint64()
        check(_lib.library.chorus_stream_default(place, ctypes.byref(default)))
        check(_lib.library.chorus_stream_set_current(handle))
        stack.callback(_lib.library.chorus_stream_set_current, default.value)
        inside.add(key)
        stack.callback(inside.discard, key)
        yield
