"""Counts of operators and kernels."""

from __future__ import annotations

from typing import Any, NamedTuple

from chorus_device import _device


class Calls(NamedTuple):
    """How often an operator was called since the program's start."""

    native: int  # computed by kernels of the device
    fallback: int  # by PyTorch's CPU kernel


def operators() -> dict[str, Calls]:
    """The operators that were called on the device, ``"aten::add.Tensor"`` for example. Operators that PyTorch composes
    of others, and those with a function of the extension's own, such as views, aren't among them."""
    return {name: Calls(*counts) for name, counts in sorted(_device.c().operator_calls().items())}


def native_operators() -> list[str]:
    """The operators for which the device has kernels. None before its first use, and if its driver compiles none."""
    return sorted(_device.c().native_operators())


def kernels(device: Any = None) -> dict[str, int]:
    """Counts of a device's kernels: ``compiled``, ``from_disk`` (read from files), ``refused`` by the compiler, and
    ``launched``; ``multiplied`` are products of matrices by a library, ``transformed`` Fourier transforms by one, and
    ``solved`` steps of linear algebra.

    Raises:
        NotImplementedError: the device's driver compiles no kernels.
    """
    return dict(_device.c().kernel_counts(_device.index(device)))
