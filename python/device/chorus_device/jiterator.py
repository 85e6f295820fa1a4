"""Operators on single elements that a program writes in C++, compiled when they're first called: the interface of
``torch.cuda.jiterator``, for devices whose driver compiles kernels.

    scaled = torch.zoom.jiterator._create_jit_fn(
        "template <typename T> T scaled(T x, T y, T alpha) { return x + alpha * std::exp(y); }", alpha=1.0)
    z = scaled(x, y, alpha=0.5)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

from chorus_device import _device

__all__: list[str] = []

MOST = 8  # inputs, and results

_FORM = re.compile(r"\s*template\s*<.+>\s*\w+\s+(\w+)\s*\(.+\)\s*\{.+\}", re.DOTALL)


class _JittedFunction:
    """A function of one to eight tensors, which are broadcast and promoted to one type, and of its numbers by name."""

    def __init__(self, code_string: str, return_by_ref: bool, num_outputs: int, **kwargs: Any) -> None:
        form = _FORM.match(code_string)
        if form is None:
            raise Exception(f"Couldn't parse code, please check correctness:\n {code_string}")
        if not (return_by_ref or num_outputs == 1):
            raise AssertionError("Return by value only works for single output.")
        self.code_string = code_string
        self.kernel_name = form[1]
        self.return_by_ref = return_by_ref
        self.num_outputs = num_outputs
        self.kwargs_dict = kwargs

    def __call__(self, *tensors: torch.Tensor, **kwargs: Any) -> Any:
        c = _device.c()
        if not c.device_count():
            raise AssertionError(f"Jiterator is only supported on {_device.title} devices, none are available.")
        if len(tensors) > MOST:
            raise AssertionError(f"jiterator only supports up to {MOST} tensor inputs, got {len(tensors)}")
        if not tensors:
            raise AssertionError("jiterator needs at least one tensor input")
        if not 0 < self.num_outputs <= MOST:
            raise AssertionError(f"jiterator only supports up to {MOST} outputs, got {self.num_outputs}")
        for key in kwargs:
            if key not in self.kwargs_dict:
                raise KeyError(f"{key} is not declared in function definition")
        numbers = [_number(value) for value in {**self.kwargs_dict, **kwargs}.values()]
        results = c.jitted(self.code_string, self.num_outputs, list(tensors), numbers)
        return results[0] if self.num_outputs == 1 else tuple(results)


def _number(value: Any) -> Any:
    """A number, of Python's or in a tensor, as one of Python's."""
    if isinstance(value, torch.Tensor):
        value = value.item()
    return value if isinstance(value, (bool, int, float, complex)) else float(value)


def _create_jit_fn(code_string: str, **kwargs: Any) -> Callable[..., torch.Tensor]:
    """A function of tensors, made of the text of a function template for single elements that returns its result. The
    text may have several functions, of which the last is this one. kwargs are its parameters behind the tensors, in
    this order, with their defaults."""
    return _JittedFunction(code_string, return_by_ref=False, num_outputs=1, **kwargs)


def _create_multi_output_jit_fn(code_string: str, num_outputs: int, **kwargs: Any) -> Callable[..., Any]:
    """Likewise, of a template that returns nothing and has num_outputs references for results behind its other
    parameters. Calls return a tuple, or the tensor if there's one result."""
    return _JittedFunction(code_string, return_by_ref=True, num_outputs=num_outputs, **kwargs)
