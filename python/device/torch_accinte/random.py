"""Random numbers of devices: ``torch.accinte.random``, and as much of ``torch.accinte``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_accinte._device import c, index

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
]


class _Generators:
    """``default_generators`` of ``torch.cuda``: one for each device."""

    def __getitem__(self, index: int) -> torch.Generator:
        generator: torch.Generator = c().default_generator(index)
        return generator

    def __len__(self) -> int:
        return int(c().device_count())


default_generators = _Generators()


def get_rng_state(device: Any = None) -> Tensor:
    """The state of a device's generator."""
    return default_generators[index(device)].get_state()


def set_rng_state(new_state: Tensor, device: Any = None) -> None:
    """Set it."""
    default_generators[index(device)].set_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    """The states of all devices' generators."""
    return [get_rng_state(i) for i in range(int(c().device_count()))]


def set_rng_state_all(new_states: Any) -> None:
    """Set them."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def manual_seed(seed: int) -> None:
    """Seed the current device's generator."""
    default_generators[int(c().current_device())].manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed those of all devices."""
    for i in range(int(c().device_count())):
        default_generators[i].manual_seed(int(seed))


def seed() -> int:
    """Seed the current device's generator with a number that nobody knows, and return it."""
    return default_generators[int(c().current_device())].seed()


def seed_all() -> None:
    """Seed those of all devices so, with one number."""
    manual_seed_all(seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return default_generators[int(c().current_device())].initial_seed()


def get_offset(device: Any = None) -> int:
    """Refused: these generators have no offset."""
    offset: int = default_generators[index(device)].get_offset()
    return offset


def set_offset(offset: int, device: Any = None) -> None:
    """Refused: these generators have no offset."""
    default_generators[index(device)].set_offset(offset)
