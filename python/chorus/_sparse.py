"""All-reduce of sparse COO tensors: everybody gets everybody's elements and adds them up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from chorus import _lib
from chorus._reductions import reduction_of
from chorus.errors import InvalidArgumentError

if TYPE_CHECKING:
    from chorus.process_group import ProcessGroup


def allreduce(group: ProcessGroup, tensor: torch.Tensor, opts: Any) -> torch.Tensor:
    """Replace a sparse tensor by the sum, or average, of all ranks'. Shapes: the same on every rank.

    It's done when it returns, whatever the options say.
    """
    reduction, _, _ = reduction_of(opts, tensor.dtype)
    if tensor.layout is not torch.sparse_coo or reduction not in (_lib.SUM, _lib.AVG):
        raise InvalidArgumentError(
            f"chorus: all_reduce: a tensor of layout {tensor.layout} can't be reduced with this operation; "
            "sparse COO tensors can be summed and averaged",
            op="all_reduce",
        )
    mine = tensor.detach().coalesce()
    indices, values = mine.indices(), mine.values()
    n = group.comm.size
    counts = torch.empty(n, dtype=torch.int64)
    works: list[Any] = [group.all_gather_single(counts, torch.tensor([values.size(0)]))]
    works.pop().wait()
    sizes: list[int] = counts.tolist()
    every_index = [torch.empty(s, indices.size(0), dtype=torch.int64) for s in sizes]
    every_value = [torch.empty(s, *values.shape[1:], dtype=values.dtype) for s in sizes]
    works = [group.allgather([every_index], [indices.t().contiguous()]), group.allgather([every_value], [values.contiguous()])]
    for work in works:
        work.wait()
    total = torch.sparse_coo_tensor(
        torch.cat(every_index).t(), torch.cat(every_value), tensor.shape, check_invariants=False
    ).coalesce()
    if reduction == _lib.AVG:
        total = total / n
    return tensor.copy_(total)
