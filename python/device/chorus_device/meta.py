"""Kernels for fake tensors and ``torch.compile``, which give the shapes, strides and types of operators' results.

PyTorch has them for its own operators. For some of these it distinguishes the CPU from all other devices. Devices of
this package run the CPU's kernels, so they get the CPU's results.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._subclasses import fake_impls

_AS_ON_CPU = (
    "convolution",
    "_convolution",
    "convolution_backward",
    "pixel_shuffle",
    "_embedding_bag",
    "_embedding_bag_forward_only",
    "native_layer_norm",
    "nonzero_static",
)


def _as_on_cpu(kind: str, before: Any) -> Any:
    """A fake of an operator: on the device like the CPU's, on other devices ``before``, or PyTorch's default."""

    def fake(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        places = (_place(t) for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor))
        device = next((d for d in places if d.type == kind), None)
        if device is None:
            return NotImplemented if before is None else before(mode, func, *args, **kwargs)
        with mode:
            cpu_args, cpu_kwargs = _moved((args, kwargs), torch.device("cpu"))
            return _moved(func(*cpu_args, **cpu_kwargs), device)

    return fake


def _attention_backward(kind: str, before: Any) -> Any:
    """A fake of the gradients of attention: on the device they have the strides of the CPU's, for inputs of any
    strides."""

    def fake(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        query, key, value, bias = args[1:5]
        device = _place(query)
        if device.type != kind:
            return NotImplemented if before is None else before(mode, func, *args, **kwargs)
        with mode:
            gradients = [
                torch.empty_permuted(t.size(), (0, 2, 1, 3), dtype=t.dtype, device=device) for t in (query, key, value)
            ]
            return (*gradients, None if bias is None else torch.empty_like(bias))

    return fake


def _place(t: torch.Tensor) -> torch.device:
    """The device of a tensor; a fake tensor has another attribute for it during dispatch."""
    place: torch.device = getattr(t, "fake_device", t.device)
    return place


def _moved(values: Any, device: torch.device) -> Any:
    """The values with their tensors on a device, with the same strides."""

    def alike(t: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=device)

    return pytree.tree_map_only(torch.Tensor, alike, values)


def register(kind: str) -> None:
    """Register the kernels with PyTorch, for a type of device."""
    fakes = getattr(fake_impls, "op_implementations_dict", {})  # PyTorch's own, from 2.2 on
    for name in _AS_ON_CPU:
        op = getattr(torch.ops.aten, name).default
        fakes[op] = _as_on_cpu(kind, fakes.get(op))
    attention = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward.default
    fakes[attention] = _attention_backward(kind, fakes.get(attention))
