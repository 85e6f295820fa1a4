"""torch.distributed.ReduceOp in the library's numbers."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from chorus import _lib
from chorus._tensors import Reduction, Refusal, premultiplied

_KINDS: Any = dist.ReduceOp.RedOpType
# By the hash of a ReduceOp, which is its kind: every other attribute costs more to read.
NUMBERS = {
    int(getattr(_KINDS, name)): number
    for name, number in {
        "SUM": _lib.SUM,
        "AVG": _lib.AVG,
        "PRODUCT": _lib.PRODUCT,
        "MIN": _lib.MIN,
        "MAX": _lib.MAX,
        "BAND": _lib.BAND,
        "BOR": _lib.BOR,
        "BXOR": _lib.BXOR,
    }.items()
}
_PREMUL_SUM = int(_KINDS.PREMUL_SUM)


def reduction_of(opts: Any, dtype: torch.dtype, name: str, refuse: Refusal) -> Reduction:
    """The reduction that options of an operation, ``name``, ask for, and PREMUL_SUM's factor as number or tensor.

    Raises :class:`chorus.InvalidArgumentError` for a factor tensor that isn't of the data's ``dtype``.
    """
    if opts is None:
        return _lib.SUM, 0.0, None
    op = opts.reduceOp
    number = NUMBERS.get(hash(op))
    if number is not None:
        return number, 0.0, None
    if hash(op) != _PREMUL_SUM:
        raise refuse(name, f"there is no reduction {op}")
    # Only its pickled state contains the factor.
    return premultiplied(op.__getstate__()[1], dtype, name, refuse)
