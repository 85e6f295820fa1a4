"""The cost of the device compared with the CPU, in the same run: ``python -m chorus_device.bench``.

Each row has a ratio or a difference of medians, and its bound. Samples are taken in turns, with one thread for each
process.
"""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from chorus_device._device import name

MIB = 1 << 20
CALLS = 8  # all-reduces for each synchronization
Call = Callable[[], object]


def turns(calls: dict[str, Call], seconds: float, done: Call) -> dict[str, float]:
    """Microseconds per call of each kind, medians of turns; done waits for the enqueued work."""

    def take(call: Call, n: int) -> float:
        begin = time.perf_counter()
        for _ in range(n):
            call()
        done()
        return (time.perf_counter() - begin) / n

    many = {}
    for kind, call in calls.items():
        take(call, 3)
        many[kind] = max(1, min(1000, int(0.005 / take(call, 3))))
    values: dict[str, list[float]] = {kind: [] for kind in calls}
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(values[next(iter(calls))]) < 5:
        for kind, call in calls.items():
            values[kind].append(take(call, many[kind]))
    return {kind: statistics.median(v) * 1e6 for kind, v in values.items()}


def row(what: str, got: str, bound: str, detail: str) -> str:
    return f"| {what} | {got} | {bound} | {detail} |"


def us(value: float) -> str:
    return f"{value:.2f} us" if value < 100 else f"{value:.0f} us" if value < 10_000 else f"{value / 1000:.1f} ms"


def step_of(where: Any) -> Call:
    from chorus.bench.models import _TOKENS, _transformer

    module = _transformer().to(where)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
    x = torch.arange(_TOKENS, device=where).reshape(1, -1)

    def step() -> None:
        loss: Any = torch.nn.functional.cross_entropy(module(x).flatten(0, 1), x.flatten())
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()

    return step


def alone(device: str, seconds: float) -> Iterator[str]:
    """The rows of one process."""
    torch.set_num_threads(1)
    done = torch.accelerator.synchronize
    for n, title, bound in ((16, "16 elements", "<= 6"), (MIB, "1 Mi elements", "<= 1.1")):
        host, own = torch.rand(n), torch.rand(n, device=device)
        t = turns({"cpu": host.sin_, "device": own.sin_}, seconds, done)
        ratio = f"{t['device'] / t['cpu']:.2f}"
        detail = f"{us(t['device'])}, {us(t['cpu'])}"
        yield row(f"`x.sin_()` by the fallback, {title}, by the CPU", ratio, bound, detail)
    t = turns({"cpu": step_of("cpu"), "device": step_of(device)}, 8 * seconds, done)
    detail = f"{us(t['device'])}, {us(t['cpu'])}"
    ratio = f"{t['device'] / t['cpu']:.2f}"
    yield row("training step, transformer of 10.5 M parameters, by the CPU", ratio, "<= 1.3", detail)
    host, own = torch.rand(16), torch.rand(16, device=device)
    t = turns({"cpu": lambda: torch.add(host, host), "device": lambda: torch.maximum(own, own)}, seconds, done)
    detail = f"{us(t['device'])}, {us(t['cpu'])}"
    ratio = f"{t['device'] / t['cpu']:.2f}"
    yield row("a registered kernel, `torch.maximum`, by `torch.add` of 16 elements on the CPU", ratio, "<= 3", detail)
    t = turns({"cpu": lambda: torch.empty(4096), "device": lambda: torch.empty(4096, device=device)}, seconds, done)
    detail = f"{us(t['device'])}, {us(t['cpu'])}"
    yield row("allocation from the cache, over `torch.empty` of the CPU", us(t["device"] - t["cpu"]), "<= 2 us", detail)
    if hasattr(torch.accelerator, "Graph"):
        step = step_of(device)
        step()  # makes the gradients
        graph = torch.accelerator.Graph()
        with torch.Stream(device), graph:
            step()
        t = turns({"eager": step, "replay": graph.replay}, 8 * seconds, done)
        detail = f"{us(t['replay'])}, {us(t['eager'])}"
        yield row("replay of a captured training step, by eager", f"{t['replay'] / t['eager']:.2f}", "< 1", detail)


def rank_main(rank: int, port: int, device: str, shared: bool, seconds: float) -> None:
    """The rows of two processes: mappable memory, either the device's, or ordinary memory that the allocator maps."""
    import chorus
    from chorus.bench.harness import medians, size_text

    torch.set_num_threads(1)
    timeout = datetime.timedelta(seconds=120)
    store = TCPStore("127.0.0.1", port, 2, rank == 0, timeout=timeout)
    chorus.register()
    dist.init_process_group("chorus", store=store, rank=rank, world_size=2, timeout=timeout)
    if shared:
        chorus.use_shared_allocator()
    where = f"{device}:{rank % torch.accelerator.device_count()}"
    torch.accelerator.set_device_index(torch.device(where).index)
    host = dist.new_group()  # in a group bound to a device, calls of the host come after the device's
    for n in (MIB // 4, MIB, 4 * MIB, 16 * MIB, 64 * MIB):
        mapped = chorus.empty(n // 4).fill_(1)
        other = torch.ones(n // 4) if shared else torch.ones(n // 4, device=where)

        # The stream is synchronized after several calls, as in measurements of GPUs; the host makes as many calls.
        def reduce(x: torch.Tensor = other) -> None:
            for _ in range(CALLS):
                dist.all_reduce(x, op=dist.ReduceOp.MAX)
            if not shared:
                torch.accelerator.synchronize()

        def reduce_mapped(x: torch.Tensor = mapped) -> None:
            for _ in range(CALLS):
                dist.all_reduce(x, op=dist.ReduceOp.MAX, group=host)

        took = medians({"mapped": reduce_mapped, "other": reduce}, seconds)
        t = {kind: value / CALLS for kind, value in took.items()}
        if rank == 0:
            what = "ordinary tensors under `use_shared_allocator`" if shared else "device tensors"
            detail = f"{us(t['other'])}, {us(t['mapped'])}" + ("" if shared else f"; {CALLS} calls, then a wait")
            speed = f"{t['mapped'] / t['other']:.2f}"
            title = f"all_reduce of {what}, 2 processes, {size_text(n)}, speed by `chorus.empty`"
            print(row(title, speed, ">= 0.95" if shared else ">= 0.9", detail), flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m chorus_device.bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("device", nargs="?", default=name(), help="the plugged one, by default")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each row; training steps take eight times that")
    parser.add_argument("--collectives", choices=["device", "shared"], help="only all-reduces, of such tensors")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f} before; each row ends with the device's time and the other one\n")
    print(row("measure", "got", "must be", "medians") + "\n|---|---:|---:|---|")
    for line in () if args.collectives else alone(args.device, args.seconds):
        print(line, flush=True)
    from chorus.bench.port import free_port

    spawn = multiprocessing.get_context("spawn")
    for shared in {"device": (False,), "shared": (True,), None: (False, True)}[args.collectives]:
        port = free_port()
        ranks = [spawn.Process(target=rank_main, args=(r, port, args.device, shared, args.seconds)) for r in range(2)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        if any(process.exitcode for process in ranks):
            raise SystemExit("a process of the measurement has failed")


if __name__ == "__main__":
    main()
