"""The operators of ``torch.nn.SyncBatchNorm``, which PyTorch has for CUDA alone, so that the device must provide them.

They compute the statistics of a part of a batch for each channel, combine them into those of the whole batch, and
normalize with them. They are sums and products of other operators, in float32 at least. The formulas: Chan, Golub,
LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979; Ioffe, Szegedy, "Batch
Normalization", 2015.
"""

from __future__ import annotations

from typing import Any

import torch

Tensor = torch.Tensor
_library: Any = None


def _wide(x: Tensor) -> Tensor:
    """The tensor in the type of the computation."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _others(x: Tensor) -> list[int]:
    """The dimensions of a channel's elements."""
    return [d for d in range(x.dim()) if d != 1]


def _along(channels: Tensor, x: Tensor) -> Tensor:
    """A value for each channel, in a shape that broadcasts to x."""
    return channels.view([1, -1] + [1] * (x.dim() - 2))


def stats(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Mean and 1 / standard deviation."""
    var, mean = torch.var_mean(_wide(input), _others(input), correction=0)
    return mean, (var + eps).rsqrt()


def gather(
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """Mean and 1 / standard deviation of the whole batch, from those of its parts and their numbers of elements. The
    running statistics are updated."""
    n = counts.to(mean.dtype).view(-1, 1)
    total = n.sum()
    whole = (mean * n).sum(0) / total
    squares = ((invstd.reciprocal().square() - eps + (mean - whole).square()) * n).sum(0)
    if running_mean is not None:
        running_mean.lerp_(whole.to(running_mean.dtype), momentum)
    if running_var is not None:
        running_var.lerp_((squares / (total - 1)).to(running_var.dtype), momentum)
    return whole, (squares / total + eps).rsqrt()


def elements(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    """The normalized batch."""
    scale = invstd if weight is None else invstd * weight
    out = (_wide(input) - _along(mean, input)) * _along(scale, input)
    if bias is not None:
        out += _along(bias, input)
    return out.to(input.dtype)


def reduce(
    grad: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """This part's sums, which the input's gradient needs of the whole batch, and the gradients of weight and bias."""
    g = _wide(grad)
    sums = g.sum(_others(input))
    products = (g * (_wide(input) - _along(mean, input))).sum(_others(input))
    kind = mean.dtype if weight is None else weight.dtype
    return (
        sums if input_g else None,
        products if input_g else None,
        (products * invstd).to(kind) if weight_g else None,
        sums.to(kind) if bias_g else None,
    )


def gradient(
    grad: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sums: Tensor,
    products: Tensor,
    count: Tensor,
) -> Tensor:
    """The input's gradient."""
    total = count.sum()
    scale = invstd if weight is None else invstd * weight
    centered = (_wide(input) - _along(mean, input)) * _along(invstd.square() * products / total, input)
    out = (_wide(grad) - _along(sums / total, input) - centered) * _along(scale, input)
    return out.to(input.dtype)


def register() -> None:
    """Register the device's kernels with PyTorch."""
    global _library
    library: Any = torch.library
    _library = library.Library("aten", "IMPL", "PrivateUse1")
    for name, kernel in {
        "batch_norm_stats": stats,
        "batch_norm_gather_stats_with_counts": gather,
        "batch_norm_elemt": elements,
        "batch_norm_backward_reduce": reduce,
        "batch_norm_backward_elemt": gradient,
    }.items():
        _library.impl(name, kernel)
