"""Groups and communicators over a stand-in for NCCL on emulated devices: programs of several processes, with a
libchorus.so that contains the stand-in."""

import json
import os
import signal

import pytest
import torch.distributed as dist
from jobs import chorus
from pages import assert_table
from standins import FOREIGN, NEWEST, ROOT, ran, run

EXAMPLES = ROOT / "python" / "examples" / "torchcomms"

# Prepended to an example, so that it makes tensors of the device.
PLACE = """
import os, torch
_place = torch.device("accinte", int(os.environ["LOCAL_RANK"]) % torch.accinte.device_count())
torch.accinte.set_device(_place)
torch.set_default_device(_place)
"""

WORDS = {
    "quick_start": (2, ["rank 1 of 2 on accinte:1: the sum is 3"]),
    "asynchronous": (2, ["rank 0: computed 65536", "[0.5, 1.5, 2.5, 3.5]"]),
    "file_store": (3, ["rank 2: all right, and rank 1 of 2 in half_0", "rank 1: all right, and rank 0 of 1 in half_1"]),
    "send_recv": (3, ["rank 0: rank 2 is on the left", "rank 1: rank 0 is on the left"]),
    "custom_options": (2, []),  # the barrier that is missed fails in its stream, not in the call
    "windows": (2, []),
}


@pytest.mark.parametrize("name", sorted(WORDS))
def test_examples(standin, tmp_path, name):
    """The examples run unchanged except for the backend, the device, and a deadline that a busy machine meets."""
    ranks, words = WORDS[name]
    text = (EXAMPLES / f"{name}.py").read_text()
    assert '"gloo"' in text and 'torch.device("cpu")' in text
    text = text.replace('"gloo"', '"nccl"').replace('torch.device("cpu")', 'torch.device("accinte")')
    text = text.replace("milliseconds=300", "seconds=2")
    out = run(standin, tmp_path, ranks, PLACE + text, str(tmp_path / "store"))
    for word in words:
        assert word in out, out


COMMUNICATORS = """
import pytest, chorus
import torch.distributed as dist
from breaking import until_left
from chorus import torchcomms
from chorus.torchcomms import ReduceOp, objcol

def main():
    with pytest.warns(UserWarning, match="unknown hint 'fabric'"):
        comm = torchcomms.new_comm("BACKEND", _place, name="main", hints={"fabric": "auto", "cga_cluster_size": "2",
            "ncclx::minCTAs": "1", **({"op.maxCTAs": "4"} if LEVEL >= "2.31" else {}),
            "max_event_pool_size": "7", "is_high_priority_stream": "true"})
    me, n = comm.get_rank(), comm.get_size()
    assert comm.get_device() == _place and comm.get_backend() == "BACKEND" and comm.is_abort_supported()
    x = torch.full((1000,), me + 1.0)
    if LEVEL >= "2.31":
        comm.all_reduce(x, ReduceOp.PREMUL_SUM(0.5), hints={"maxCTAs": "4", "algSelection": "ring"})
    else:
        with pytest.raises(chorus.UnsupportedError, match="which came with NCCL 2.31"):
            comm.all_reduce(x, ReduceOp.PREMUL_SUM(0.5), hints={"maxCTAs": "4"})
        comm.all_reduce(x, ReduceOp.PREMUL_SUM(0.5))
    with pytest.warns(UserWarning, match="unknown hint 'algorithm'"):
        work = comm.all_reduce(x, ReduceOp.AVG, True, hints={"algorithm": "ring"})
    work.wait()
    assert (x == n * (n + 1) / 4).all() and work.wait_blocking() is None and work.is_completed()
    objcol.all_gather_object(comm, found := [None] * n, {"rank": me})
    assert found == [{"rank": r} for r in range(n)]
    names = [me]
    objcol.broadcast_object_list(comm, names, 1)
    assert names == [1]
    objcol.scatter_object_list(comm, 0, out := [None], [[r] for r in range(n)] if me == 0 else None)
    objcol.gather_object(comm, me, 0, every := [None] * n)
    assert out == [[me]] and (me or every == list(range(n)))
    with pytest.raises(chorus.InvalidArgumentError, match="the tensor is on cpu, the communicator is for accinte:"):
        comm.all_reduce(torch.ones(3, device="cpu"), ReduceOp.SUM)
    with pytest.raises(chorus.UnsupportedError, match="has no reduction bxor on int32"):
        comm.all_reduce(torch.ones(3, dtype=torch.int32), ReduceOp.BXOR)
    part = comm.split(list(range(n))[::-1], "part")
    part.all_reduce(y := torch.ones(3), ReduceOp.SUM)
    assert part.get_rank() == n - 1 - me and (y == n).all()
    part.finalize()
    if LEVEL >= "2.19":
        allocator = comm.get_mem_allocator()
        z = allocator.zeros(1 << 20)
        with allocator:
            z += torch.ones(1 << 20)
        comm.all_reduce(z, ReduceOp.SUM)
        assert (z == n).all() and z.device == _place
        pool = torch.accinte.memory_snapshot(allocator._pool.id)
        assert any(s["address"] <= z.data_ptr() < s["address"] + s["total_size"] for s in pool)
        y = torch.ones(3)
        comm.tensor_register(y)
        comm.tensor_deregister(y)
    else:
        with pytest.raises(chorus.UnsupportedError, match="has no allocation: it lacks ncclMemAlloc"):
            comm.get_mem_allocator()
        y = torch.ones(3)
        with pytest.raises(chorus.UnsupportedError, match="has no registration: it lacks ncclCommRegister"):
            comm.tensor_register(y)
    comm.all_reduce(y.zero_().add_(1), ReduceOp.SUM)
    if LEVEL >= "2.31":
        comm.suspend()
        with pytest.raises(chorus.InvalidArgumentError, match="the communicator is suspended"):
            comm.all_reduce(y, ReduceOp.SUM)
        comm.resume()
    else:
        with pytest.raises(chorus.UnsupportedError, match="has no suspend: it lacks ncclCommSuspend"):
            comm.suspend()
    objcol.all_gather_object(comm, handles := [None] * n, comm.get_init_handle())
    comm.reconfigure(7, handles)
    comm.regroup()
    comm.all_reduce(y, ReduceOp.SUM)
    assert (y == n * n).all()
    until_left(0, me, n, dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
    if me == 0:
        comm.abort()
    with pytest.raises(chorus.AbortedError):
        while True:
            comm.barrier(True).wait_blocking()
    comm.regroup()  # the same ranks, of a communicator that's broken
    comm.barrier(True).wait_blocking()
    comm.finalize()

main()
print("fine")
"""


