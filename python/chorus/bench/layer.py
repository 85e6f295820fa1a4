"""The cost of Python: a call in a world of one, and its parts."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllreduceOptions

import chorus
from chorus import _lib
from chorus.bench.harness import MIB, Row, rounds
from chorus.torchcomms import ReduceOp, distwrap

PARTS = {
    "all": "all of it, in a world of one",
    "first byte": "from the call to the library's first instruction",
    "library": "the library's part",
    "direct": "instead of it: all of `TorchComm.all_reduce`",
    "other": "without the shortcut, to the library's first instruction",
    "pytorch": "of which PyTorch's own `all_reduce`",
    "chorus": "of which `ProcessGroup.allreduce`",
}


def _warm(call: Callable[[], object]) -> float:
    """Seconds per call in a loop."""
    begin = time.perf_counter()
    for _ in range(2000):
        call()
    return (time.perf_counter() - begin) / 2000


def _cold(call: Callable[[], object], before: Callable[[], object], others: torch.Tensor) -> float:
    """Seconds of a call with cold caches: other work before it has pushed Python's code and the library's out of them,
    as a model's layers do."""
    before()
    others.add_(1)
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def measure() -> Row:
    """``torch.distributed.all_reduce`` of 4 B in a world of one, on the default group, and its parts, in turns."""
    x, others = torch.ones(1), torch.ones(16 * MIB)
    group: Any = dist.group.WORLD
    comm = distwrap.get_comm()
    opts = AllreduceOptions()
    opts.asyncOp = False
    submit, done = group.comm.submit, chorus.Work(None, [x])

    class Other(chorus.ProcessGroup):
        pass

    class Nothing(chorus.ProcessGroup):
        def allreduce(self, tensors: Any, opts: Any = None) -> Any:  # type: ignore[override]
            return done

    def nothing(*_: Any) -> int:  # instead of the library
        return 0

    whole = functools.partial(dist.all_reduce, x)
    library = functools.partial(submit, _lib.ALL_REDUCE, _lib.SUM, 0, 0, x)
    parts: dict[str, tuple[Callable[[], object], type, Callable[..., int]]] = {
        "all": (whole, chorus.ProcessGroup, submit),
        "first byte": (whole, chorus.ProcessGroup, nothing),
        "library": (library, chorus.ProcessGroup, submit),
        "direct": (lambda: comm.all_reduce(x, ReduceOp.SUM), chorus.ProcessGroup, submit),
        "other": (whole, Other, nothing),
        "pytorch": (whole, Nothing, submit),
        "chorus": (lambda: group.allreduce([x], opts), chorus.ProcessGroup, nothing),
    }

    def take(part: str, sample: Callable[[Callable[[], object]], float]) -> float:
        call, group.__class__, group.comm.submit = parts[part]
        try:
            return sample(call)
        finally:
            group.__class__, group.comm.submit = chorus.ProcessGroup, submit

    cold = functools.partial(_cold, before=library, others=others)
    takes = {}
    for part in parts:
        takes[f"{part}, cold"] = functools.partial(take, part, cold)
        takes[part] = functools.partial(take, part, _warm)
    times = rounds(takes, 0, least=41)
    return Row("layer", "all_reduce", 4, {name: statistics.median(values) * 1e6 for name, values in times.items()})


def show(row: Row) -> Iterator[str]:
    yield "| of `torch.distributed.all_reduce`, 4 B | in a loop | caches cold |"
    yield "|---|---:|---:|"
    for part, title in PARTS.items():
        yield f"| {title} | {row.us[part]:.1f} us | {row.us[f'{part}, cold']:.1f} us |"
