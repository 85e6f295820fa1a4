"""The checks of groups on GPUs: data, order, captures, time and memory."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist

from gputest import check as _check
from gputest.check import Came, Check

CHECKS: list[Check] = []


def check(name: str, title: str, expected: str, **options: Any) -> Any:
    """Decorates a function: makes it the next check of this module."""
    return _check.check(name, title, expected, CHECKS, **options)


MEMORY = 2048  # MiB that a rank's driver and communicator may use beside PyTorch's memory
ELSEWHERE = 64  # MiB that may come and go on other GPUs
MICROSECONDS = 50  # of the caller's thread, for a call


@check(
    "C0",
    "memory of the start",
    f"at most {MEMORY} MiB for each rank on the rank's own GPU, and nothing on GPUs that have no rank",
)
def memory(rank: Any) -> Came:
    """A context on every GPU would take half a GiB of each, for every process."""
    elsewhere = max(rank.grown, default=None)
    said = f"{rank.took} MiB, and {elsewhere} MiB elsewhere" if elsewhere is not None else f"{rank.took} MiB"
    ranks = rank.size if rank.gpu.module.device_count() == 1 else 1  # that share the GPU
    return rank.took <= MEMORY * ranks and (elsewhere or 0) <= ELSEWHERE, said


@check("C1", "all-reduce, synchronous and asynchronous, on the default and a side stream", "the sum, four times")
def sums(rank: Any) -> Came:
    wrong = []
    for stream in (None, rank.gpu.module.Stream()):
        with rank.gpu.module.stream(stream):
            for asynchronous in (False, True):
                x = torch.full((1 << 20,), rank.rank + 1.0, device=rank.gpu.device)
                work = dist.all_reduce(x, async_op=asynchronous)
                if asynchronous:
                    work.wait()
                if not (x == rank.total).all():
                    where = "the default stream" if stream is None else "a side stream"
                    wrong.append(f"{'asynchronous' if asynchronous else 'synchronous'} on {where}: {x[0].item()}")
    return not wrong, "; ".join(wrong) or "the sum, four times"


@check("C2", "time of the caller for one all-reduce", f"at most {MICROSECONDS} us")
def microseconds(rank: Any) -> Came:
    x, times = torch.ones(1 << 10, device=rank.gpu.device), {}
    for place, stream in (("the default stream", None), ("a side stream", rank.gpu.module.Stream())):
        with rank.gpu.module.stream(stream):
            times[f"{place}, synchronous"] = _each(rank, lambda: dist.all_reduce(x))
            times[f"{place}, asynchronous"] = _each(rank, lambda: dist.all_reduce(x, async_op=True).wait())
    return max(times.values()) <= MICROSECONDS, "; ".join(f"{name}: {t:.0f} us" for name, t in times.items())


def _each(rank: Any, call: Any, rounds: int = 40) -> float:
    """Microseconds of a call, the median of several rounds. They are short, since a stream takes a limited number of
    operations before a call waits for the GPU."""
    times = []
    for _ in range(7):
        rank.gpu.module.synchronize()
        began = time.perf_counter()
        for _ in range(rounds):
            call()
        times.append((time.perf_counter() - began) / rounds * 1e6)
    rank.gpu.module.synchronize()
    return sorted(times)[3]


@check("C3", "a synchronous all-reduce in a graph", "the sum, at each of two replays")
def captured(rank: Any) -> Came:
    return _replayed(rank, lambda x: dist.all_reduce(x))


@check("C4", "an asynchronous all-reduce in a graph", "the sum, at each of two replays")
def captured_asynchronous(rank: Any) -> Came:
    return _replayed(rank, lambda x: dist.all_reduce(x, async_op=True).wait())


def _replayed(rank: Any, call: Any) -> Came:
    graph, x = rank.gpu.module.CUDAGraph(), torch.zeros(1000, device=rank.gpu.device)
    with rank.gpu.module.graph(graph):
        call(x)
    came = []
    for _ in range(2):
        x.fill_(rank.rank + 1)
        graph.replay()
        rank.gpu.module.synchronize()
        came.append("the sum" if (x == rank.total).all() else f"{x[0].item()} instead of {rank.total}")
    return came == ["the sum"] * 2, ", ".join(came)


@check("C5", "an all-reduce after captures", "the sum")
def after_captures(rank: Any) -> Came:
    _, before = captured_asynchronous(rank)
    x = torch.full((1000,), rank.rank + 1.0, device=rank.gpu.device)
    dist.all_reduce(x, async_op=True).wait()
    return bool((x == rank.total).all()), f"{x[0].item():g} of {rank.total:g}, behind a graph with {before}"


@check("C6", "a capture of another stream while an all-reduce is under way", "the capture ends, and its graph runs")
def capture_beside(rank: Any) -> Came:
    """In mode "global": any thread's query of an event breaks the capture, unless it's made in the relaxed mode."""
    module, x = rank.gpu.module, torch.ones(1000, device=rank.gpu.device)
    z, busy = torch.zeros(8, device=rank.gpu.device), module.Stream()
    module.synchronize()
    with module.stream(busy):
        rank.gpu.sleep(1)
        work = dist.all_reduce(x, async_op=True)
    graph = module.CUDAGraph()
    with module.stream(module.Stream()):
        graph.capture_begin()
        time.sleep(0.05)
        z += 1
        graph.capture_end()
    graph.replay()
    with module.stream(busy):
        work.wait()
    module.synchronize()
    return bool((z == 1).all() and (x == rank.size).all()), f"the capture ended; its graph made {z[0].item():g} of 0"


@check("C7", "a barrier while the current stream has something to do", "that is done when the barrier returns")
def barrier(rank: Any) -> Came:
    rank.gpu.sleep(0.5)
    event = rank.gpu.module.Event()
    event.record()
    dist.barrier()
    done = event.query()
    return done, "it is done" if done else "it is not done"


def _broadcast(rank: Any) -> Came:
    x = torch.full((300 << 20,), 7 if rank.rank == 0 else 0, dtype=torch.uint8, device=rank.gpu.device)
    dist.broadcast(x, 0)
    right = int((x == 7).sum())
    return right == x.numel(), f"{right} of {x.numel()} bytes"


@check("C8", "a broadcast of 300 MiB", "all bytes")
def large(rank: Any) -> Came:
    return _broadcast(rank)


@check(
    "C8e",
    "a broadcast of 300 MiB in expandable segments",
    "all bytes",
    environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
)
def expandable(rank: Any) -> Came:
    """For such memory a driver reports the whole reservation, not PyTorch's part."""
    return _broadcast(rank)