@pytest.mark.parametrize(("backend", "level"), [("nccl", NEWEST), ("ncclx", "2.19"), ("rccl", "2.18")])
def test_communicators(standin, tmp_path, backend, level):
    program = PLACE + COMMUNICATORS.replace("BACKEND", backend).replace("LEVEL", repr(level))
    out = run(standin, tmp_path, 2, program, level=level)
    assert out.count("fine") == 2


GROUPS = """
import sys
import chorus, pytest
import torch.distributed as dist

def main():
    dist.init_process_group("chorus", pg_options={"backend": "nccl"}, device_id=_place)
    me, n = dist.get_rank(), dist.get_world_size()
    x = torch.full((1000,), me + 1.0)
    dist.all_reduce(x)
    dist.all_reduce(x, op=dist.ReduceOp.AVG, async_op=True).wait()
    assert (x == n * (n + 1) / 2).all()
    dist.barrier()
    dist.all_gather_object(found := [None] * n, {"rank": me})
    assert found == [{"rank": r} for r in range(n)]
    with pytest.raises(RuntimeError, match="device type cpu"):
        dist.all_reduce(torch.ones(3, device="cpu"))
    with pytest.raises(chorus.InvalidArgumentError, match="backend is one of nccl, ncclx, rccl, mpi, not 'ucc'"):
        dist.new_group(range(n), pg_options={"backend": "ucc"})
    group = dist.new_group(range(n))  # takes after the world
    dist.all_reduce(y := torch.ones(2), group=group)
    got = torch.empty_like(x)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x + me, (me + 1) % n),
                                        dist.P2POp(dist.irecv, got, (me - 1) % n)]):
        work.wait()
    assert (y == n).all() and (got == x + (me - 1) % n).all()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    model(torch.full((2, 4), me + 1.0)).sum().backward()
    assert (model.module.weight.grad == n + 1).all()
    with pytest.raises(chorus.UnsupportedError, match="NCCL has neither tags nor any source"):
        dist.recv(y)
    assert chorus.failure() is None
    del model
    dist.destroy_process_group()

main()
print("fine")
"""


