"""Samples: taking them, and showing them."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist

import chorus

KIB, MIB = 1 << 10, 1 << 20
ORDINARY, SHARED, GLOO = "ordinary", "shared", "gloo"


@dataclass
class Row:
    """Medians of one operation at one size, in microseconds, by kind: "gloo", "ordinary", "shared" and others'."""

    measure: str
    op: str
    bytes: int
    us: dict[str, float]


def tensor(n: int, kind: str) -> torch.Tensor:
    """Ones, in memory of a kind."""
    return (chorus.empty if kind == SHARED else torch.empty)(n).fill_(1)


def agree(value: float, op: dist.ReduceOp.RedOpType) -> float:
    """Reduce a value over all ranks."""
    x = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(x, op=op)
    return float(x)


def sample(call: Callable[[], object], calls: int) -> float:
    """Seconds per call on the slowest rank."""
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return agree((time.perf_counter() - begin) / calls, dist.ReduceOp.MAX)


def rounds(takes: Mapping[str, Callable[[], float]], seconds: float, least: int = 5) -> dict[str, list[float]]:
    """The results of each function, called in turns for some time, and ``least`` times at least."""
    values: dict[str, list[float]] = {kind: [] for kind in takes}
    end = time.monotonic() + seconds
    going = True
    while going:
        for kind, take in takes.items():
            values[kind].append(take())
        more = time.monotonic() < end or len(next(iter(values.values()))) < least
        going = bool(agree(float(more), dist.ReduceOp.MAX))
    return values


def medians(calls: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Microseconds per call of each kind, in turns."""
    takes: dict[str, Callable[[], float]] = {}
    for kind, call in calls.items():
        sample(call, 2)
        n = max(1, min(200, int(0.01 / sample(call, 3))))
        takes[kind] = functools.partial(sample, call, n)
    return {kind: statistics.median(values) * 1e6 for kind, values in rounds(takes, seconds).items()}


def time_text(us: float) -> str:
    return f"{us:.1f} us" if us < 100 else f"{us:.0f} us" if us < 10_000 else f"{us / 1000:.1f} ms"


def size_text(nbytes: int) -> str:
    for unit, width in (("MiB", MIB), ("KiB", KIB)):
        if nbytes >= width:
            return f"{nbytes // width} {unit}"
    return f"{nbytes} B" if nbytes else ""
