"""Samples of PyTorch's database whose numbers are at the ends of their types, and what a device may make of them."""

from __future__ import annotations

import re
import unittest
import zlib
from typing import Any

import torch

from chorus_device import sweep
from chorus_device.devtests import opinfo

SAMPLES = 3  # of each operator and type
SHARE = 0.6  # of the elements

# Operators that add parts up, or multiply them: whether a number beyond the largest one comes up on the way depends on
# their order, so that they get zeros, infinity and NaN alone.
ADDS = re.compile(
    r"mm|mv|matmul|conv|einsum|linear|bilinear|dot|inner|outer|addr|addc|tensordot|cov|corrcoef|attention|embed|loss|kron|"
    r"cdist|pdist|norm|sum|mean|prod|var|std|trapez|trapz|interpolate|upsample|pool|fft|cosine|unfold|fold|grid_sample|"
    r"index_add|index_reduce|scatter|index_put|put|lerp|logaddexp|diff|gradient|cross|multi_head|softm|histc|logcumsumexp"
)
# Operators that are left out, with the reason. docs/kernels.md has those whose results differ on purpose.
FACTORIZES = "no factorization of such numbers is defined, and LAPACK may crash"
PURPOSE = "docs/kernels.md has the difference"
LEFT_OUT = {
    r"linalg\.(?!cross|diagonal|vecdot|vander|vector_norm|norm|matrix_norm|multi_dot|tensor)": FACTORIZES,
    r"cholesky|svd|pinverse|^lu|^qr$|geqrf|ormqr|triangular_solve|logdet|lobpcg|matrix_exp|symeig": FACTORIZES,
    r"batch_norm|layer_norm|group_norm|instance_norm": "sums of infinite numbers are NaN or infinite by their order",
    r"kl_div|binary_cross_entropy_with_logits|softplus|special.zeta|igamma|xlog1py|polynomial": PURPOSE,
    r"logcumsumexp|cumprod|^var|^std|cdist|pdist": PURPOSE,
    r"^mode$": "on the CPU NaN is the mode of a line that begins with it, and of others a number",
    r"^unique$": "the CPU's order of slices with NaN is open",
    r"modified_bessel_k0": "half of the smallest number is 0, and the CPU takes its logarithm in double",
    r"conv[123]d|conv_transpose": "an infinite weight over the zeros of padding gives NaN, or is left out",
    r"rrelu": "the device draws the noise of all elements, the CPU that of negative ones alone",
    r"scaled_dot_product_attention": "the CPU's kernel takes a line of NaN as one that is masked, and its result is 0",
}
# And of gradients.
LEFT_OUT_OF_GRADIENTS = {
    r"sort$|kthvalue|topk": "of equal numbers any may be the one with the gradient",
    r"grid_sampl": "the CPU reads outside of the image at places that are not finite",
    r"\.[cs]?elu$|relu6|hardtanh|hardswish|shrink|logit$": "loops of the CPU over vectors and over elements differ",
}
# And of complex numbers.
LEFT_OUT_OF_COMPLEX = {r"pow|^acos$|^log1p$|mean|norm|sigmoid|tanh": PURPOSE}


def ends(dtype: torch.dtype, adds: bool) -> torch.Tensor:
    """The numbers: of a complex type all pairs of parts."""
    if dtype.is_complex:
        parts = ends(dtype.to_real(), adds)
        return torch.complex(*(p.flatten() for p in torch.meshgrid(parts, parts, indexing="ij")))
    if not dtype.is_floating_point:
        of = torch.iinfo(dtype)
        return torch.tensor([0, 1, of.max, of.min], dtype=dtype)
    f = torch.finfo(dtype)
    numbers = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1.5, -2.25, 0.5]
    if not adds:
        numbers += [f.max, f.min, f.tiny, -f.tiny, f.tiny * f.eps]
    return torch.tensor(numbers, dtype=torch.float64).to(dtype)


def filled(op: Any, sample: Any, dtype: torch.dtype, seed: int, adds: bool = False) -> Any:
    """A sample with numbers of :func:`ends` in its tensors of the type under test, at places that the seed decides."""
    random = torch.Generator().manual_seed(seed)

    def put(t: Any) -> Any:
        if not isinstance(t, torch.Tensor) or t.layout != torch.strided or t.numel() == 0 or t.dtype == torch.bool:
            return t
        if t.dtype != dtype or not dtype.is_floating_point and not dtype.is_complex and t is not sample.input:
            return t  # indices and sizes
        numbers = ends(t.dtype, adds or bool(ADDS.search(op.name)))
        new = numbers[torch.randint(len(numbers), t.shape, generator=random)]
        made = torch.where(torch.rand(t.shape, generator=random) < SHARE, new, t.detach())
        return made.requires_grad_(t.requires_grad)

    return sample.transform(put)


def _sparse(sample: Any) -> Any:
    """A sample whose input is a sparse tensor."""
    made = sample.transform(lambda t: t)
    made.input = made.input.to_sparse()
    return made


def dense(results: Any) -> Any:
    """Results without sparse tensors, whose values are not compared otherwise."""
    pytree: Any = torch.utils._pytree
    return pytree.tree_map_only(torch.Tensor, lambda t: t if t.layout == torch.strided else t.to_dense(), results)


def compare(op: Any, dtype: torch.dtype, device: str, backward: bool = False, sparse: bool = False) -> None:
    """Compare an operator of a device with the CPU at numbers at the ends of a type."""
    of_complex = LEFT_OUT_OF_COMPLEX if dtype.is_complex else {}
    for pattern, why in (LEFT_OUT | of_complex | (LEFT_OUT_OF_GRADIENTS if backward else {})).items():
        if re.search(pattern, op.name):
            raise unittest.SkipTest(why)
    made = list(op.sample_inputs("cpu", dtype, requires_grad=backward))
    same_numbers = opinfo.draws_as_the_cpu(device)
    ran = opinfo.Ran()
    n = 0
    for k, sample in enumerate(made[:: max(1, len(made) // SAMPLES)][:SAMPLES]):
        seed = zlib.crc32(sweep.name_of(op).encode()) + k
        sample = filled(op, sample, dtype, seed, backward)  # gradients of operands that are broadcast are sums
        try:
            if sparse:
                sample = _sparse(sample)
            own = opinfo.there(sample, "cpu")
            with torch.backends.mkldnn.flags(enabled=False):  # whose gelu of infinity is NaN
                want = [dense(r) for r in sweep.call(op, own, "cpu", backward, False)]
        except Exception:
            continue  # the CPU refuses it
        if not same_numbers and opinfo.random_on_cpu(op, sample):
            continue
        mine = opinfo.there(sample, device, op=op.name)
        with ran:
            got = [dense(r) for r in sweep.call(op, mine, device, backward, False)]
        torch.accelerator.synchronize(device)
        if not ran.native and not backward:
            continue  # the CPU's own kernels ran
        if backward:
            opinfo.agrees("gradients", got[1], want[1], True)
        else:
            opinfo.agree(op, mine, own, got[0], want[0], True)
        n += 1
    if n == 0:
        raise unittest.SkipTest("there is no sample that the CPU and the device's kernels compute")
