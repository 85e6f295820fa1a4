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
    """Seed the current device's generator."""
    default_generators[int(c().current_device())].manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices."""
    for i in range(int(c().device_count())):
        default_generators[i].manual_seed(int(seed))


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


# ---- CUDA's numbers ----

UNIFORM, NORMAL, LOG_NORMAL, EXPONENTIAL, CAUCHY, GEOMETRIC, BERNOULLI, BERNOULLI_EACH, BETWEEN, ALL = range(10)

_philox: Any = None  # the library of kernels


def use_philox(enabled: bool = True) -> None:
    """Make all generators draw the numbers of PyTorch's CUDA generators, from the same seeds: Philox, with a state of
    16 bytes and an offset. With False they draw those of its CPU generators again.

    These are supported: ``uniform_``, ``normal_``, ``log_normal_``, ``exponential_``, ``cauchy_``, ``geometric_``,
    ``bernoulli_``, ``random_``, and functions that PyTorch composes of them, such as ``rand``, ``randn``, ``randint``,
    ``bernoulli`` and dropout. Others, such as ``randperm`` and ``multinomial``, raise an error. The numbers are those
    of a GPU without a limit on threads; up to 200,000 elements every GPU draws these. Graphs draw them from the
    device's own generator.
    """
    global _philox
    c().use_philox(enabled)
    if not enabled:
        _philox = None
    elif _philox is None:
        library: Any = torch.library
        _philox = library.Library("aten", "IMPL")
        for operator, kernel in _kernels().items():
            _philox.impl(operator, kernel, "PrivateUse1")


def _fill(self: Tensor, kind: int, generator: Any, a: float = 0, b: float = 0, first: int = 0, last: int = 0,
          each: Tensor | None = None) -> Tensor:  # fmt: skip
    from chorus._tensors import DTYPES

    if self.dtype not in DTYPES:
        raise NotImplementedError(f"there are no random numbers of CUDA's of type {self.dtype}")
    # As on CUDA, elements are in the order of their addresses.
    dense = self
    if not c().is_dense(self):
        dense = torch.empty_like(self)
    each_type = 0
    if each is not None:
        each = torch.empty_like(dense, dtype=each.dtype).copy_(each.expand_as(dense))
        if each.dtype not in (torch.float32, self.dtype):
            each = each.to(torch.float32)
        each_type = int(DTYPES[each.dtype])
    c().draw(dense, kind, int(DTYPES[self.dtype]), a, b, first, last, each, each_type, generator)
    return self if dense is self else self.copy_(dense)


def _kernels() -> dict[str, Any]:
    def uniform(self: Tensor, start: float = 0, to: float = 1, *, generator: Any = None) -> Tensor:
        return _fill(self, UNIFORM, generator, start, to)

    def normal(self: Tensor, mean: float = 0, std: float = 1, *, generator: Any = None) -> Tensor:
        if std < 0:
            raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
        if self.is_complex():  # the real and the imaginary part have half of the variance each
            parts = _fill(torch.view_as_real(self), NORMAL, generator, 0, std / 2**0.5)
            parts[..., 0].add_(mean)
            return self
        return _fill(self, NORMAL, generator, mean, std)

    def log_normal(self: Tensor, mean: float = 1, std: float = 2, *, generator: Any = None) -> Tensor:
        return _fill(self, LOG_NORMAL, generator, mean, std)

    def exponential(self: Tensor, lambd: float = 1, *, generator: Any = None) -> Tensor:
        return _fill(self, EXPONENTIAL, generator, lambd)

    def cauchy(self: Tensor, median: float = 0, sigma: float = 1, *, generator: Any = None) -> Tensor:
        return _fill(self, CAUCHY, generator, median, sigma)

    def geometric(self: Tensor, p: float, *, generator: Any = None) -> Tensor:
        return _fill(self, GEOMETRIC, generator, p)

    def bernoulli(self: Tensor, p: float = 0.5, *, generator: Any = None) -> Tensor:
        return _fill(self, BERNOULLI, generator, p)

    def bernoulli_each(self: Tensor, p: Tensor, *, generator: Any = None) -> Tensor:
        return _fill(self, BERNOULLI_EACH, generator, each=p.to(self.device))

    def random(self: Tensor, *, generator: Any = None) -> Tensor:
        return _fill(self, ALL, generator)

    def random_to(self: Tensor, to: int, *, generator: Any = None) -> Tensor:
        return random_from(self, 0, to, generator=generator)

    def random_from(self: Tensor, start: int, to: int | None, *, generator: Any = None) -> Tensor:
        if to is None:
            to = 2 if self.dtype is torch.bool else 1 + (
                _DIGITS[self.dtype] if self.is_floating_point() else torch.iinfo(self.dtype).max
            )  # fmt: skip
        if start >= to:
            raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={start} >= to={to}")
        return _fill(self, BETWEEN, generator, first=start, last=to - 1)

    return {
        "uniform_": uniform, "normal_": normal, "log_normal_": log_normal, "exponential_": exponential,
        "cauchy_": cauchy, "geometric_": geometric, "bernoulli_.float": bernoulli,
        "bernoulli_.Tensor": bernoulli_each, "random_": random, "random_.to": random_to, "random_.from": random_from,
    }  # fmt: skip


_DIGITS = {torch.float64: 1 << 53, torch.float32: 1 << 24, torch.float16: 1 << 11, torch.bfloat16: 1 << 8}