def test_groups(standin, tmp_path):
    """torch.distributed, DistributedDataParallel included."""
    assert run(standin, tmp_path, 2, PLACE + GROUPS).count("fine") == 2


COALESCED = """
import sys
import chorus, pytest
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

def calls(f):
    "How many groups of the library f begins, how many end, and how many collectives it calls."
    def count():
        with open(sys.argv[1]) as file:
            mine = [line.split()[0] for line in file if line.split()[1] == str(os.getpid())]
        return [mine.count("ncclGroupStart"), mine.count("ncclGroupEnd"),
                sum(mine.count("nccl" + name) for name in ("AllReduce", "AllGather", "ReduceScatter"))]
    before = count()
    f()
    torch.accinte.synchronize()
    return [b - a for a, b in zip(before, count())]

def main():
    dist.init_process_group("chorus", pg_options={"backend": "nccl"}, device_id=_place)
    me, n = dist.get_rank(), dist.get_world_size()
    group = dist.group.WORLD

    def fresh(k=3):
        return [torch.full((10 * n,), i + me + 1.0) for i in range(k)]

    def sums(k=3):
        return [n * i + n * (n + 1) / 2 for i in range(k)]

    def right(tensors, values):
        return all((t == v).all() for t, v in zip(tensors, values, strict=True))

    for asynchronous in (False, True):
        x = fresh()
        def coalesced():
            work = group._get_backend(_place).allreduce_coalesced(x)
            work.wait()
        assert calls(coalesced) == [1, 1, 3] and right(x, sums())
        x = fresh()
        def managed():
            with dist._coalescing_manager(group, _place, async_ops=asynchronous) as work:
                for t in x:
                    dist.all_reduce(t)
            if asynchronous:
                work.wait()
        assert calls(managed) == [1, 1, 3] and right(x, sums())
        x, parts, wholes = fresh(), [torch.empty(10) for _ in range(3)], [torch.empty(10 * n * n) for _ in range(3)]
        def fsdp():
            with dist._coalescing_manager(group, _place, async_ops=asynchronous) as work:
                for t, part in zip(x, parts):
                    dist.reduce_scatter_tensor(part, t)
            if asynchronous:
                work.wait()
            with dist._coalescing_manager(group, _place, async_ops=asynchronous) as work:
                for t, whole in zip(x, wholes):
                    dist.all_gather_into_tensor(whole, t)
            if asynchronous:
                work.wait()
        assert calls(fsdp) == [2, 2, 6] and right(parts, sums())
        assert all((w.view(n, -1)[r] == i + r + 1).all() for i, w in enumerate(wholes) for r in range(n))
    x, out = fresh(), []
    def functions():
        out.append(functional.all_reduce_coalesced(x, "sum", group))
        out.append(functional.all_gather_into_tensor_coalesced(x, group))
        out.append(functional.reduce_scatter_tensor_coalesced(x, "sum", [0] * 3, group))
        for tensors in out:
            for t in tensors:
                functional.wait_tensor(t)
    assert calls(functions) == [3, 3, 9] and right(out[0], sums()) and right(out[2], sums())
    # One that is refused keeps all from beginning, on all ranks.
    x = [*fresh(2), torch.ones(3, dtype=torch.int16)]
    with pytest.raises(chorus.UnsupportedError, match="has no reduction sum on int16"):
        with dist._coalescing_manager(group, _place):
            for t in x:
                dist.all_reduce(t)
    assert right(x[:2], [me + 1, me + 2])
    dist.destroy_process_group()

main()
print("fine")
"""


def test_coalesced(standin, tmp_path):
    """Coalesced collectives are one group of the library each."""
    calls = str(tmp_path / "calls")
    assert run(standin, tmp_path, 2, PLACE + COALESCED, calls, NCCLSIM_CALLS=calls).count("fine") == 2


GRAPHS = """
from chorus import torchcomms

def main():
    comm = torchcomms.new_comm("nccl", _place, name="graphs")
    n = comm.get_size()
    x, y = torch.ones(1000), torch.zeros(1000)
    comm.all_reduce(x, torchcomms.ReduceOp.SUM)  # once before the capture
    graph = torch.accinte.Graph()
    with torch.accinte.graph(graph):
        comm.all_reduce(x, torchcomms.ReduceOp.SUM)
        work = comm.all_reduce(x, torchcomms.ReduceOp.SUM, True)
        work.wait()
        y += x
    x.fill_(1)
    for run in range(3):
        graph.replay()
    torch.accinte.synchronize()
    assert (x == n**6).all() and (y == n**2 + n**4 + n**6).all()
    del graph
    comm.finalize()

main()
print("fine")
"""