@check("C9", "a step of DistributedDataParallel", "the gradients' average")
def ddp(rank: Any) -> Came:
    layer = torch.nn.Linear(1024, 1024, device=rank.gpu.device)
    model = torch.nn.parallel.DistributedDataParallel(layer)
    model(torch.full((8, 1024), rank.rank + 1.0, device=rank.gpu.device)).sum().backward()
    average, gradient = 8 * rank.total / rank.size, layer.weight.grad
    assert gradient is not None
    return bool((gradient == average).all()), f"{gradient[0, 0].item():g}, of {average:g} by hand"


@check("C10", "a functional collective", "the sum")
def functional(rank: Any) -> Came:
    import torch.distributed._functional_collectives as functional

    x = functional.all_reduce(torch.full((8,), rank.rank + 1.0, device=rank.gpu.device), "sum", dist.group.WORLD)
    return bool((x == rank.total).all()), f"{x[0].item():g} of {rank.total:g}"


@check("C12", "tensors of the CPU and of the GPU in one group, and in one of new_group", "the sum, four times")
def one_name(rank: Any) -> Came:
    wrong = []
    for name, group in (("the world", dist.group.WORLD), ("a group of new_group", dist.new_group())):
        for device in (torch.device("cpu"), rank.gpu.device):
            x = torch.full((1000,), rank.rank + 1.0, device=device)
            dist.all_reduce(x, group=group)
            if not (x == rank.total).all():
                wrong.append(f"{device} in {name}: {x[0].item():g}")
    return not wrong, "; ".join(wrong) or "the sum, four times"


