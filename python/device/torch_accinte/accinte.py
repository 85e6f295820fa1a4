"""``torch.accinte``: what ``torch.cuda`` has for CUDA. The module of another device can have the same names:
``from torch_accinte.accinte import *``."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
from torch import Tensor

from torch_accinte import memory as memory
from torch_accinte._device import c, index, name
from torch_accinte.graphs import *
from torch_accinte.memory import *

NAME = "accinte"

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


def synchronize(device: Any = None) -> None:
    """Wait for all work of a device."""
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
    return torch.Stream(stream_id=0, device_index=index(device), device_type=int(kind))


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


class Event:
    """Makes a ``torch.Event``, which is recorded where its ``record`` says. PyTorch compares times only of that very
    class."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Any:
        return torch.Event(device=name(), enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


# ---- random numbers ----


class _Generators:
    """``default_generators`` of ``torch.cuda``: one for each device."""

    def __getitem__(self, index: int) -> torch.Generator:
        generator: torch.Generator = c().default_generator(index)
        return generator

    def __len__(self) -> int:
        return device_count()


default_generators = _Generators()


def get_rng_state(device: Any = None) -> Tensor:
    """The state of a device's generator."""
    return default_generators[index(device)].get_state()


def set_rng_state(new_state: Tensor, device: Any = None) -> None:
    """Set it."""
    default_generators[index(device)].set_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    """The states of all devices' generators."""
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(new_states: Any) -> None:
    """Set them."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def manual_seed(seed: int) -> None:
    """Seed the current device's generator."""
    default_generators[current_device()].manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed those of all devices."""
    for i in range(device_count()):
        default_generators[i].manual_seed(int(seed))


def seed() -> int:
    """Seed the current device's generator with a number that nobody knows, and return it."""
    return default_generators[current_device()].seed()


def seed_all() -> None:
    """Seed those of all devices so, with one number."""
    manual_seed_all(seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return default_generators[current_device()].initial_seed()


def get_offset(device: Any = None) -> int:
    """Refused: these generators have no offset."""
    offset: int = default_generators[index(device)].get_offset()
    return offset


def set_offset(offset: int, device: Any = None) -> None:
    """Refused: these generators have no offset."""
    default_generators[index(device)].set_offset(offset)


# ---- mixed precision ----


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The types that ``torch.autocast`` may be asked for."""
    return [torch.float16, torch.bfloat16]


os.register_at_fork(after_in_child=_after_fork)


# ---- torch.compile ----


def __getattr__(attribute: str) -> Any:
    """What inductor looks for here: :mod:`torch_accinte.inductor`, which takes long to load and most don't need."""
    if attribute == "Scheduling":
        from torch_accinte.inductor import Scheduling

        return Scheduling
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
