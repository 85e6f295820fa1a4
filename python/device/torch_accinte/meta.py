"""Operators of the device without data, which fake tensors and ``torch.compile`` ask for shapes, strides and types.

PyTorch knows this of its own operators. For those of the device a kernel for Meta says it: in ``custom.cpp``, or here.
Of some of its own PyTorch says one thing for the CPU and another for all other devices; for the device, which runs the
CPU's kernels, it's what is true of the CPU.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._subclasses import fake_impls

_library: Any = None
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


def custom_abs(input: torch.Tensor) -> torch.Tensor:
    """A tensor like the argument."""
    return torch.empty_like(input)


def _as_on_cpu(kind: str, before: Any) -> Any:
    """What a fake of an operator is: on the device as on the CPU, elsewhere as PyTorch has it, or had it before."""

    def fake(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        ours = [t.fake_device for t in pytree.tree_leaves((args, kwargs)) if _of(kind, t)]
        if not ours:
            return NotImplemented if before is None else before(mode, func, *args, **kwargs)

        def moved(device: torch.device) -> Any:
            def move(t: Any) -> Any:
                if not isinstance(t, torch.Tensor):
                    return t
                return torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=device)

            return move

        with mode:
            cpu_args, cpu_kwargs = pytree.tree_map(moved(torch.device("cpu")), (args, kwargs))
            return pytree.tree_map(moved(ours[0]), func(*cpu_args, **cpu_kwargs))

    return fake


def _of(kind: str, value: Any) -> bool:
    return isinstance(value, torch.Tensor) and getattr(value, "fake_device", value.device).type == kind


def register(space: str) -> None:
    """Tell PyTorch, for the operators of a namespace."""
    global _library
    library: Any = torch.library
    _library = library.Library(space, "IMPL", "Meta")
    _library.impl("custom_abs", custom_abs)
    fakes = getattr(fake_impls, "op_implementations_dict", {})  # PyTorch's own, from 2.2 on
    for name in _AS_ON_CPU:
        op = getattr(torch.ops.aten, name).default
        fakes[op] = _as_on_cpu(space, fakes.get(op))