def _collectives(rank: Any, dtype: torch.dtype, wrong: list[str]) -> None:
    size, me, device = rank.size, rank.rank, rank.gpu.device

    def of(r: int, n: int = 1000) -> torch.Tensor:
        return torch.full((n,), r + 1, dtype=dtype, device=device)

    def empty(n: int = 1000) -> torch.Tensor:
        return torch.zeros(n, dtype=dtype, device=device)

    def holds(name: str, x: torch.Tensor, *parts: int) -> None:
        whole = torch.cat([torch.full((x.numel() // len(parts),), p, dtype=dtype, device=device) for p in parts])
        if not torch.equal(x, whole):
            wrong.append(f"{name} of {dtype}: {x[0].item()} and {x[-1].item()}")

    total, everybody = int(rank.total), [r + 1 for r in range(size)]
    for name, op, result in (
        ("a sum", dist.ReduceOp.SUM, total),
        ("a maximum", dist.ReduceOp.MAX, size),
        ("a minimum", dist.ReduceOp.MIN, 1),
    ):
        dist.all_reduce(x := of(me), op)
        holds(name, x, result)
    dist.broadcast(x := of(me), size - 1)
    holds("broadcast", x, size)
    dist.reduce(x := of(me), 0)
    holds("reduce", x, total if me == 0 else me + 1)
    dist.all_gather_into_tensor(x := empty(1000 * size), of(me))
    holds("all_gather_into_tensor", x, *everybody)
    dist.all_gather(xs := [empty() for _ in range(size)], of(me))
    holds("all_gather", torch.cat(xs), *everybody)
    dist.reduce_scatter_tensor(x := empty(), torch.cat([of(r) for r in range(size)]))
    holds("reduce_scatter_tensor", x, size * (me + 1))
    dist.reduce_scatter(x := empty(), [of(r) for r in range(size)])
    holds("reduce_scatter", x, size * (me + 1))
    dist.all_to_all_single(x := empty(1000 * size), torch.cat([of(me)] * size))
    holds("all_to_all_single", x, *everybody)
    dist.all_to_all(xs := [empty() for _ in range(size)], [of(me)] * size)
    holds("all_to_all", torch.cat(xs), *everybody)
    dist.scatter(x := empty(), [of(r) for r in range(size)] if me == 0 else None, 0)
    holds("scatter", x, me + 1)
    dist.gather(of(me), xs := [empty() for _ in range(size)] if me == 0 else None, 0)
    if xs:
        holds("gather", torch.cat(xs), *everybody)
    x, left = empty(), (me - 1) % size
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, of(me), (me + 1) % size), dist.P2POp(dist.irecv, x, left)]
    ):
        work.wait()
    holds("batch_isend_irecv", x, left + 1)
    with dist._coalescing_manager():
        dist.all_reduce(x := of(me))
        dist.all_reduce(y := of(me, 10))
    holds("the first of a coalesced pair", x, total)
    holds("the second of a coalesced pair", y, total)


@check("C13", "every collective of torch.distributed, on three types of elements", "the results, made by hand")
def collectives(rank: Any) -> Came:
    wrong: list[str] = []
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        _collectives(rank, dtype, wrong)
    objects: list[Any] = [None] * rank.size
    dist.all_gather_object(objects, {"rank": rank.rank})
    if objects != [{"rank": r} for r in range(rank.size)]:
        wrong.append(f"all_gather_object: {objects}")
    return not wrong, "; ".join(wrong) or "all of them"


@check("C14", "a step of a model that fully_shard shards", "the weights of the step without shards")
def sharded(rank: Any) -> Came:
    from torch.distributed.fsdp import fully_shard

    def stepped(shard: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
        model.to(rank.gpu.device)
        if shard:
            fully_shard(model[0])
            fully_shard(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.linspace(-1, 1, 16 * 64, device=rank.gpu.device).reshape(16, 64)).square().mean().backward()
        optimizer.step()
        return [p.full_tensor() if shard else p.detach() for p in model.parameters()]

    pairs = list(zip(stepped(True), stepped(False)))
    worst = max((a - b).abs().max().item() for a, b in pairs)
    return worst < 1e-5, f"the largest difference is {worst:.1g}"


@check("C15", "a communicator of torchcomms", "the sum, and what the left neighbour sent")
def torchcomms(rank: Any) -> Came:
    from chorus import torchcomms

    store = dist.PrefixStore("gputest", dist.distributed_c10d._get_default_store())
    comm = torchcomms.new_comm("nccl", rank.gpu.device, name="gputest", store=store)
    x = torch.full((1000,), rank.rank + 1.0, device=rank.gpu.device)
    y, z = x.clone(), torch.zeros_like(x)
    comm.all_reduce(x, torchcomms.ReduceOp.SUM, async_op=False)
    batch = comm.batch_op_create()
    batch.send(y, (rank.rank + 1) % rank.size)
    batch.recv(z, (rank.rank - 1) % rank.size)
    batch.issue(async_op=True).wait()
    rank.gpu.module.synchronize()
    right = bool((x == rank.total).all() and (z == (rank.rank - 1) % rank.size + 1).all())
    came = f"{x[0].item():g} and {z[0].item():g}"
    comm.finalize()
    return right, came


@check("C16", "an all-reduce in memory of ncclMemAlloc, in a pool of PyTorch's", "the sum")
def pools(rank: Any) -> Came:
    group = dist.group.WORLD._get_backend(rank.gpu.device)  # type: ignore[union-attr]
    pool = rank.gpu.module.MemPool(group.mem_allocator)
    with rank.gpu.module.use_mem_pool(pool):
        x = torch.full((1 << 20,), rank.rank + 1.0, device=rank.gpu.device)
    dist.all_reduce(x)
    right, came = bool((x == rank.total).all()), f"{x[0].item():g} of {rank.total:g}"
    rank.kept.append((pool, x))
    return right, came


@check("C17", "messages between the first two ranks", "the numbers that were sent", ranks=2)
def messages(rank: Any) -> Came:
    if rank.size < 2 or rank.rank > 1:
        return True, "there is no message for this rank"
    numbers = torch.arange(1000.0, device=rank.gpu.device)
    x = torch.zeros_like(numbers)
    if rank.rank == 0:
        dist.send(numbers, 1)
        dist.recv(x, 1)
    else:
        dist.recv(x, 0)
        x *= 2
        dist.send(x, 0)
    right = int((x == numbers * 2).sum())
    return right == x.numel(), f"{right} of {x.numel()} numbers, doubled on the way"


def _keep_a_graph(rank: Any) -> None:
    x = torch.zeros(1000, device=rank.gpu.device)
    graph = rank.gpu.module.CUDAGraph()
    with rank.gpu.module.graph(graph):
        dist.all_reduce(x)
    rank.kept.append((graph, x))


@check("C11", "destroy_process_group while a graph of it lives", "it returns", ranks=2, seconds=30, ends=True)
def finalize(rank: Any) -> Came:
    """NCCL keeps a communicator as long as a graph contains one of its operations."""
    _keep_a_graph(rank)
    began = time.monotonic()
    dist.destroy_process_group()
    return True, f"it returned after {time.monotonic() - began:.1f} s"


@check("C11e", "the end of a program whose group and graph live", "the process ends", ranks=2, seconds=30, ends=True)
def end(rank: Any) -> Came:
    _keep_a_graph(rank)
    return True, "the graph is there"


@check("C18", "a rank that leaves out an all-reduce", "the others' error names it", ranks=2, seconds=30, ends=True)
def absent(rank: Any) -> Came:
    import datetime

    import chorus

    if rank.size < 2:
        return True, "there is no other rank"
    options = {rank.gpu.device.type: {"abort_on_error": False}}
    group = dist.new_group(timeout=datetime.timedelta(seconds=3), pg_options=options)
    x = torch.ones(1000, device=rank.gpu.device)
    dist.all_reduce(x, group=group)
    rank.gpu.module.synchronize()
    if rank.rank == rank.size - 1:
        time.sleep(8)
        return True, "it was absent"
    began, failure = time.monotonic(), None
    dist.all_reduce(x, group=group)
    while failure is None and time.monotonic() - began < 15:
        time.sleep(0.01)
        failure = chorus.failure(group)
    came = f"after {time.monotonic() - began:.1f} s: {type(failure).__name__}: {failure}"
    return getattr(failure, "missing_ranks", None) == (rank.size - 1,), came
