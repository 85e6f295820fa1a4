"""All-reduce of sparse COO tensors: every rank gathers all ranks' elements and adds them up."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch._C._distributed_c10d import AllgatherOptions

from chorus import _lib
from chorus._reductions import reduction_of


class Group(Protocol):
    """The part of a process group that it needs."""

    @property
    def comm(self) -> Any: ...

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Any: ...

    def allgather(self, output: list[list[torch.Tensor]], input: list[torch.Tensor], opts: Any) -> Any: ...


def allreduce(group: Group, tensor: torch.Tensor, opts: Any) -> torch.Tensor:
    """Replace a sparse tensor by the sum, or average, of all ranks'. Shapes: the same on every rank.

    It's done when it returns, whatever the options say. Raises :class:`chorus.InvalidArgumentError`, on every rank, if
    shapes differ.
    """
    reduction, _, _ = reduction_of(opts, tensor.dtype, "all_reduce", group.comm.invalid)
    if tensor.layout is not torch.sparse_coo or reduction not in (_lib.SUM, _lib.AVG):
        raise group.comm.invalid(
            "all_reduce",
            f"a tensor of layout {tensor.layout} can't be reduced with this operation; "
            "sparse COO tensors can be summed and averaged",
        )
    mine = tensor.detach().coalesce()
    indices, values = mine.indices(), mine.values()
    n = group.comm.size
    options = AllgatherOptions()
    if opts is not None:
        options.timeout = opts.timeout
    shape = [tensor.sparse_dim(), *tensor.shape]
    told = torch.empty(n, 1 + len(shape), dtype=torch.int64)
    works: list[Any] = [group.all_gather_single(told, torch.tensor([[values.size(0), *shape]]), options)]
    works.pop().wait()
    for rank, (_, *theirs) in enumerate(told.tolist()):
        if theirs != shape:  # the indices of one could lie outside of another
            raise group.comm.invalid(
                "all_reduce",
                f"the sparse tensor's shape is {list(tensor.shape)} in {shape[0]} sparse dimensions here, "
                f"and {theirs[1:]} in {theirs[0]} on rank {rank}",
            )
    sizes: list[int] = told[:, 0].tolist()
    every_index = [torch.empty(s, indices.size(0), dtype=torch.int64) for s in sizes]
    every_value = [torch.empty(s, *values.shape[1:], dtype=values.dtype) for s in sizes]
    works = [
        group.allgather([every_index], [indices.t().contiguous()], options),
        group.allgather([every_value], [values.contiguous()], options),
    ]
    for work in works:
        work.wait()
    total = torch.sparse_coo_tensor(
        torch.cat(every_index).t(), torch.cat(every_value), tensor.shape, check_invariants=False
    ).coalesce()
    if reduction == _lib.AVG:
        total = total / n
    return tensor.copy_(total)