def test_graphs(standin, tmp_path):
    """Operations that a graph captures and runs."""
    assert run(standin, tmp_path, 2, PLACE + GRAPHS).count("fine") == 2


# The methods of a communicator besides operations: the result of each call in a world of one.
FUNCTIONS = """
import json, sys, warnings
from datetime import timedelta
from chorus import torchcomms
from chorus.torchcomms import ReduceOp

backend = sys.argv[1]
place = _place if backend == "nccl" else torch.device("cpu")
torch.set_default_device(place)
SECOND = timedelta(seconds=1)

def new(**options):
    return torchcomms.new_comm(backend, place, **options)

def tried(call):
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            call()
        except Exception as error:
            return "refused: " + str(error).partition(": ")[2].partition(": ")[2]
    return "a warning" if warned else "yes"

def ended(comm, call):
    try:
        call(comm)
    finally:
        comm.finalize()

def window(call):
    def run(comm):
        try:
            x = comm.get_mem_allocator().zeros(1024)
        except RuntimeError:  # an old library has neither windows nor memory for them
            x = torch.zeros(1024)
        w = comm.new_window(x)
        try:
            call(w)
        finally:
            w.tensor_deregister()
    return lambda: ended(new(), run)

def of(call, **options):
    return lambda: ended(new(**options), call)

x = torch.ones(4)
rows = {
    "new_comm: timeout": of(lambda c: c.barrier(), timeout=SECOND),
    "new_comm: abort_process_on_timeout_or_error": of(lambda c: c.barrier(), abort_process_on_timeout_or_error=False),
    "new_comm: is_high_priority_stream": of(lambda c: c.barrier(), is_high_priority_stream=True),
    "new_comm: enable_reconfigure": lambda: new(enable_reconfigure=True).finalize(),
    "hint fabric": of(lambda c: c.barrier(), hints={"fabric": "auto"}),
    "hint cgaClusterSize": of(lambda c: c.barrier(), hints={"cgaClusterSize": "2"}),
    "hint blocking": of(lambda c: c.barrier(), hints={"blocking": "true"}),
    "hint max_event_pool_size": of(lambda c: c.barrier(), hints={"max_event_pool_size": "9"}),
    "hint of an operation: algorithm": of(lambda c: c.all_reduce(x, ReduceOp.SUM, hints={"algorithm": "ring"})),
    "hint of an operation: maxCTAs": of(lambda c: c.all_reduce(x, ReduceOp.SUM, hints={"maxCTAs": "4"})),
    "timeout of an operation": of(lambda c: c.all_reduce(x, ReduceOp.SUM, timeout=SECOND)),
    "async_op": of(lambda c: c.all_reduce(x, ReduceOp.SUM, True).wait()),
    "a CPU tensor": of(lambda c: c.all_reduce(torch.ones(4, device="cpu"), ReduceOp.SUM)),
    "a tensor that isn't contiguous": of(lambda c: c.all_reduce(torch.ones(4, 4).t(), ReduceOp.SUM)),
    "TorchWork.wait_blocking": of(lambda c: c.barrier(True).wait_blocking()),
    "all_gather_p_init, _exec, _free": of(lambda c: c.all_gather_p_free(
        (h := c.all_gather_p_init(torch.zeros(4)), c.all_gather_p_exec(h, x))[0])),
    "get_init_handle, reconfigure": of(lambda c: c.reconfigure(3, [c.get_init_handle()])),
    "regroup": of(lambda c: c.regroup()),
    "suspend, resume": of(lambda c: (c.suspend(), c.resume())),
    "abort": of(lambda c: c.abort()),
    "set_timeout": of(lambda c: c.set_timeout(SECOND)),
    "set_hints": of(lambda c: c.set_hints({"algorithm": "ring"})),
    "get_mem_allocator": of(lambda c: c.get_mem_allocator().zeros(4)),
    "get_backend_version": of(lambda c: c.get_backend_version()),
    "register_pre_hook, register_post_hook, register_abort_hook": of(lambda c: [c.register_pre_hook(print),
        c.register_post_hook(print), c.register_abort_hook(print)][0].remove()),
    "window: map_remote_tensor": window(lambda w: w.map_remote_tensor(0)),
    "window: get_attr, get_tensor, get_size": window(lambda w: (w.get_attr(0), w.get_tensor(), w.get_size())),
    "window: slot of a signal": window(lambda w: (w.signal(0, slot=3), w.wait_signal(0, slot=3))),
    "objcol": of(lambda c: torchcomms.objcol.all_gather_object(c, [None], 1)),
}
import chorus.torchcomms.objcol
print(json.dumps({name: tried(call) for name, call in rows.items()}))
"""


