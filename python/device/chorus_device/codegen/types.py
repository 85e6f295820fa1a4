"""Types of a kernel: of elements in memory, and of the values that it computes with."""

from __future__ import annotations

import math
from typing import Any

import torch

# The types of elements in memory, and of values: the floating-point types of 8 and 16 bits are computed in float32.
_STORED = {
    torch.bool: "u8",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "u16",
    torch.bfloat16: "u16",
    torch.float32: "f32",
    torch.float64: "f64",
}
_SMALL = {torch.float16: "f16", torch.bfloat16: "bf16"}
for _name in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz"):
    _small = getattr(torch, f"float8_{_name}")
    _STORED[_small], _SMALL[_small] = "u8", f"f8{_name}"

# The types of elements that several threads add to at the same time, by the names of their additions.
_ADDED = {t: _SMALL.get(t, _STORED[t]) for t in (
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64
)}  # fmt: skip


def supported(dtype: torch.dtype) -> bool:
    """Whether kernels compute with elements of a type. Of uint64 they only write numbers that a program has."""
    return dtype in _STORED and dtype is not torch.uint64


def is_added(dtype: torch.dtype) -> bool:
    """Whether several threads may add to an element at the same time."""
    return dtype in _ADDED


def added(dtype: torch.dtype) -> str:
    """The name of an addition to an element that other threads may add to."""
    if not is_added(dtype):
        raise NotImplementedError(f"atomic addition of {dtype}")
    return f"atomic_add_{_ADDED[dtype]}"


def stored(dtype: torch.dtype) -> str:
    """The type of C of an element in memory."""
    if dtype not in _STORED:
        raise NotImplementedError(f"elements of {dtype}")
    return _STORED[dtype]


def computed(dtype: torch.dtype) -> torch.dtype:
    """The type that elements of a type are computed in."""
    return torch.float32 if dtype in _SMALL else dtype


def value(dtype: torch.dtype) -> str:
    """The type of C of a value."""
    return "bool" if dtype is torch.bool else _STORED[computed(dtype)]


def loaded(dtype: torch.dtype, element: str) -> str:
    """An element as a value."""
    if dtype is torch.bool:
        return f"({element} != 0)"
    if dtype in _SMALL:
        return f"from_{_SMALL[dtype]}({element})"
    return element


def converted(to: torch.dtype, source: torch.dtype | None, x: Any) -> str:
    """A value of one type as a value of another."""
    kind = computed(to)
    if source is not None and computed(source) is kind:
        return str(x)
    if to is torch.bool:
        return f"({x} != 0)"
    # as PyTorch's CPU, of which the lower bits count when a number is out of range
    if source is not None and source.is_floating_point and not kind.is_floating_point and kind is not torch.int64:
        return f"({value(to)})({'i32' if kind.is_signed else 'i64'})({x})"
    return f"({value(to)})({x})"


def element(dtype: torch.dtype, source: torch.dtype | None, x: Any) -> str:
    """A value as an element in memory."""
    if dtype in _SMALL:
        return f"to_{_SMALL[dtype]}({converted(torch.float32, source, x)})"
    if dtype is torch.bool:
        return f"(u8)({x} != 0)"
    return converted(dtype, source, x)


def rounded(dtype: torch.dtype, x: Any) -> str:
    """A value as one that elements of a type have."""
    if dtype in _SMALL:
        return loaded(dtype, element(dtype, torch.float32, x))
    return str(x)


def constant(number: bool | float | int, dtype: torch.dtype) -> str:
    """A number as a value."""
    kind = computed(dtype)
    if kind is torch.bool:
        return "1" if number else "0"
    if kind.is_floating_point:
        number = float(number)
        if math.isnan(number):
            return f"({value(dtype)})NAN"
        if math.isinf(number):
            return f"({value(dtype)}){'-' if number < 0 else ''}INFINITY"
        text = f"({value(dtype)}){number!r}"
        return text if kind is torch.float64 else text + "f"
    number = int(number)
    if number == -(2**63):
        return "(-9223372036854775807 - 1)"
    return f"({value(dtype)}){number}{'u' if kind is torch.uint64 else ''}"
