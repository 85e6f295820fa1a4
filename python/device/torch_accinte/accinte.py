"""``torch.accinte``: what ``torch.cuda`` has for CUDA."""

from __future__ import annotations

import importlib
import os
import sys
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor

NAME = "accinte"

_forked = False


def _after_fork() -> None:
    global _forked
    extension = sys.modules.get("torch_accinte._C")  # there is none if it could not be loaded
    _forked = _forked or (extension is not None and extension.is_loaded())


def _c() -> Any:
    return importlib.import_module("torch_accinte._C")


# ---- the runtime ----


def is_available() -> bool:
    """Whether there is a device."""
    return device_count() > 0


def device_count() -> int:
    """How many devices there are."""
    return int(_c().device_count())


def init() -> None:
    """Open the current device, which otherwise its first use does."""
    _lazy_init()


def is_initialized() -> bool:
    """Whether a device was opened, in this process."""
    return bool(_c().is_initialized()) and not _forked


def _is_in_bad_fork() -> bool:
    return _forked


def _lazy_init() -> None:
    if _forked:
        raise RuntimeError(
            "Cannot re-initialize AccInte in forked subprocess. To use AccInte with multiprocessing, you must use the "
            "'spawn' start method"
        )
    _c().init()


def _index(where: Any, optional: bool = True) -> int:
    """The index of a device that a caller means: the current one by default."""
    if where is None:
        if not optional:
            raise ValueError("a device with an index is wanted")
        return current_device()
    if isinstance(where, int):
        return where
    d = torch.device(where)
    if d.type != NAME:
        raise ValueError(f"a device of {NAME} is wanted, not {d}")
    return current_device() if d.index is None else d.index


def current_device() -> int:
    """The index of the thread's current device."""
    return int(_c().current_device())


def set_device(device: Any) -> None:
    """Make a device the thread's current one. A negative index changes nothing."""
    index = _index(device)
    if index >= 0:
        _c().set_device(index)


class device:
    """Within this the thread's current device is another one; None, or a negative index, changes nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None else _index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = _c().exchange_device(self.idx)

    def __exit__(self, *exc: object) -> None:
        if self.idx >= 0:
            _c().exchange_device(self.prev_idx)


class device_of(device):
    """Within this the current device is a tensor's, if it's one of these devices."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device.index if obj.device.type == NAME else None)


def synchronize(device: Any = None) -> None:
    """Wait for all work of a device."""
    torch.accelerator.synchronize(_index(device))


def current_stream(device: Any = None) -> torch.Stream:
    """The thread's current stream of a device."""
    return torch.accelerator.current_stream(_index(device))


def set_stream(stream: torch.Stream) -> None:
    """Make a stream, and its device, the thread's current ones."""
    torch.accelerator.set_stream(stream)


def default_stream(device: Any = None) -> torch.Stream:
    """The stream of a device that is current at first."""
    kind: Any = torch._C._autograd.DeviceType.PrivateUse1
    return torch.Stream(stream_id=0, device_index=_index(device), device_type=int(kind))


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
        return super().__new__(cls, device=torch.device(NAME, _index(device)), priority=priority)


class Event:
    """Makes a ``torch.Event``, which is recorded where its ``record`` says. PyTorch compares times only of that very
    class."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Any:
        return torch.Event(device=NAME, enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


# ---- memory ----


def memory_stats(device: Any = None) -> OrderedDict[str, Any]:
    """The figures of a device's allocator under the names of ``torch.cuda.memory_stats``."""
    return OrderedDict(_c().memory_stats(_index(device)))


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors occupy."""
    return int(memory_stats(device)["allocated_bytes.all.current"])


def max_memory_allocated(device: Any = None) -> int:
    """Their peak."""
    return int(memory_stats(device)["allocated_bytes.all.peak"])


def memory_reserved(device: Any = None) -> int:
    """Bytes that the allocator has from the driver."""
    return int(memory_stats(device)["reserved_bytes.all.current"])


def max_memory_reserved(device: Any = None) -> int:
    """Their peak."""
    return int(memory_stats(device)["reserved_bytes.all.peak"])


def empty_cache() -> None:
    """Give memory that the allocators keep, and nobody uses, back to the driver."""
    torch.accelerator.empty_cache()


def reset_peak_memory_stats(device: Any = None) -> None:
    """Let the peaks begin anew at what is in use."""
    torch.accelerator.reset_peak_memory_stats(_index(device))


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Let sums and counts begin anew at 0."""
    torch.accelerator.reset_accumulated_memory_stats(_index(device))


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total memory of a device, in bytes."""
    free, total = torch.accelerator.get_memory_info(_index(device))
    return free, total


# ---- random numbers ----


class _Generators:
    """``default_generators`` of ``torch.cuda``: one for each device."""

    def __getitem__(self, index: int) -> torch.Generator:
        generator: torch.Generator = _c().default_generator(index)
        return generator

    def __len__(self) -> int:
        return device_count()


default_generators = _Generators()


def get_rng_state(device: Any = NAME) -> Tensor:
    """The state of a device's generator."""
    return default_generators[_index(device)].get_state()


def set_rng_state(new_state: Tensor, device: Any = NAME) -> None:
    """Set it."""
    default_generators[_index(device)].set_state(new_state)


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


def get_offset(device: Any = NAME) -> int:
    """Refused: these generators have no offset."""
    offset: int = default_generators[_index(device)].get_offset()
    return offset


def set_offset(offset: int, device: Any = NAME) -> None:
    """Refused: these generators have no offset."""
    default_generators[_index(device)].set_offset(offset)


# ---- mixed precision ----


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The types that ``torch.autocast`` may be asked for."""
    return [torch.float16, torch.bfloat16]


os.register_at_fork(after_in_child=_after_fork)
