"""The buckets of DistributedDataParallel, in memory that peers on this host can map.

PyTorch's reducer keeps the gradients that it has reduced together in buckets, whose memory it allocates when it's made and once more
after the first step. It asks only backends written in C++ for such memory, and only if it's told to. So this module looks
on while the reducer allocates, and moves what that makes. Where there is no such memory, buckets stay where they are.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
import torch.distributed as dist

from chorus._comm import Communicator
from chorus.errors import Error
from chorus.memory import SharedMemory

_reducers: weakref.WeakSet[Any] = weakref.WeakSet()  # those that make their buckets again, to be moved, too


class _Buckets(SharedMemory):  # type: ignore[no-untyped-call]
    def move(self, tensor: torch.Tensor) -> torch.Tensor:
        try:
            return super().move(tensor)
        except Error:
            return tensor


def _wanted(argument: object) -> bool:
    """Whether it's a group some of whose ranks share a host."""
    comm = getattr(argument, "comm", None)
    return isinstance(comm, Communicator) and comm.local_size > 1


def look_on() -> None:
    """Call once."""
    c10d: Any = dist
    theirs = c10d.Reducer
    make, remake = theirs.__init__, theirs._rebuild_buckets

    def __init__(self: Any, *args: Any, **options: Any) -> None:
        if not any(map(_wanted, (*args, *options.values()))):
            make(self, *args, **options)
            return
        with _Buckets():  # type: ignore[no-untyped-call]
            make(self, *args, **options)
        _reducers.add(self)

    def _rebuild_buckets(self: Any) -> bool:
        if self not in _reducers:
            return bool(remake(self))
        with _Buckets():  # type: ignore[no-untyped-call]
            done = bool(remake(self))
        if done:  # it happens once
            _reducers.discard(self)
        return done

    theirs.__init__, theirs._rebuild_buckets = __init__, _rebuild_buckets

