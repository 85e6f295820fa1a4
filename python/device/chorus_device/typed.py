"""``torch.<name>.FloatTensor`` and the like, as ``torch.cuda`` has them. They make tensors of one type on the current
device, ``isinstance`` knows them, and ``Tensor.type`` takes them."""

from __future__ import annotations

import functools
from typing import Any

import torch

from chorus_device._device import name

NAMES = {
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "ShortTensor": torch.int16,
}


class _Kind(type):
    """The type of such names."""

    dtype: torch.dtype

    def __instancecheck__(cls, of: Any) -> bool:
        return isinstance(of, torch.Tensor) and of.device.type == name() and of.dtype == cls.dtype

    def __call__(cls, *args: Any) -> torch.Tensor:
        """An uninitialized tensor of the given sizes, or a tensor of a sequence's elements."""
        if len(args) == 1 and not isinstance(args[0], (int, torch.Size)):
            return torch.as_tensor(args[0]).to(name(), cls.dtype, copy=True)
        sizes = args[0] if args and isinstance(args[0], torch.Size) else args
        return torch.empty(sizes or (0,), dtype=cls.dtype, device=name())


@functools.cache
def named(what: str) -> Any:
    """The tensor type of this name."""
    kind = _Kind(f"torch.{name()}.{what}", (), {"dtype": NAMES[what], "__module__": f"torch.{name()}"})
    kind.__qualname__ = what  # Tensor.type looks at the name
    return kind
