"""The names of ``torch.<name>``, the equivalent of ``torch.cuda``. A device's module takes them over:
``from chorus_device.namespace import *``."""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import uuid
from typing import Any, NamedTuple, cast

import torch

from chorus_device import _device, typed
from chorus_device import amp as amp
from chorus_device import graphs as graphs
from chorus_device import jiterator as jiterator
from chorus_device import memory as memory
from chorus_device import meta as meta
from chorus_device import random as random
from chorus_device._device import c, index, name
from chorus_device.amp import *
from chorus_device.graphs import *
from chorus_device.memory import *
from chorus_device.random import *
from chorus_device.random import _get_generator as _get_generator

OutOfMemoryError = torch.OutOfMemoryError

_forked = False
_chosen = False  # whether the program has called set_device


def _after_fork() -> None:
    global _forked
    extension = sys.modules.get("chorus_device._C")  # there is none if it could not be loaded
    if extension is None or _forked:
        return
    _forked = extension.is_loaded()
    if extension.is_initialized():
        extension.exit_without_drivers()


# ---- the runtime ----


def is_available() -> bool:
    """Whether there is a device."""
    return device_count() > 0


def device_count() -> int:
    """The number of devices."""
    return int(c().device_count())


def init() -> None:
    """Open the current device now instead of at its first use."""
    _lazy_init()


def is_initialized() -> bool:
    """Whether a device was opened, in this process."""
    return bool(c().is_initialized()) and not _forked


def _begun() -> bool:
    """Whether the program has chosen or opened a device, in this process. Questions such as :func:`is_available` do
    neither."""
    return (_chosen or bool(c().is_initialized())) and not _forked


def _is_in_bad_fork() -> bool:
    return _forked


def _lazy_init() -> None:
    if _forked:
        title = _device.title
        raise RuntimeError(
            f"Cannot re-initialize {title} in forked subprocess. To use {title} with multiprocessing, you must use the "
            "'spawn' start method"
        )
    c().init()


def current_device() -> int:
    """The index of the thread's current device."""
    return int(c().current_device())


def set_device(device: Any) -> None:
    """Make a device the thread's current one. A negative index changes nothing."""
    global _chosen
    which = index(device)
    if which >= 0:
        c().set_device(which)
        _chosen = True


class device:
    """Within this the thread's current device is another one; None, or a negative index, changes nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None else index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = c().exchange_device(self.idx)

    def __exit__(self, *exc: object) -> None:
        if self.idx >= 0:
            c().exchange_device(self.prev_idx)


class device_of(device):
    """Within this the current device is a tensor's, if it's one of these devices."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device.index if obj.device.type == name() else None)


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether kernels of a device can access the memory of another device of the process."""
    return bool(c().peer_capable(index(device), index(peer_device)))


def ipc_collect() -> None:
    """Do nothing. Programs for CUDA call it now and then. Here memory that was shared with another process is freed as
    soon as that process has dropped it."""


def synchronize(device: Any = None) -> None:
    """Wait for all work of a device."""
    _lazy_init()  # without a device PyTorch would return without a wait
    torch.accelerator.synchronize(index(device))


def current_stream(device: Any = None) -> torch.Stream:
    """The thread's current stream of a device."""
    return torch.accelerator.current_stream(index(device))


def clear_error(stream: torch.Stream | None = None) -> str:
    """Wait for a stream's work, clear the stream's error so that it goes on, and return the error's text, or ""."""
    stream = current_stream() if stream is None else stream
    return str(c().recover(stream.stream_id, stream.device.index))


_SYNC_MODES = ("default", "warn", "error")


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Choose what happens where an operator, a copy or a stream's ``synchronize`` makes the host wait: nothing
    ("default" or 0), a warning ("warn" or 1), or an error ("error" or 2). Meanwhile an operator on an idle stream is
    treated as on a busy one. The mode holds for all threads."""
    mode = _SYNC_MODES.index(debug_mode) if debug_mode in _SYNC_MODES else debug_mode
    if mode not in (0, 1, 2):
        raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
    c().set_sync_debug(mode)


def get_sync_debug_mode() -> int:
    """The mode of :func:`set_sync_debug_mode`: 0, 1 or 2."""
    return int(c().sync_debug())


def set_stream(stream: torch.Stream) -> None:
    """Make a stream, and its device, the thread's current ones."""
    torch.accelerator.set_stream(stream)


