"""Operators that a device may define as its own, for examples and tests: ``torch.ops.<space>.custom_abs`` and others.

They are written in C++ (``csrc/aten/examples.cpp``), but for the kernel of ``custom_abs`` for Meta, which is here.
"""

from __future__ import annotations

from typing import Any

import torch

from chorus_device._device import c

_library: Any = None  # which undoes its registrations when it's freed


def custom_abs(input: torch.Tensor) -> torch.Tensor:
    """A tensor like the argument, for fake tensors and ``torch.compile``."""
    return torch.empty_like(input)


def register(space: str) -> None:
    """Define the operators in ``torch.ops.<space>``, with kernels for the plugged device, the CPU and Meta."""
    global _library
    c().register_examples(space)
    library: Any = torch.library
    _library = library.Library(space, "IMPL", "Meta")
    _library.impl("custom_abs", custom_abs)
