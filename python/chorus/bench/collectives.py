"""Collectives of torch.distributed, ours and Gloo's."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist

from chorus.bench.harness import GLOO, KIB, MIB, ORDINARY, SHARED, Row, medians, size_text, tensor, time_text

SIZES = {
    "all_reduce": [4, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB],
    "broadcast": [4],
    "barrier": [0],
    "all_gather": [MIB, 4 * MIB, 16 * MIB, 64 * MIB],
    "reduce_scatter": [MIB, 4 * MIB, 16 * MIB, 64 * MIB],
    "all_to_all": [MIB, 4 * MIB, 16 * MIB, 64 * MIB],
}


def call_of(op: str, nbytes: int, kind: str, group: Any) -> Callable[[], object]:
    """One call of an operation on a group; ``nbytes`` is its larger side."""
    n = max(nbytes // 4, 1)
    whole = tensor(n, kind)
    part = tensor(max(n // dist.get_world_size(), 1), kind)
    other = tensor(n, kind) if op == "all_to_all" else whole
    all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)  # newer, older names
    reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
    # The reduction is MAX, so that values don't grow.
    return {
        "all_reduce": lambda: dist.all_reduce(whole, op=dist.ReduceOp.MAX, group=group),
        "broadcast": lambda: dist.broadcast(whole, src=0, group=group),
        "barrier": lambda: dist.barrier(group=group),
        "all_gather": lambda: all_gather(whole, part, group=group),
        "reduce_scatter": lambda: reduce_scatter(part, whole, op=dist.ReduceOp.MAX, group=group),
        "all_to_all": lambda: dist.all_to_all_single(other, whole, group=group),
    }[op]


def measure(ops: list[str], most: int, gloo: Any, seconds: float) -> Iterator[Row]:
    for op in ops:
        for nbytes in SIZES[op]:
            if nbytes > most:
                continue
            kinds = {ORDINARY: None, GLOO: gloo} | ({SHARED: None} if nbytes > 4 else {})
            calls = {kind: call_of(op, nbytes, kind, group) for kind, group in kinds.items()}
            yield Row("collectives", op, nbytes, medians(calls, seconds))


def show(rows: list[Row], size: int) -> Iterator[str]:
    yield f"| operation, {size} ranks | size | Gloo | Chorus | faster | `chorus.empty` | faster |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for i, row in enumerate(rows):
        cells = [time_text(row.us[GLOO])]
        for kind in (ORDINARY, SHARED):
            cells += [time_text(row.us[kind]), f"{row.us[GLOO] / row.us[kind]:.1f}x"] if kind in row.us else ["", ""]
        yield f"| {row.op} | {size_text(row.bytes)} | {' | '.join(cells)} |"
        large = [r for r in rows if r.op == row.op and r.bytes >= 256 * KIB]
        if len(large) > 1 and (i + 1 == len(rows) or rows[i + 1].op != row.op):
            means = [f"{mean_ratio(large, GLOO, kind):.1f}x" for kind in (ORDINARY, SHARED)]
            yield f"| {row.op} | from 256 KiB, mean | | | {means[0]} | | {means[1]} |"


def mean_ratio(rows: list[Row], theirs: str, ours: str) -> float:
    """The geometric mean of the speedups of ``ours`` over ``theirs``."""
    return math.exp(statistics.fmean(math.log(row.us[theirs] / row.us[ours]) for row in rows))
