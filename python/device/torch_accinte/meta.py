"""Operators of the device without data, which fake tensors and ``torch.compile`` ask for shapes and types.

PyTorch knows this of its own operators. For those of the device a kernel for Meta says it: in ``custom.cpp``, or here.
"""

from __future__ import annotations

from typing import Any

import torch

_library: Any = None


def custom_abs(input: torch.Tensor) -> torch.Tensor:
    """A tensor like the argument."""
    return torch.empty_like(input)


def register(space: str) -> None:
    """Tell PyTorch, for the operators of a namespace."""
    global _library
    library: Any = torch.library
    _library = library.Library(space, "IMPL", "Meta")
    _library.impl("custom_abs", custom_abs)
