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
from chorus.bench.harness import Row


def _cost(call: Callable[[], object]) -> float:
    samples = []
    for _ in range(15):
        begin = time.perf_counter()
        for _ in range(2000):
            call()
        samples.append((time.perf_counter() - begin) / 2000)
    return statistics.median(samples) * 1e6


def measure() -> Row:
    """``torch.distributed.all_reduce`` of 4 B in a world of one, on the default group, and its parts."""
    x = torch.ones(1)
    group: Any = dist.group.WORLD
    opts = AllreduceOptions()
    opts.asyncOp = False
    us = {"all": _cost(lambda: dist.all_reduce(x))}
    submit, done = group.comm.submit, chorus.Work(None, [x])
    group.comm.submit = lambda *_: 0  # up to where the library takes over
    try:
        us["first byte"] = _cost(lambda: dist.all_reduce(x))
        us["chorus"] = _cost(lambda: group.allreduce([x], opts))
    finally:
        group.comm.submit = submit

    class Nothing(chorus.ProcessGroup):
        def allreduce(self, tensors: Any, opts: Any = None) -> Any:  # type: ignore[override]
            return done

    group.__class__ = Nothing
    us["pytorch"] = _cost(lambda: dist.all_reduce(x))
    group.__class__ = chorus.ProcessGroup
    return Row("layer", "all_reduce", 4, us)


def show(row: Row) -> Iterator[str]:
    yield "| of `torch.distributed.all_reduce`, 4 B | us |"
    yield "|---|---:|"
    yield f"| from the call to the library's first instruction | {row.us['first byte']:.1f} |"
    yield f"| of which PyTorch's own `all_reduce` | {row.us['pytorch']:.1f} |"
    yield f"| of which `ProcessGroup.allreduce` | {row.us['chorus']:.1f} |"
    yield f"| all of it, in a world of one | {row.us['all']:.1f} |"