def test_functions(standin, tmp_path):
    """The table of these methods in docs/torchcomms.md. CHORUS_TEST_WRITE=1 writes it."""
    said = []
    for backend in ("chorus", "nccl"):
        out = run(standin, tmp_path, 1, PLACE + FUNCTIONS, backend)
        said.append(json.loads(out.splitlines()[-1]))
    table = "| | `native`, `chorus`, `gloo` on the CPU | `nccl`, of NCCL 2.32 |\n|---|---|---|\n"
    for name, text in said[0].items():
        table += f"| {name} | {text} | {said[1][name]} |\n"
    assert_table("torchcomms.md", "functions", table, "test_nccl.py -k functions")


FOREIGN_GROUP = (
    FOREIGN
    + """
dist.init_process_group("chorus", pg_options={"backend": "nccl"}, device_id=device)
group = dist.distributed_c10d._get_default_group()._get_backend(device)
assert group.comm.info().device.decode() == f"cuda:{device.index}", group.comm.info().device
total = size * (size + 1) / 2

def check_sums(n):
    for asynchronous in (False, True):
        x = torch.full((n,), rank + 1.0, device=device) * 1
        work = dist.all_reduce(x, async_op=asynchronous)
        if asynchronous:
            work.wait()
        y = x * 2  # on the current stream, behind it
        assert (y == 2 * total).all(), (n, asynchronous, y)

check_sums(1000)  # on the default stream, which the library isn't to use
side = torch.accinte.Stream(device)
with torch.accinte.stream(side):
    check_sums(100_000)
    everything = [torch.empty(7, device=device) for _ in range(size)]
    dist.all_gather(everything, torch.full((7,), float(rank), device=device))
    assert all((x == r).all() for r, x in enumerate(everything))
for _ in range(20):  # tensors are dropped at once, and other allocations want their memory
    dist.all_reduce(torch.ones(50_000, device=device), async_op=True)
    torch.zeros(50_000, device=device)
check_sums(50_000)
dist.barrier()
dist.destroy_process_group()
print("rank", rank, "is done")
"""
)

FOREIGN_COMM = (
    FOREIGN
    + """
import torchcomms
comm = torchcomms.new_comm("nccl", device, name="main")
x = torch.full((1000,), rank + 1.0, device=device)
comm.all_reduce(x, torchcomms.ReduceOp.SUM, False)
work = comm.all_reduce(x, torchcomms.ReduceOp.SUM, True)
work.wait()
assert (x == size * size * (size + 1) / 2).all(), x
comm.finalize()
print("rank", rank, "is done")
"""
)


@pytest.mark.parametrize("program", [FOREIGN_GROUP, FOREIGN_COMM], ids=["group", "torchcomms"])
def test_streams_of_others(standin, tmp_path, program):
    out = run(standin, tmp_path, 2, program)
    assert "rank 0 is done" in out and "rank 1 is done" in out


