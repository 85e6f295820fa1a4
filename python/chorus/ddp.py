"""When DistributedDataParallel averages its gradients."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class _AtEnd:
    """The buckets of a backward pass that wait for the last."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.waiting: list[tuple[torch.Tensor, torch.futures.Future[torch.Tensor]]] = []

    def add(self, index: int, last: bool, buffer: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        if index == 0:  # what a pass that failed has left
            self.waiting.clear()
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        self.waiting.append((buffer, future))
        if last:
            waiting, self.waiting = self.waiting, []
            for gradients, _ in waiting:
                dist.all_reduce(gradients, dist.ReduceOp.AVG, self.group)
            for gradients, done in waiting:
                done.set_result(gradients)
        return future


def _hook(state, bucket):  # type: ignore[no-untyped-def]  # PyTorch refuses annotations that are strings
    return state.add(bucket.index(), bucket.is_last(), bucket.buffer())


def reduce_at_end(ddp: DistributedDataParallel) -> DistributedDataParallel:
    """Have a DistributedDataParallel average its gradients when its backward pass has computed them all, and not meanwhile.

    For ranks that have no core to spare: there, what is reduced while the pass goes on only takes turns with it, and the
    ranks wait for each other once for every bucket. It's a communication hook, so a module has either this or another, and
    it must be registered before the first pass. Its group must be of a backend that has ``ReduceOp.AVG``, as this one.

    Returns what it was given.
    """
    ddp.register_comm_hook(_AtEnd(ddp.process_group), _hook)
    return ddp
