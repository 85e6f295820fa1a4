"""Operators on values, as text.

Most are functions of the table of the device's own kernels, by the type that they compute in: ``f32_gelu(x)``. A
compiled program then computes what its operators compute one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch._inductor.codegen.common import CSEVariable, OpOverrides
from torch._inductor.utils import IndentedBuffer, get_bounds_index_expr
from torch._inductor.virtualized import V, ops

from chorus_device.codegen import types

UNSIGNED = (torch.uint16, torch.uint32)  # types that the table has no functions of: those of int64 compute the same


def kind_of(*values: Any) -> torch.dtype:
    """The type that an operator on values computes in: that of all of them."""
    kind: torch.dtype | None = None
    for v in values:
        if isinstance(v, CSEVariable):
            dtype = v.dtype
            assert dtype is not None, v
        elif isinstance(v, float):
            dtype = torch.float32
        else:
            continue
        dtype = types.computed(dtype)
        kind = dtype if kind is None else torch.promote_types(kind, dtype)
    return kind or torch.int64


def of_kind(kind: torch.dtype, v: Any) -> str:
    """A value, or a number, of a type."""
    if isinstance(v, CSEVariable):
        return types.converted(kind, v.dtype, v)
    if isinstance(v, (bool, int, float)):
        return types.constant(v, kind)
    return types.converted(kind, None, v)


def call(function: str, *values: Any, floating: bool = False) -> str:
    """A call of a function of the table on values of their common type. Booleans and, with floating, integers are
    converted first."""
    kind = kind_of(*values)
    if floating and not kind.is_floating_point:
        kind = torch.float32
    if kind is torch.bool:
        kind = torch.uint8
    if kind in UNSIGNED:
        kind = torch.int64
    return f"{types.value(kind)}_{function}({', '.join(of_kind(kind, v) for v in values)})"


def infix(mark: str, a: Any, b: Any) -> str:
    kind = kind_of(a, b)
    return f"({of_kind(kind, a)} {mark} {of_kind(kind, b)})"


def _operator(function: str, floating: bool = False) -> Callable[..., str]:
    def operator(*values: Any) -> str:
        return call(function, *values, floating=floating)

    return operator


class Operators(OpOverrides):
    """Operators that have a text. Those that haven't raise NotImplementedError."""

    @staticmethod
    def constant(number: bool | float | int, dtype: torch.dtype) -> str:
        return types.constant(number, dtype)

    @staticmethod
    def to_dtype(
        x: CSEVariable, dtype: torch.dtype, src_dtype: torch.dtype | None = None, use_compute_types: bool = True
    ) -> str:
        text = types.converted(dtype, x.dtype, x)
        return types.rounded(dtype, text)

    @staticmethod
    def to_dtype_bitcast(x: CSEVariable, dtype: torch.dtype, src_dtype: torch.dtype) -> str:
        if dtype is src_dtype:
            return str(x)
        bits = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}[dtype.itemsize]
        element = types.element(src_dtype, x.dtype, x)
        if types.stored(src_dtype) in ("f32", "f64"):
            element = f"{types.stored(src_dtype)}_bits({element})"
        if types.stored(dtype) in ("f32", "f64"):
            return f"bits_{types.stored(dtype)}(({bits}){element})"
        return types.loaded(dtype, f"({types.stored(dtype)})({bits}){element}")

    @staticmethod
    def index_expr(expr: Any, dtype: torch.dtype) -> Any:
        text = V.kernel.index_to_str(V.kernel.prepare_indexing(expr))
        source = V.kernel.get_index_dtype_as_torch_dtype()
        var = V.kernel.cse.generate(V.kernel.compute, text, bounds=get_bounds_index_expr(expr), dtype=source)
        return ops.to_dtype(var, dtype)

    value_expr = index_expr

    @staticmethod
    def masked(mask: CSEVariable, body: Callable[[], Any], other: Any) -> Any:
        scoped = IndentedBuffer()
        with V.kernel.in_mask(), V.kernel.swap_buffers(scoped), scoped.indent():
            V.kernel.cse.iter_buffer_ids = itertools.count()  # so that equal bodies are equal texts
            V.kernel.cse.name_prefix += "_masked"
            result = body()
        kernel = V.kernel
        key = f"{mask}:{scoped.getvalue()}:{other}"
        var = kernel.cse.try_get(key)
        if not var:
            dtype = result.dtype
            var = kernel.cse.newvar(dtype=dtype)
            kernel.cse.put(key, var)
            kernel.compute.writeline(f"{types.value(dtype)} {var} = {of_kind(dtype, other)};")
            kernel.compute.writeline(f"if ({mask}) {{")
            with kernel.compute.indent():
                kernel.compute.splice(scoped)
                kernel.compute.writeline(f"{var} = {result};")
            kernel.compute.writeline("}")
        return var

    @staticmethod
    def where(a: Any, b: Any, c: Any) -> str:
        kind = kind_of(b, c)
        return f"({a} ? {of_kind(kind, b)} : {of_kind(kind, c)})"

    @staticmethod
    def add(a: Any, b: Any) -> str:
        return infix("+", a, b)

    @staticmethod
    def sub(a: Any, b: Any) -> str:
        return infix("-", a, b)

    @staticmethod
    def mul(a: Any, b: Any) -> str:
        return infix("*", a, b)

    @staticmethod
    def neg(x: Any) -> str:
        return f"(-{x})"

    @staticmethod
    def square(x: Any) -> str:
        return f"({x} * {x})"

    @staticmethod
    def truediv(a: Any, b: Any) -> str:
        kind = kind_of(a, b)
        kind = kind if kind.is_floating_point else torch.float32
        return f"({of_kind(kind, a)} / {of_kind(kind, b)})"

    @staticmethod
    def reciprocal(x: Any) -> str:
        return f"(1 / {of_kind(kind_of(x, 1.0), x)})"

    @staticmethod
    def fma(a: Any, b: Any, c: Any) -> str:
        kind = kind_of(a, b, c)
        return f"fma({of_kind(kind, a)}, {of_kind(kind, b)}, {of_kind(kind, c)})"

    @staticmethod
    def mod(a: Any, b: Any) -> str:  # C's
        return call("fmod", a, b)

    @staticmethod
    def logical_not(x: Any) -> str:
        return f"(!({x}))"

    @staticmethod
    def bitwise_not(x: Any) -> str:
        return f"(!{x})" if x.dtype is torch.bool else f"(~{x})"

    @staticmethod
    def identity(x: Any) -> Any:
        return x

    @staticmethod
    def isnan(x: CSEVariable) -> str:
        return call("isnan", x) if kind_of(x).is_floating_point else "0"

    @staticmethod
    def isinf(x: CSEVariable) -> str:
        return call("isinf", x) if kind_of(x).is_floating_point else "0"

    @staticmethod
    def relu(x: Any) -> str:
        return call("relu", x)

    @staticmethod
    def frexp(x: CSEVariable) -> tuple[Any, Any]:
        def part(function: str, dtype: torch.dtype) -> Any:
            text = types.converted(dtype, kind_of(x), call(function, x))
            return V.kernel.cse.generate(V.kernel.compute, text, dtype=dtype)

        return part("frexp", kind_of(x)), part("frexp_1", torch.int32)

    @staticmethod
    def trunc_to_int(x: Any, dtype: torch.dtype) -> str:
        return types.converted(dtype, x.dtype, f"trunc({x})")

    @staticmethod
    def floor_to_int(x: Any, dtype: torch.dtype) -> str:
        return types.converted(dtype, x.dtype, f"floor({x})")

    @staticmethod
    def ceil_to_int(x: Any, dtype: torch.dtype) -> str:
        return types.converted(dtype, x.dtype, f"ceil({x})")

    @staticmethod
    def round_to_int(x: Any, dtype: torch.dtype) -> str:
        return types.converted(dtype, x.dtype, f"rint({x})")

    # Random numbers: those of Philox 4x32-10 for a seed and an offset.
    @staticmethod
    def _philox(seed: Any, offset: Any, word: int = 0) -> str:
        return f"philox((u64)({seed}), (u64)({offset}), 0, 0).v[{word}]"

    @staticmethod
    def rand(seed: Any, offset: Any) -> str:
        return f"((f32)({Operators._philox(seed, offset)} >> 8) * 0x1p-24f)"  # [0, 1)

    @staticmethod
    def randn(seed: Any, offset: Any) -> str:
        u = f"((f32){Operators._philox(seed, offset)} * 0x1p-32f + 0x1p-33f)"
        v = f"((f32){Operators._philox(seed, offset, 1)} * 0x1p-32f + 0x1p-33f)"
        return f"(sqrt(-2 * f32_log({u})) * f32_cos(6.283185307179586f * {v}))"

    @staticmethod
    def randint64(seed: Any, offset: Any, low: Any, high: Any) -> str:
        bits = f"((u64){Operators._philox(seed, offset)} << 32 | {Operators._philox(seed, offset, 1)})"
        return f"((i64)({bits} % (u64)({high} - {low})) + {low})"


