"""``torch.accinte``: what ``torch.cuda`` has for CUDA. The module of another device can have the same names:
``from torch_accinte.accinte import *``."""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from typing import Any, NamedTuple, cast

import torch

from torch_accinte import amp as amp
from torch_accinte import memory as memory
from torch_accinte import meta as meta
from torch_accinte import random as random
from torch_accinte import typed
from torch_accinte._device import c, index, name
from torch_accinte.amp import *
from torch_accinte.graphs import *
from torch_accinte.memory import *
from torch_accinte.random import *
from torch_accinte.random import _get_generator as _get_generator

NAME = "accinte"

OutOfMemoryError = torch.OutOfMemoryError

_forked = False


def _after_fork() -> None:
    global _forked
    extension = sys.modules.get("torch_accinte._C")  # there is none if it could not be loaded
    _forked = _forked or (extension is not None and extension.is_loaded())


# ---- the runtime ----


def is_available() -> bool:
    """Whether there is a device."""
    return device_count() > 0


def device_count() -> int:
    """How many devices there are."""
    return int(c().device_count())


def init() -> None:
    """Open the current device, which otherwise its first use does."""
    _lazy_init()


def is_initialized() -> bool:
    """Whether a device was opened, in this process."""
    return bool(c().is_initialized()) and not _forked


def _is_in_bad_fork() -> bool:
    return _forked


def _lazy_init() -> None:
    if _forked:
        title = {NAME: "AccInte"}.get(name(), name())
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
    which = index(device)
    if which >= 0:
        c().set_device(which)


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
    """Whether kernels of a device can be let touch the memory of another one of the process."""
    return bool(c().peer_capable(index(device), index(peer_device)))


def ipc_collect() -> None:
    """Nothing, as there's nothing to do: memory that was shared with another process is freed as soon as that has
    dropped it. Programs for CUDA ask for it now and then."""


def synchronize(device: Any = None) -> None:
    """Wait for all work of a device."""
    _lazy_init()  # PyTorch waits for nothing where there is no device
    torch.accelerator.synchronize(index(device))


def current_stream(device: Any = None) -> torch.Stream:
    """The thread's current stream of a device."""
    return torch.accelerator.current_stream(index(device))


def clear_error(stream: torch.Stream | None = None) -> str:
    """Wait for a stream's work, let it go on after what it has failed with, and say what that was, else ""."""
    stream = current_stream() if stream is None else stream
    return str(c().recover(stream.stream_id, stream.device.index))


def set_stream(stream: torch.Stream) -> None:
    """Make a stream, and its device, the thread's current ones."""
    torch.accelerator.set_stream(stream)


def default_stream(device: Any = None) -> torch.Stream:
    """The stream of a device that is current at first."""
    kind: Any = torch._C._autograd.DeviceType.PrivateUse1
    i = index(device)
    c().stream_handle(i, 0)  # there is one
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
    """A stream that somebody else in the process has made with the device's driver, which calls it ``stream_ptr``, as
    another stream's ``native_handle`` says. Whoever made it keeps it for as long as it's used here, and calls
    :meth:`abandon` before it's gone."""

    def __new__(cls, stream_ptr: int, device: Any = None) -> Any:
        i, kind = index(device), torch._C._autograd.DeviceType.PrivateUse1
        return super().__new__(
            cls, stream_id=c().adopt_stream(i, stream_ptr), device_index=i, device_type=int(cast(Any, kind))
        )

    def abandon(self) -> None:
        """Let nobody use it any more. It's not the current stream then, and nobody waits for it."""
        c().abandon_stream(self.device_index, self.stream_id)


def get_stream_from_external(data_ptr: int, device: Any = None) -> ExternalStream:
    """:class:`ExternalStream`."""
    made: ExternalStream = ExternalStream(data_ptr, device)
    return made


class Event:
    """Makes a ``torch.Event``, which is recorded where its ``record`` says. PyTorch compares times only of that very
    class."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Any:
        return torch.Event(device=name(), enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


# ---- what a device is ----


class DeviceProperties(NamedTuple):
    """What there is to know of a device."""

    name: str
    total_memory: int


def get_device_properties(device: Any = None) -> DeviceProperties:
    """A device's."""
    from chorus import _lib
    from chorus.backend import place_of
    from chorus.errors import check

    info = _lib.DeviceInfo(size=ctypes.sizeof(_lib.DeviceInfo))
    check(_lib.library.chorus_device_get(place_of(torch.device(name(), index(device))), ctypes.byref(info)))
    return DeviceProperties(info.model.decode(), info.total_bytes)


def get_device_name(device: Any = None) -> str:
    """What its driver calls the model."""
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> dict[str, Any]:
    """``torch.accelerator.get_device_capability``: the types that it has."""
    capability: dict[str, Any] = torch.accelerator.get_device_capability(index(device))
    return capability


os.register_at_fork(after_in_child=_after_fork)


# ---- loaded, or told, when it's needed ----


def __getattr__(attribute: str) -> Any:
    """Most don't need these. :mod:`torch_accinte.profiler`, and :mod:`torch_accinte.inductor`, in which inductor looks
    for ``Scheduling``, take long to load. By ``_initialized`` checkpoints know whether to keep random numbers.
    :mod:`torch_accinte.typed` has the names of tensors of one type."""
    if attribute == "_initialized":
        return is_initialized()
    if attribute == "Scheduling":
        from torch_accinte.inductor import Scheduling

        return Scheduling
    if attribute in typed.NAMES:
        return typed.named(attribute)
    if attribute == "profiler":
        return importlib.import_module("torch_accinte.profiler")
    raise AttributeError(f"module {'torch.' + name()!r} has no attribute {attribute!r}")
