"""Random numbers of devices: ``torch.<name>.random``, whose names are in ``torch.<name>``, too."""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import Tensor

from chorus_device._device import c, index, name

__all__ = [
    "default_generators",
    "get_offset",
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_offset",
    "set_rng_state",
    "set_rng_state_all",
    "use_philox",
]


class _Generators:
    """The equivalent of ``torch.cuda.default_generators``: one for each device."""

    def __getitem__(self, index: int) -> torch.Generator:
        generator: torch.Generator = c().default_generator(index)
        return generator

    def __len__(self) -> int:
        return int(c().device_count())


default_generators = _Generators()


def _get_generator(device: torch.device) -> torch.Generator:
    """The generator of a device, for compiled programs, which set states of their own for a while."""
    return default_generators[index(device)]


def get_rng_state(device: Any = None) -> Tensor:
    """The state of a device's generator."""
    return default_generators[index(device)].get_state()


def set_rng_state(new_state: Tensor, device: Any = None) -> None:
    """Set the state of a device's generator."""
    default_generators[index(device)].set_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    """The states of all devices' generators."""
    return [get_rng_state(i) for i in range(int(c().device_count()))]


def set_rng_state_all(new_states: Any) -> None:
    """Set the states of all devices' generators."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def manual_seed(seed: int) -> None:
    """Seed the current device's generator. Before the first use of random numbers it doesn't load the driver."""
    if not _later(int(c().current_device()), seed):
        default_generators[int(c().current_device())].manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices, likewise."""
    if not _later(-1, seed):
        for i in range(int(c().device_count())):
            default_generators[i].manual_seed(int(seed))


def _later(which: int, seed: int) -> bool:
    """Leave a seed for generators that aren't made yet. It's False if there are some, or if the seed has no 64 bits."""
    seed = int(seed)
    return -(1 << 63) <= seed < 1 << 64 and bool(c().seed_later(which, seed % (1 << 64)))


def seed() -> int:
    """Seed the current device's generator with an unpredictable number, and return it."""
    return default_generators[int(c().current_device())].seed()


def seed_all() -> None:
    """Seed the generators of all devices with one unpredictable number."""
    manual_seed_all(seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return default_generators[int(c().current_device())].initial_seed()


def get_offset(device: Any = None) -> int:
    """The offset of a device's generator; raises unless it draws CUDA's numbers (:func:`use_philox`)."""
    offset: int = default_generators[index(device)].get_offset()
    return offset


def set_offset(offset: int, device: Any = None) -> None:
    """Set the offset; raises likewise."""
    default_generators[index(device)].set_offset(offset)


def explain(of_dtensor: types.ModuleType) -> None:
    """Make DTensor's random numbers, which need offsets, raise a clear error for generators that have none."""
    state: Any = of_dtensor._PhiloxState
    before = state.__init__

    def __init__(self: Any, given: Tensor) -> None:
        if given.numel() != 16:
            raise RuntimeError(
                "DTensor's random numbers need a generator with offsets: call "
                f"torch.{name()}.use_philox() before parameters are drawn"
            )
        before(self, given)

    state.__init__ = __init__


def use_philox(enabled: bool = True) -> None:
    """Make all generators draw the numbers of PyTorch's CUDA generators, from the same seeds: Philox, with a state of
    16 bytes and an offset. With False they draw those of its CPU generators again. Either way they restart from their
    seeds. It doesn't load the driver.

    The numbers are those of a GPU without a limit on threads; up to 200,000 elements every GPU draws these. All
    distributions of tensors are supported, and what PyTorch composes of them. Other operators, such as ``poisson``,
    draw from a CPU generator that is made for each call, with a seed from the device's generator; they can't be
    captured. Graphs draw from the device's own generator.
    """
    c().use_philox(enabled)
