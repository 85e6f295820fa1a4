"""Measures the backend against Gloo, in the same processes: ``python -m chorus.bench``.

Prints a Markdown table. Every number is the median of several samples, and samples of
Chorus and Gloo take turns. A sample is the time of some calls one after the other, as the
slowest rank sees it.
"""

from __future__ import annotations

import argparse
import datetime
import math
import multiprocessing
import socket
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllreduceOptions, TCPStore

import chorus

KIB, MIB = 1 << 10, 1 << 20
SIZES = {
    "all_reduce": [4, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB],
    "broadcast": [4],
    "barrier": [0],
    "all_gather": [MIB, 4 * MIB, 16 * MIB, 64 * MIB],
    "reduce_scatter": [MIB, 4 * MIB, 16 * MIB, 64 * MIB],
    "all_to_all": [MIB, 4 * MIB, 16 * MIB, 64 * MIB],
}


def call_of(op: str, nbytes: int, size: int, shared: bool) -> Callable[[Any], object]:
    """One call of an operation on a group; ``nbytes`` is its larger side."""
    make = chorus.empty if shared else torch.empty
    n = max(nbytes // 4, 1)
    whole = make(n).fill_(1)
    part = make(max(n // size, 1)).fill_(1)
    other = make(n).fill_(1) if op == "all_to_all" else whole
    all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)  # newer, older names
    reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
    # Values don't grow: what is reduced is the maximum.
    return {
        "all_reduce": lambda g: dist.all_reduce(whole, op=dist.ReduceOp.MAX, group=g),
        "broadcast": lambda g: dist.broadcast(whole, src=0, group=g),
        "barrier": lambda g: dist.barrier(group=g),
        "all_gather": lambda g: all_gather(whole, part, group=g),
        "reduce_scatter": lambda g: reduce_scatter(part, whole, op=dist.ReduceOp.MAX, group=g),
        "all_to_all": lambda g: dist.all_to_all_single(other, whole, group=g),
    }[op]


def sample(call: Callable[[Any], object], group: Any, calls: int) -> float:
    """Seconds per call, as the slowest rank sees it."""
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        call(group)
    took = torch.tensor([(time.perf_counter() - begin) / calls])
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    return float(took)


def compare(op: str, nbytes: int, gloo: Any, seconds: float) -> dict[str, float]:
    """Medians, in seconds, of Chorus on ordinary and on shared memory, and of Gloo."""
    size = dist.get_world_size()
    kinds: dict[str, tuple[Callable[[Any], object], Any]] = {
        "ordinary": (call_of(op, nbytes, size, False), None),
        "gloo": (call_of(op, nbytes, size, False), gloo),
    }
    if nbytes > 4:
        kinds["shared"] = (call_of(op, nbytes, size, True), None)
    calls = {}
    for kind, (call, group) in kinds.items():
        sample(call, group, 2)
        calls[kind] = max(1, min(200, int(0.01 / sample(call, group, 3))))
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    going = torch.ones(1)
    end = time.monotonic() + seconds
    while going.item():
        for kind, (call, group) in kinds.items():
            times[kind].append(sample(call, group, calls[kind]))
        going.fill_(time.monotonic() < end or len(times["gloo"]) < 5)
        dist.broadcast(going, src=0)
    return {kind: statistics.median(values) for kind, values in times.items()}


def layer() -> None:
    """What Python costs: a call of a world of one, and the parts of it."""
    from chorus import _comm

    module: Any = _comm

    x = torch.ones(1)
    group: Any = dist.group.WORLD

    def cost(call: Callable[[], object]) -> float:
        samples = []
        for _ in range(15):
            begin = time.perf_counter()
            for _ in range(2000):
                call()
            samples.append((time.perf_counter() - begin) / 2000)
        return statistics.median(samples) * 1e6

    opts = AllreduceOptions()
    opts.asyncOp = False
    all_in_all = cost(lambda: dist.all_reduce(x))
    submit, done = module._submit, chorus.Work(None, [x])
    module._submit = lambda *_: 0  # up to where the library takes over
    try:
        first_byte = cost(lambda: dist.all_reduce(x))
        ours = cost(lambda: group.allreduce([x], opts))
    finally:
        module._submit = submit

    class Nothing(chorus.ProcessGroup):
        def allreduce(self, tensors: Any, opts: Any = None) -> Any:  # type: ignore[override]
            return done

    group.__class__ = Nothing
    pytorch = cost(lambda: dist.all_reduce(x))
    group.__class__ = chorus.ProcessGroup
    print("| of `torch.distributed.all_reduce`, 4 B | us |\n|---|---:|")
    print(f"| from the call to the library's first instruction | {first_byte:.1f} |")
    print(f"| of which PyTorch's own `all_reduce` | {pytorch:.1f} |")
    print(f"| of which `ProcessGroup.allreduce` and the `Work` | {ours:.1f} |")
    print(f"| all of it, in a world of one | {all_in_all:.1f} |")


def time_text(seconds: float) -> str:
    us = seconds * 1e6
    return f"{us:.1f} us" if us < 100 else f"{us:.0f} us" if us < 10_000 else f"{us / 1000:.1f} ms"


def size_text(nbytes: int) -> str:
    for unit, width in (("MiB", MIB), ("KiB", KIB)):
        if nbytes >= width:
            return f"{nbytes // width} {unit}"
    return f"{nbytes} B" if nbytes else ""


def rank_main(rank: int, size: int, port: int, arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    timeout = datetime.timedelta(seconds=120)
    store = TCPStore("127.0.0.1", port, size, rank == 0, timeout=timeout)
    chorus.register()
    dist.init_process_group("chorus", store=store, rank=rank, world_size=size, timeout=timeout)
    if arguments.layer:
        layer()
        return
    gloo = dist.new_group(backend="gloo")
    if rank == 0:
        print(f"| operation, {size} ranks | size | Gloo | Chorus | faster | `chorus.empty` | faster |")
        print("|---|---:|---:|---:|---:|---:|---:|", flush=True)
    for op in arguments.ops or SIZES:
        ratios: dict[str, list[float]] = {"ordinary": [], "shared": []}
        for nbytes in SIZES[op]:
            if nbytes > arguments.max_bytes:
                continue
            medians = compare(op, nbytes, gloo, arguments.seconds)
            cells = [time_text(medians["gloo"])]
            for kind in ("ordinary", "shared"):
                if kind not in medians:
                    cells += ["", ""]
                    continue
                ratio = medians["gloo"] / medians[kind]
                cells += [time_text(medians[kind]), f"{ratio:.1f}x"]
                if nbytes >= 256 * KIB:
                    ratios[kind].append(ratio)
            if rank == 0:
                print(f"| {op} | {size_text(nbytes)} | {' | '.join(cells)} |", flush=True)
        if rank == 0 and len(ratios["shared"]) > 1:
            means = [f"{math.exp(statistics.fmean(map(math.log, ratios[k]))):.1f}x" for k in ("ordinary", "shared")]
            print(f"| {op} | from 256 KiB, mean | | | {means[0]} | | {means[1]} |", flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m chorus.bench", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--ops", nargs="*", choices=list(SIZES), help="default: all")
    parser.add_argument("--max-bytes", type=int, default=64 * MIB)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each row")
    parser.add_argument("--layer", action="store_true", help="what the Python layer costs, instead")
    arguments = parser.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    if arguments.layer:
        rank_main(0, 1, port, arguments)
        return
    spawn = multiprocessing.get_context("spawn")
    ranks = [
        spawn.Process(target=rank_main, args=(r, arguments.ranks, port, arguments)) for r in range(arguments.ranks)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
        if rank.exitcode:
            raise SystemExit(f"a rank ended with {rank.exitcode}")


if __name__ == "__main__":
    main()