# Functions of the table, by inductor's names.
_FUNCTIONS = {
    **{
        name: name
        for name in (
            "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh "
            "atanh "
            "sigmoid erf erfc erfinv lgamma digamma i0 i0e i1 i1e ndtr atan2 hypot copysign nextafter pow "
            "bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0 "
            "scaled_modified_bessel_k1 spherical_bessel_j0 erfcx log_ndtr ndtri igamma igammac zeta airy_ai "
            "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w "
            "shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v "
            "shifted_chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l "
            "legendre_polynomial_p"
        ).split()
    },
    "modified_bessel_i0": "i0",
    "modified_bessel_i1": "i1",
    "gammainc": "igamma",
    "gammaincc": "igammac",
}
_ALSO_WHOLE = {
    **{n: n for n in "abs sign signbit floor ceil trunc round minimum maximum fmod remainder".split()},
    "floordiv": "div_floor",
    "truncdiv": "div_trunc",
    "bitwise_left_shift": "bitwise_left_shift",
    "bitwise_right_shift": "bitwise_right_shift",
}
_MARKS = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "and_": "&",
    "or_": "|",
    "xor": "^",
}
_TRUTHS = {"logical_and": "{} && {}", "logical_or": "{} || {}", "logical_xor": "({} != 0) != ({} != 0)"}


def _infix(mark: str) -> Callable[[Any, Any], str]:
    return lambda a, b: infix(mark, a, b)


def _truth(form: str) -> Callable[[Any, Any], str]:
    return lambda a, b: f"({form.format(a, b)})"


for _name, _function in _FUNCTIONS.items():
    setattr(Operators, _name, staticmethod(_operator(_function, floating=_name != "pow")))
for _name, _function in _ALSO_WHOLE.items():
    setattr(Operators, _name, staticmethod(_operator(_function)))
for _name, _mark in _MARKS.items():
    setattr(Operators, _name, staticmethod(_infix(_mark)))
for _name, _form in _TRUTHS.items():
    setattr(Operators, _name, staticmethod(_truth(_form)))
for _name, _other in {
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
    "div_rn": "truediv",
    "int_truediv": "truediv",
}.items():
    setattr(Operators, _name, staticmethod(getattr(Operators, _other)))
