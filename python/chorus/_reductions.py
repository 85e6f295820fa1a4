"""torch.distributed.ReduceOp in the library's numbers."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from chorus import _lib
from chorus.errors import InvalidArgumentError

_SUM: Any = dist.ReduceOp.SUM

# By ReduceOp.RedOpType's value: its members are slow to hash.
_REDUCTIONS = {
    int(getattr(dist.ReduceOp.RedOpType, name)): number
    for name, number in {
        "SUM": _lib.SUM,
        "AVG": _lib.AVG,
        "PRODUCT": _lib.PRODUCT,
        "MIN": _lib.MIN,
        "MAX": _lib.MAX,
        "BAND": _lib.BAND,
        "BOR": _lib.BOR,
        "BXOR": _lib.BXOR,
        "PREMUL_SUM": _lib.PREMUL_SUM,
    }.items()
}


def reduction_of(opts: Any) -> tuple[int, float, torch.Tensor | None]:
    """The reduction that options of an operation name, and PREMUL_SUM's factor as number or tensor."""
    if opts is None:
        return _lib.SUM, 0.0, None
    op = opts.reduceOp
    if op == _SUM:
        return _lib.SUM, 0.0, None
    number = _REDUCTIONS.get(int(op.op))
    if number is None:
        raise InvalidArgumentError(f"chorus: there is no reduction {op}")
    if number != _lib.PREMUL_SUM:
        return number, 0.0, None
    # Only its pickled state tells the factor.
    factor = op.__getstate__()[1]
    if isinstance(factor, torch.Tensor):
        return number, 0.0, factor.detach().cpu().contiguous()
    return number, float(factor), None
