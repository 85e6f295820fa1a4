"""What Python costs: a call of a world of one, and the parts of it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllreduceOptions

import chorus
from chorus import _lib
from chorus.bench.harness import MIB, Row
from chorus.torchcomms import ReduceOp, distwrap

PARTS = {
    "all": "all of it, in a world of one",
    "first byte": "from the call to the library's first instruction",
    "pytorch": "of which PyTorch's own `all_reduce`",
    "chorus": "of which `ProcessGroup.allreduce`",
    "direct": "instead of it: all of `TorchComm.all_reduce`",
    "library": "the library's part of either",
}


def _warm(call: Callable[[], object]) -> float:
    """Microseconds per call in a loop."""
    samples = []
    for _ in range(15):
        begin = time.perf_counter()
        for _ in range(2000):
            call()
        samples.append((time.perf_counter() - begin) / 2000)
    return statistics.median(samples) * 1e6


def _cold(call: Callable[[], object]) -> float:
    """Microseconds of a call after other work has pushed it out of the caches, as a model's layers do."""
    others = torch.ones(16 * MIB)
    samples = []
    for _ in range(41):
        others.add_(1)
        begin = time.perf_counter()
        call()
        samples.append(time.perf_counter() - begin)
    return statistics.median(samples) * 1e6


def measure() -> Row:
    """``torch.distributed.all_reduce`` of 4 B in a world of one, on the default group, and its parts."""
    x = torch.ones(1)
    group: Any = dist.group.WORLD
    comm = distwrap.get_comm()
    opts = AllreduceOptions()
    opts.asyncOp = False
    us = {}

    def note(part: str, call: Callable[[], object]) -> None:
        us[part], us[f"{part}, cold"] = _warm(call), _cold(call)

    submit, done = group.comm.submit, chorus.Work(None, [x])
    note("all", lambda: dist.all_reduce(x))
    note("direct", lambda: comm.all_reduce(x, ReduceOp.SUM))
    note("library", lambda: submit(_lib.ALL_REDUCE, _lib.SUM, 0, 0, x))
    group.comm.submit = lambda *_: 0  # up to where the library takes over
    try:
        note("first byte", lambda: dist.all_reduce(x))
        note("chorus", lambda: group.allreduce([x], opts))
    finally:
        group.comm.submit = submit

    class Nothing(chorus.ProcessGroup):
        def allreduce(self, tensors: Any, opts: Any = None) -> Any:  # type: ignore[override]
            return done

    group.__class__ = Nothing
    note("pytorch", lambda: dist.all_reduce(x))
    group.__class__ = chorus.ProcessGroup
    return Row("layer", "all_reduce", 4, us)


def show(row: Row) -> Iterator[str]:
    yield "| of `torch.distributed.all_reduce`, 4 B | in a loop | caches cold |"
    yield "|---|---:|---:|"
    for part, title in PARTS.items():
        yield f"| {title} | {row.us[part]:.1f} us | {row.us[f'{part}, cold']:.1f} us |"
