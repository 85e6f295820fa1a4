"""Communication hooks of DistributedDataParallel: all-reduces at the end of the backward pass, and buckets in order."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from chorus.process_group import ours

# By group: the buckets that wait for the last one, each with a key of its parameters.
_waiting: weakref.WeakKeyDictionary[Any, list[tuple[set[int], torch.Tensor, torch.futures.Future[torch.Tensor]]]] = (
    weakref.WeakKeyDictionary()
)


def ddp_hook(state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A communication hook that averages gradients when all of them have been computed::

        ddp = DistributedDataParallel(module)
        ddp.register_comm_hook(None, chorus.ddp_hook)

    By itself DistributedDataParallel overlaps the all-reduce of a bucket of gradients with the computation of others.
    If the ranks of a host keep all of its cores busy, there is nothing to overlap: reductions take cores from the
    computation. The ranks are never at the same place, so they wait for each other at every bucket. With this hook they
    wait once.

    ``state`` is the group, of this backend; None is the world. Gradients are averages, as without a hook. Their last
    bits may differ: without a hook gradients are divided before they are added up. The backward pass raises a failure.
    """
    group = ours(state)
    parameters = {id(parameter) for parameter in bucket.parameters()}
    # Buckets of a pass that failed are not part of this one.
    waiting = [w for w in _waiting.get(group, ()) if parameters.isdisjoint(w[0])]
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    waiting.append((parameters, bucket.buffer(), future))
    if not bucket.is_last():
        _waiting[group] = waiting
        return future
    _waiting[group] = []
    for _, gradients, reduced in waiting:
        dist.all_reduce(gradients, dist.ReduceOp.AVG, group)
        reduced.set_result(gradients)
    return future


_Hook = Callable[[Any, GradBucket], torch.futures.Future[torch.Tensor]]


def in_order(hook: _Hook) -> _Hook:
    """A communication hook that runs another one for one bucket after the other, each when the one before is done::

        ddp.register_comm_hook(state, chorus.in_order(powerSGD_hook))

    The callbacks of some hooks issue operations, as PowerSGD's do. On CPUs they run when the operation before is done,
    while the backward pass issues those of the next buckets. Then the order of operations differs between ranks, with
    every backend. With this hook it's the same. The backward pass waits for each bucket, and raises its error.
    """
    last: torch.futures.Future[torch.Tensor] | None = None

    def ordered(state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        nonlocal last
        before, last = last, None
        if before is not None:
            before.wait()
        last = hook(state, bucket)
        return last

    return ordered