# A rank waits for a peer that never comes; the peer watches the effect on the first rank.
LATE = """
import os, signal, sys, time
from datetime import timedelta
import chorus, pytest
import torch.distributed as dist
from breaking import until_left

options = eval(sys.argv[3])
dist.set_debug_level_from_env()
dist.init_process_group("chorus", pg_options={"backend": "nccl", **options}, device_id=_place)
store, me = dist.distributed_c10d._get_default_store(), dist.get_rank()
dist.all_reduce(torch.ones(4))
dist.barrier()
until_left(0)
dist.group.WORLD.set_timeout(timedelta(seconds=float(sys.argv[2])))
x = torch.ones(4)

def failed():
    while chorus.failure() is None: time.sleep(0.01)

def dies():
    dist.all_reduce(x)  # of which rank 1 hears nothing
    signal.pause()

def goes_on():
    dist.all_reduce(x)
    failed()
    with pytest.raises(chorus.TimeoutError) as late:
        dist.all_reduce(x)
    assert late.value.missing_ranks == (1,)
    assert dist.group.WORLD.get_error() == dist.distributed_c10d._get_default_group().get_error()
    assert dist.group.WORLD.get_error().name == "TIMEOUT"

def waits():
    with pytest.raises(chorus.TimeoutError) as late:
        dist.all_reduce(x, async_op=True).wait(timedelta(seconds=0.2))
    assert late.value.missing_ranks == (1,) and late.value.op == "all_reduce"
    with pytest.raises(chorus.TimeoutError):
        dist.all_reduce(x)

def aborts():
    work = dist.all_reduce(x, async_op=True)
    dist.group.WORLD.abort()
    failed()
    with pytest.raises(chorus.AbortedError):
        work.wait()
    time.sleep(0.1)  # what looks at operations under way has looked

def differs():
    with pytest.raises(chorus.MismatchError, match="rank 1 calls broadcast") as both:
        dist.all_reduce(x)
    assert both.value.ranks == (0, 1)
    store.wait(["told"], timedelta(seconds=60))  # rank 0 serves what they compare by

def blocks():
    with pytest.raises(chorus.TimeoutError) as late:
        dist.all_reduce(x)
    assert late.value.missing_ranks == (1,)

if me == 0:
    globals()[sys.argv[1]]()
    print("goes on")
    store.set("over", "")
else:
    if sys.argv[1] == "dies":
        failed()
    elif sys.argv[1] == "differs":
        with pytest.raises(chorus.MismatchError):
            dist.broadcast(x, 0)
        store.set("told", "")
    else:
        store.wait(["over"], timedelta(seconds=60))
    print("hears", chorus.failure())
    os._exit(0)
os._exit(0)
"""


