"""PyTorch's reducer, by which DistributedDataParallel reduces gradients, with groups of this package.

It keeps gradients that it reduces together in buckets, whose memory it allocates when it's made and once more after the first step.
It asks only backends written in C++ for memory that peers can map, and only if it's told to. So this module looks
on while it allocates, and moves what that makes. Where there is no such memory, buckets stay where they are.

Its builtin hook for float16 understands only futures of backends written in C++; the one written in Python, which does the same,
takes its place.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
import torch.distributed as dist

from chorus._comm import Communicator
from chorus.errors import Error
from chorus.memory import SharedMemory

_groups: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # the groups of reducers, where they are ours
_to_remake: weakref.WeakSet[Any] = weakref.WeakSet()  # reducers whose buckets may still be made again, to be moved then


class _Buckets(SharedMemory):  # type: ignore[no-untyped-call]
    def move(self, tensor: torch.Tensor) -> torch.Tensor:
        try:
            return super().move(tensor)
        except Error:
            return tensor


def look_on() -> None:
    """Call once."""
    c10d: Any = dist
    reducer = c10d.Reducer
    make, remake, register = reducer.__init__, reducer._rebuild_buckets, c10d._register_builtin_comm_hook

    def __init__(self: Any, *args: Any, **options: Any) -> None:
        group = next((a for a in (*args, *options.values()) if isinstance(getattr(a, "comm", None), Communicator)), None)
        if group is None or group.comm.local_size < 2:
            make(self, *args, **options)
        else:
            with _Buckets():  # type: ignore[no-untyped-call]
                make(self, *args, **options)
            _to_remake.add(self)
        if group is not None:
            _groups[self] = group

    def _rebuild_buckets(self: Any) -> bool:
        if self not in _to_remake:
            return bool(remake(self))
        with _Buckets():  # type: ignore[no-untyped-call]
            done = bool(remake(self))
        if done:  # it happens once
            _to_remake.discard(self)
        return done

    def _register_builtin_comm_hook(reducer: Any, kind: Any) -> None:
        if reducer not in _groups or kind != c10d.BuiltinCommHookType.FP16_COMPRESS:
            register(reducer, kind)
            return
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        c10d._register_comm_hook(reducer, _groups[reducer], fp16_compress_hook)

    reducer.__init__, reducer._rebuild_buckets = __init__, _rebuild_buckets
    c10d._register_builtin_comm_hook = _register_builtin_comm_hook