def default_stream(device: Any = None) -> torch.Stream:
    """The default stream of a device, which is current until :func:`set_stream`."""
    kind: Any = torch._C._autograd.DeviceType.PrivateUse1
    i = index(device)
    c().stream_handle(i, 0)  # raises if there is no such device
    return torch.Stream(stream_id=0, device_index=i, device_type=int(kind))


class StreamContext:
    """Within this a stream, and its device, are the thread's current ones; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *exc: Any) -> None:
        if self.stream is not None:
            self.stream.__exit__(*exc)


def stream(stream: torch.Stream | None) -> StreamContext:
    """:class:`StreamContext`."""
    return StreamContext(stream)


class Stream(torch.Stream):
    """A stream of the current device, or of another."""

    def __new__(cls, device: Any = None, priority: int = 0) -> Any:
        return super().__new__(cls, device=torch.device(name(), index(device)), priority=priority)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The least and the most urgent priority."""
        return 0, -1


class ExternalStream(torch.Stream):
    """A stream that another library of the process has made with the device's driver. ``stream_ptr`` is the driver's
    handle, as in a stream's ``native_handle``. The owner keeps the stream for as long as it's used here, and calls
    :meth:`abandon` before it destroys it."""

    def __new__(cls, stream_ptr: int, device: Any = None) -> Any:
        i, kind = index(device), torch._C._autograd.DeviceType.PrivateUse1
        return super().__new__(
            cls, stream_id=c().adopt_stream(i, stream_ptr), device_index=i, device_type=int(cast(Any, kind))
        )

    def abandon(self) -> None:
        """End the use of the stream here. No thread has it as its current stream afterwards, and no stream waits for
        it."""
        c().abandon_stream(self.device_index, self.stream_id)


def get_stream_from_external(data_ptr: int, device: Any = None) -> ExternalStream:
    """:class:`ExternalStream`."""
    made: ExternalStream = ExternalStream(data_ptr, device)
    return made


class Event:
    """Makes a ``torch.Event``, recorded on the stream that its ``record`` gets. PyTorch measures times only between
    objects of exactly that class."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Any:
        return torch.Event(device=name(), enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


# ---- operators ----


def fallback_counts() -> dict[str, int]:
    """How often each operator had no kernel of the device's own in this process, and ran PyTorch's CPU kernel; the most
    frequent first."""
    counts: dict[str, int] = c().fallback_counts()
    return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


# ---- properties of devices ----


class DeviceProperties(NamedTuple):
    """The properties of a device."""

    name: str
    total_memory: int
    library: str  # that drives it, with its version, such as "CUDA 13.0"; empty: the driver is its own
    multi_processor_count: int  # on other devices than GPUs: how many kernels or blocks run at once
    major: int  # the compute capability of CUDA and HIP, the version of OpenCL; 0.0 with a driver of its own
    minor: int
    uuid: uuid.UUID | None  # None: libchorus is older than the field
    host_access: bool | None  # the process can touch its memory, by one address or another; None as above


def get_device_properties(device: Any = None) -> DeviceProperties:
    """The properties of a device."""
    from chorus import _lib
    from chorus._devices import place_of
    from chorus.errors import check

    info = _lib.DeviceInfo(size=ctypes.sizeof(_lib.DeviceInfo))
    check(_lib.library.chorus_device_get(place_of(torch.device(name(), index(device))), ctypes.byref(info)))
    return DeviceProperties(
        info.model.decode(), info.total_bytes, (info.library or b"").decode(), info.units, info.major, info.minor,
        uuid.UUID(info.uuid.decode()) if info.uuid else None, bool(info.views) if info.uuid else None,
    )  # fmt: skip


def get_device_name(device: Any = None) -> str:
    """The driver's name of the model."""
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """``major`` and ``minor`` of the device's properties. ``torch.accelerator.get_device_capability`` has the element
    types that the device supports."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


os.register_at_fork(after_in_child=_after_fork)


# ---- loaded when it's needed ----


def __getattr__(attribute: str) -> Any:
    """Names that most programs don't need. :mod:`chorus_device.profiler` takes long to load, and so does
    :mod:`chorus_device.inductor`, in which inductor looks for ``Scheduling``. Checkpoints read ``_initialized`` to
    decide whether to save random states. :mod:`chorus_device.typed` has the names of tensors of one type."""
    if attribute == "_initialized":
        return is_initialized()
    if attribute == "Scheduling":
        from chorus_device.inductor import Scheduling

        return Scheduling
    if attribute in typed.NAMES:
        return typed.named(attribute)
    if attribute == "profiler":
        return importlib.import_module("chorus_device.profiler")
    raise AttributeError(f"module {'torch.' + name()!r} has no attribute {attribute!r}")