@pytest.mark.parametrize(
    "asked",
    [
        {},
        pytest.param({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_a_failure_ends_the_process(standin, tmp_path, asked):
    """Work after a failed operation doesn't run: the process ends, as with ProcessGroupNCCL. Before that the error is
    printed, the flight record is written, and the other ranks are notified."""
    program = PLACE + LATE
    out, err, statuses = ran(
        standin, tmp_path, 2, program, "dies", "0.3", "{}", CHORUS_DUMP_DIR=str(tmp_path / "dumps"), **asked
    )
    line = program[: program.index("of which rank 1 hears nothing")].count("\n") + 1
    assert os.WIFSIGNALED(statuses[0]) and os.WTERMSIG(statuses[0]) == signal.SIGABRT and statuses[1] == 0, out + err
    for words in ("rank 0", "all_reduce", "missing: 1", f"program.py:{line}", "TORCH_NCCL_ASYNC_ERROR_HANDLING"):
        assert words in err, err
    assert "goes on" not in out and "hears chorus: rank 1" in out, out
    if not asked:
        return
    sleeps = program[: program.index("time.sleep(0.01)")].count("\n") + 1
    text = chorus("explain", tmp_path / "dumps")
    assert "rank 1 is missing from all_reduce(float32[4], sum) #3" in text and f"program.py:{line} (dies)" in text, text
    assert f"program.py:{sleeps})" in text, f"the line where rank 1 is, {sleeps}, is not in:\n{text}"


@pytest.mark.parametrize(
    ("does", "options", "seconds", "asked"),
    [
        ("goes_on", {}, 0.3, {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "2"}),
        pytest.param("goes_on", {"abort_on_error": False}, 0.3, {}, marks=pytest.mark.long),
        pytest.param("goes_on", {}, 0.3, {"NCCL_ASYNC_ERROR_HANDLING": "0"}, marks=pytest.mark.long),
        ("waits", {}, 60, {}),
        ("aborts", {}, 60, {}),
        ("differs", {}, 60, {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
        ("blocks", {}, 0.3, {"TORCH_NCCL_BLOCKING_WAIT": "1"}),
    ],
    ids=str,
)
def test_a_failure_is_raised_by_the_wait(standin, tmp_path, does, options, seconds, asked):
    """If the program shall go on, or the host waits, an error is raised that names the missing ranks."""
    out, err, statuses = ran(standin, tmp_path, 2, PLACE + LATE, does, str(seconds), repr(options), **asked)
    assert statuses == [0, 0] and "goes on" in out, out + err


PROFILE = (
    FOREIGN
    + """
import json, sys
dist.init_process_group("chorus", pg_options={"backend": "nccl"}, device_id=device)
x, both = torch.ones(6, device=device), torch.ones(12, device=device)
dist.all_reduce(x)
from torch.profiler import ProfilerActivity, profile
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as trace:
    dist.all_reduce(x)
    dist.all_gather_into_tensor(both, x, async_op=True).wait()
    dist.reduce_scatter_tensor(x, both)
    torch.accinte.synchronize()
    (dist.send if rank else dist.recv)(x, 1 - rank)
trace.export_chrome_trace(sys.argv[1] + f".{rank}")
dist.destroy_process_group()
print("done")
"""
)


def test_profiles_have_nccls_arguments(standin, tmp_path):
    """The events of calls have the arguments of ProcessGroupNCCL's record_param_comms."""
    run(standin, tmp_path, 2, PROFILE, str(tmp_path / "trace"))
    events = json.loads((tmp_path / "trace.1").read_text())["traceEvents"]
    found = [e["args"] for e in events if "Collective name" in e.get("args", {})]
    wanted = [("allreduce", 6, 6), ("_allgather_base", 6, 12), ("_reduce_scatter_base", 12, 6), ("send", 6, 6)]
    assert [(a["Collective name"], int(a["In msg nelems"]), int(a["Out msg nelems"])) for a in found] == wanted
    for seq, a in enumerate(found[:3], 2):
        assert a["dtype"] == "Float" and int(a["Group size"]) == 2 and int(a["Rank"]) == 1 and int(a["Seq"]) == seq
        assert a["Process Group Ranks"] == "[0, 1]" and a["Process Group Name"] == "0", a
    assert (int(found[3]["Src Rank"]), int(found[3]["Dst Rank"])) == (1, 0)


# A program that calls PyTorch's pluggable allocator, on the stand-in's "cuda" devices.
POOLS = (
    FOREIGN
    + """
from torch._C import _distributed_c10d
import chorus, pytest, torchcomms
dist.init_process_group("chorus", pg_options={"backend": "nccl"}, device_id=device)
group = dist.group.WORLD
assert type(group.mem_allocator) is type(torch.cuda.memory.CUDAPluggableAllocator(
    _lib.PATH, "chorus_nccl_alloc", "chorus_nccl_free").allocator())
alloc, free = _lib.library.chorus_nccl_alloc, _lib.library.chorus_nccl_free
at = alloc(1 << 20, device.index, None)
assert at and not alloc(1 << 20, 99, None) and "99" in _lib.library.chorus_last_error().contents.message.decode()
x = torch.ones(4, device=device)
dist.all_reduce(x)  # which registers it
free(at, 1 << 20, device.index, None)
dist.all_reduce(x)
free(at, 1 << 20, device.index, None)
assert "is no memory that" in _lib.library.chorus_last_error().contents.message.decode()

class Pool:
    id = (7, 7)
    def __init__(self, *sizes):
        self.segments = {alloc(size << 20, device.index, None): size << 20 for size in sizes}
    def snapshot(self):  # by address, as PyTorch's
        return [{"device": device.index, "address": at, "total_size": size}
                for at, size in sorted(self.segments.items())]

symmetric = Pool(4, 2, 6)
group.register_mem_pool(symmetric, symm=True)
group.register_mem_pool(symmetric, symm=True)  # nothing is new
dist.all_reduce(x)
symmetric.segments[at := alloc(2 << 20, device.index, None)] = 2 << 20
group.register_mem_pool(symmetric, True)
group.deregister_mem_pool(symmetric)
if rank == 1:
    symmetric.segments.popitem()
with pytest.raises(chorus.MismatchError, match="of .4194304 2097152 6291456 2097152. bytes"):
    group.register_mem_pool(symmetric, symm=True)
symmetric.segments = {x.untyped_storage().data_ptr(): 16}
with pytest.raises(chorus.InvalidArgumentError, match="are no allocation of NCCL's own memory"):
    group.register_mem_pool(symmetric, symm=True)
group.register_mem_pool(symmetric)
group.deregister_mem_pool(symmetric)
dist.all_reduce(x)
group.register_mem_pool(Pool(2), symm=True)  # until the group's end
old = dist.new_group(pg_options={"backend": "nccl", "library": "ncclsim-2.19"})
with pytest.raises(chorus.UnsupportedError, match="NCCL 2.19.0 .*lacks ncclCommWindowRegister, .* with NCCL 2.27"):
    old.register_mem_pool(Pool(2), symm=True)
backend.serve("cuda", "cuda", lambda device: 0)
torch.cuda.MemPool = lambda allocator: ("pool", allocator)  # which needs a GPU
place = torch.device("cuda", device.index)
pool = torchcomms.get_mem_allocator("nccl", place)._pool
assert pool is torchcomms.get_mem_allocator("nccl", place)._pool and type(pool[1]) is type(group.mem_allocator)
dist.destroy_process_group()
print("done")
"""
)


def test_memory_for_pools_of_pytorch(standin, tmp_path):
    """ncclMemAlloc in the form of torch.cuda.memory.CUDAPluggableAllocator, and symmetric memory of such pools."""
    assert run(standin, tmp_path, 2, POOLS).count("done") == 2


SWITCH = """
import os, torch, torch.distributed as dist
import chorus, chorus.torchcomms
from chorus.torchcomms._wrapper import CommGroup
rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = torch.device("accinte", rank % torch.accinte.device_count())
torch.accinte.set_device(place)
dist.config.use_torchcomms = True
dist.init_process_group("cpu:gloo,accinte:nccl")
world = dist.group.WORLD
assert isinstance(world, CommGroup) and world.get_comm().get_backend() == "gloo", world
beside = world._get_backend(place).get_comm()
assert beside.get_backend() == "nccl" and beside.get_device() == place
groups = [dist.group.WORLD, dist.new_group(list(range(n))), dist.new_group([0])]
for group in groups:
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        continue
    for where in ("cpu", place):
        x = torch.full((4,), float(rank + 1), device=where)
        dist.all_reduce(x, group=group)
        assert x.tolist() == [sum(range(1, group.size() + 1))] * 4, (where, x)
        work = dist.all_reduce(x, group=group, async_op=True)
        work.wait()
        out = torch.zeros(group.size(), device=where)
        dist.all_gather_single(out, torch.full((1,), float(rank), device=where), group=group)
        assert out.tolist() == [float(r) for r in range(group.size())]
dist.barrier()
if groups[2] is not dist.GroupMember.NON_GROUP_MEMBER:
    dist.destroy_process_group(groups[2])
dist.destroy_process_group()
assert beside._ended()
print("fine", rank)
"""


@pytest.mark.skipif(not hasattr(getattr(dist, "config", None), "use_torchcomms"), reason="this PyTorch has no switch")
def test_groups_of_two_communicators(standin, tmp_path):
    """PyTorch's switch use_torchcomms with a backend for each type of device."""
    assert run(standin, tmp_path, 2, SWITCH).count("fine") == 2


# The same with a group that serves tensors of the CPU as well.
BOTH = (
    FOREIGN
    + """
import chorus, pytest, sys
from breaking import until_left
from datetime import timedelta
dist.init_process_group("chorus")
store = dist.distributed_c10d._get_default_store()
x = torch.ones(4, device=device)
dist.all_reduce(x)
dist.all_reduce(torch.ones(3))
until_left(0)
if rank == 0:
    with pytest.raises(chorus.TimeoutError) as late:
        if sys.argv[1] == "blocks":
            dist.group.WORLD.set_timeout(timedelta(seconds=0.3))
            dist.all_reduce(x)
        else:
            dist.all_reduce(x, async_op=True).wait(timedelta(seconds=0.3))
    assert late.value.missing_ranks == (1,) and isinstance(chorus.failure(), chorus.TimeoutError)
    assert dist.group.WORLD.get_error().name == "TIMEOUT"
    store.set("over", "")
else:
    store.wait(["over"], timedelta(seconds=60))
print("fine", flush=True)
os._exit(0)
"""
)


@pytest.mark.parametrize("does", ["waits", "blocks"])
def test_a_failure_of_one_side_is_raised_by_the_wait(standin, tmp_path, does):
    asked = {"TORCH_NCCL_BLOCKING_WAIT": "1"} if does == "blocks" else {}
    assert run(standin, tmp_path, 2, BOTH, does, **asked).count("fine") == 2
