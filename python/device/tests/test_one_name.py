"""``init_process_group("chorus")`` on machines with GPUs: this library serves the CPU's tensors, NCCL the GPU's.

Programs of several processes, over stand-ins for NCCL and for GPUs, whose device is accinte in PyTorch."""

import os
import signal

import pytest
import torch.distributed as dist
from standins import FOREIGN, ran, run
from test_torchcomms_original import PROGRAM

HEADER = (
    FOREIGN
    + """
import sys, time
from datetime import timedelta
import chorus, pytest
from breaking import until_left

def on(value, n=4, place=None):
    return torch.full((n,), float(value), device=place or device)

def total(of=range(size)):
    return sum(r + 1 for r in of)

def part(group=None):
    return (group or dist.group.WORLD)._libraries["accinte"]

def summed(group=None, of=range(size)):
    for place in (device, "cpu"):
        dist.all_reduce(x := on(rank + 1, place=place), group=group)
        assert (x == total(of)).all(), x
"""
)

WORLD = (
    HEADER
    + """
dist.init_process_group(sys.argv[1])
world = dist.group.WORLD
assert world._device_types == [torch.device("cpu"), torch.device("accinte")]
dist.all_reduce(on(rank, place="cpu"))
dist.barrier()
dist.all_gather_object(found := [None] * size, rank)
world.monitored_barrier(timedelta(seconds=30))
assert not part().begun, "a communicator of NCCL's without a tensor for it"
for asynchronous in (False, True):
    work = dist.all_reduce(x := on(rank + 1, 1000), async_op=asynchronous)
    if asynchronous:
        work.wait()
    assert (x * 2 == 2 * total()).all()
comm = part().comm
assert comm.backend == "nccl" and comm.info().device.decode() == f"cuda:{device.index}" and comm.store_keys
assert world._get_backend(device) is part() and world._get_backend(torch.device("cpu")) is world
summed()
dist.all_gather_into_tensor(every := on(0, 2 * size), on(rank, 2))
assert every.tolist() == [r for r in range(size) for _ in range(2)]
dist.broadcast(x := on(rank), 1)
assert (x == 1).all()
dist.all_to_all_single(y := on(0, size), on(rank, size))
assert y.tolist() == list(range(size))
dist.reduce_scatter_tensor(z := on(0, 2), on(1, 2 * size))
assert (z == size).all()
import torch.distributed._functional_collectives as functional
assert (functional.all_reduce(on(rank + 1), "sum", world) == total()).all()
got = on(0)
for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, on(rank), (rank + 1) % size),
                                    dist.P2POp(dist.irecv, got, (rank - 1) % size)]):
    work.wait()
assert (got == (rank - 1) % size).all() and not part()._pairs
issued = comm.issued, world.comm.issued
dist.barrier()
dist.all_gather_object(found, rank)
assert found == list(range(size)) and comm.issued == issued[0] and world.comm.issued > issued[1]
if size == 2:
    dist.barrier(device_ids=[device.index])
    assert comm.issued == issued[0] + 1
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4).to(device))
    model(on(rank + 1, 8).view(2, 4)).sum().backward()
    assert (model.module.weight.grad == size + 1).all()
    del model
from chorus.torchcomms import ReduceOp, distwrap
for of, place in ((world, "cpu"), (part(), device)):  # their communicators
    distwrap.get_comm(of).all_reduce(x := on(rank + 1, place=place), ReduceOp.SUM)
    assert (x == total()).all()
group = dist.new_group(range(size))
dist.all_reduce(on(1, place="cpu"), group=group)
assert not part(group).begun
summed(group)
assert part(group).begun and chorus.failure() is None
world.set_timeout(timedelta(seconds=40))
assert comm.info().timeout_ns == 40_000_000_000
dist.destroy_process_group()
assert comm.finalized and world.comm.finalized
dist.init_process_group("chorus")  # again
summed()
dist.destroy_process_group()
print("fine")
"""
)


LONG = pytest.mark.long


@pytest.mark.parametrize("name", ["chorus", pytest.param("cpu:chorus,accinte:chorus", marks=LONG)])
def test_world(standin, tmp_path, name):
    """Each tensor goes to its library. The first tensor of the GPU makes NCCL's communicator."""
    assert run(standin, tmp_path, 2, WORLD, name).count("fine") == 2


WITHOUT = (
    HEADER
    + """
dist.init_process_group("chorus")
library = {"nccl": "NCCL", "rccl": "RCCL"}[part().carrier]
assert library == sys.argv[1]
dist.all_reduce(x := on(1, place="cpu"))
for _ in range(2):  # a program that catches it may go on, and try again
    with pytest.raises(chorus.UnsupportedError) as caught:
        dist.all_reduce(on(1))
    assert f" {library} is not on this machine: /nowhere/libnccl.so" in str(caught.value), caught.value
if library == "NCCL":  # that one rank lacks
    place = "/nowhere/other.so" if rank else "ncclsim-2.32"
    group = dist.new_group(pg_options={"accinte": {"library": place}})
    words = "/nowhere/other.so" if rank else "rank 1 can't begin: .*/nowhere/other.so"
    with pytest.raises(chorus.UnsupportedError, match=words):
        dist.all_reduce(on(1), group=group)
dist.all_reduce(x)
assert (x == size * size).all() and chorus.failure() is None
dist.destroy_process_group()
print("fine")
"""
)


@pytest.mark.parametrize(("driver", "library"), [("cuda", "NCCL"), pytest.param("hip", "RCCL", marks=LONG)])
def test_without_the_library(standin, tmp_path, driver, library):
    """The error names the missing library and where it was searched; the CPU's tensors don't need it."""
    program = WITHOUT.replace('"cuda", native', f'"{driver}", native')
    out = run(standin, tmp_path, 2, program, library, CHORUS_NCCL_LIBRARY="/nowhere/libnccl.so")
    assert out.count("fine") == 2


NOBODY = (
    HEADER
    + """
dist.init_process_group("chorus")
store = dist.distributed_c10d._get_default_store()
if rank == 0:
    dist.group.WORLD.set_timeout(timedelta(seconds=0.5))
    with pytest.raises(chorus.TimeoutError) as caught:
        dist.all_reduce(on(1))
    assert caught.value.missing_ranks == (1,), caught.value.missing_ranks
    assert "rank" in str(caught.value) and caught.value.comm == "default_pg:accinte", caught.value
    dist.group.WORLD.set_timeout(timedelta(seconds=60))
    store.set("told", "")
else:
    store.wait(["told"], timedelta(seconds=60))
dist.barrier()
dist.destroy_process_group()
print("fine")
"""
)


def test_a_rank_that_never_comes(standin, tmp_path):
    """Making the communicator has the group's deadline, and its error names the missing ranks."""
    assert run(standin, tmp_path, 2, NOBODY).count("fine") == 2


BROKEN = (
    HEADER
    + """
dist.init_process_group("chorus", timeout=timedelta(seconds=30))
how = sys.argv[1]
if how != "beginning":
    summed()
until_left(0)
if how == "host":
    with pytest.raises(chorus.MismatchError):
        dist.all_reduce(on(1, n=4 + rank, place="cpu"))
elif how == "gpu":
    if rank == 0:
        part().comm.abort("enough")
elif how == "beginning" and rank == 0:
    dist.group.WORLD.comm.abort("enough")
kinds = {"host": chorus.MismatchError, "gpu": chorus.AbortedError, "beginning": chorus.AbortedError}
for place in (device, "cpu") if how != "gpu" else ("cpu", device):
    with pytest.raises(kinds[how]) as caught:
        while True:
            dist.all_reduce(x := on(1, place=place), async_op=True).wait()
            torch.accinte.synchronize()
    assert how == "host" or caught.value.by == 0, caught.value
print("fine")
"""
)


@pytest.mark.parametrize("how", ["gpu", *(pytest.param(how, marks=LONG) for how in ("host", "beginning"))])
def test_a_failure_reaches_the_other_side(standin, tmp_path, how):
    assert run(standin, tmp_path, 2, BROKEN, how).count("fine") == 2


LATE = (
    HEADER
    + """
goes_on = sys.argv[1] == "goes_on"
options = {"accinte": {"abort_on_error": False}} if goes_on else None
dist.init_process_group("chorus", pg_options=options)
group = chorus.split_group(list(range(size)))
summed(group)
until_left(0)
if rank == 0:  # alone
    group.set_timeout(timedelta(seconds=0.5))
    dist.all_reduce(on(1), group=group)
while (failure := chorus.failure(group)) is None:
    time.sleep(0.01)
if rank == 1 or goes_on:
    assert isinstance(failure, chorus.TimeoutError) and failure.missing_ranks == (1,), failure
    print("fine", flush=True)
    os._exit(0)
time.sleep(60)
"""
)


@LONG
@pytest.mark.parametrize("how", ["ends", "goes_on"])
def test_an_operation_that_is_overdue(standin, tmp_path, how):
    """It ends the process, as with ProcessGroupNCCL, also in a split of a group. Other ranks' CPU side fails."""
    out, err, statuses = ran(standin, tmp_path, 2, LATE, how)
    ended = os.WIFSIGNALED(statuses[0]) and os.WTERMSIG(statuses[0]) == signal.SIGABRT
    assert ended == (how == "ends") and statuses[1] == 0 and out.count("fine") == 2 - ended, out + err


LOST = (
    HEADER
    + """
import signal
dist.init_process_group("chorus", timeout=timedelta(seconds=60))
dist.all_reduce(on(1, place="cpu"))
until_left(1)
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
with pytest.raises(chorus.PeerLostError) as caught:
    dist.all_reduce(on(1))
assert caught.value.peer == 1, caught.value
print("fine")
"""
)


@LONG
def test_a_rank_that_dies_before_the_beginning(standin, tmp_path):
    assert run(standin, tmp_path, 2, LOST, statuses=[0, 9]).count("fine") == 1


PAIRS = (
    HEADER
    + """
dist.init_process_group("chorus")
x = on(rank)
if rank == 0:
    dist.send(x, 2, tag=0)
    dist.recv(x, 2)
elif rank == 2:
    work = dist.irecv(x, 0)
    work.wait()
    assert work._source_rank() == 0 and (x == 0).all()
    dist.send(x + 7, 0)
if rank == 1:
    assert not part()._pairs
else:
    assert list(part()._pairs) == [2 - rank]
    pair = part()._pairs[2 - rank].comm
    assert pair.size == 2 and pair.name == "default_pg:accinte:0-2"
assert not part().begun and (rank or (x == 7).all())
with pytest.raises(chorus.InvalidArgumentError, match="there is no rank 3"):
    part().send([x], 3, 0)
with pytest.raises(chorus.UnsupportedError, match="recv: NCCL has neither tags nor any source"):
    dist.recv(x)
with pytest.raises(chorus.UnsupportedError, match="send: NCCL has neither tags nor any source"):
    dist.send(x, (rank + 1) % size, tag=3)
assert not part().begun
summed()
dist.destroy_process_group()
assert rank == 1 or pair.finalized
print("fine")
"""
)


def test_messages(standin, tmp_path):
    """A message uses a communicator of its two ranks, and waits for no other rank."""
    assert run(standin, tmp_path, 3, PAIRS).count("fine") == 3


PARTS = (
    HEADER
    + """
from torch.distributed.device_mesh import init_device_mesh
bound = sys.argv[1] == "bound"
dist.init_process_group("chorus", device_id=device if bound else None)
assert part().begun == bound
halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
half, mine = halves[rank // 2], [rank // 2 * 2, rank // 2 * 2 + 1]
assert part(half).begun == bound
summed(half, mine)
assert bool(part(half).comm.store_keys) != bound, "how the library began"
summed()
every = chorus.split_group(mine[::-1])
assert part(every).begun  # the world's has, by now
summed(every, mine)
assert not part(every).comm.store_keys and every.rank() == 1 - rank % 2
one = chorus.split_group([rank]) if rank else chorus.split_group([])
if rank:
    summed(one, [rank])
mesh = init_device_mesh("accinte", (2, 2), mesh_dim_names=("a", "b"))
across = [rank % 2, rank % 2 + 2]
summed(mesh["a"].get_group(), across)
summed(mesh["b"].get_group(), mine)
part_of_part = chorus.split_group([half.rank()], half)
summed(part_of_part, [rank])
assert chorus.failure() is None
dist.destroy_process_group()
print("fine")
"""
)


@pytest.mark.parametrize(
    ("bound", "level"),
    [("bound", "2.32"), pytest.param("lazy", "2.32", marks=LONG), pytest.param("bound", "2.18", marks=LONG)],
)
def test_parts(standin, tmp_path, bound, level):
    """The library splits a communicator that exists; other groups make their own."""
    assert run(standin, tmp_path, 4, PARTS, bound, level=level).count("fine") == 4


SHRINK = (
    HEADER
    + """
import signal
dist.init_process_group("chorus", timeout=timedelta(seconds=60), device_id=device if sys.argv[1] == "bound" else None)
old = dist.group.WORLD
summed()
until_left(2)
if rank == 2:
    os.kill(os.getpid(), signal.SIGKILL)
with pytest.raises(chorus.PeerLostError) as caught:
    while True:
        dist.all_reduce(on(1, place="cpu"))
assert caught.value.peer == 2
group = dist.shrink_group([2], shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
assert group is dist.group.WORLD and group.size() == 2 and not part().begun and old._libraries["accinte"].comm.finalized
summed(of=[0, 1])
assert chorus.failure() is None
dist.destroy_process_group()
print("fine")
"""
)


@pytest.mark.skipif(not hasattr(dist, "shrink_group"), reason="this PyTorch has no shrink_group")
@LONG
@pytest.mark.parametrize("bound", ["lazy", "bound"])
def test_a_shrunk_group(standin, tmp_path, bound):
    """A shrunk group serves the CPU's and the GPU's tensors again."""
    assert run(standin, tmp_path, 3, SHRINK, bound, statuses=[0, 0, 9]).count("fine") == 2


ALONE = (
    HEADER
    + """
dist.init_process_group("accinte:chorus", pg_options={"accinte": {"minCTAs": 2}})
assert dist.group.WORLD._device_types == [torch.device("accinte")] and not part().begun
dist.barrier()
assert part().begun and part().comm.issued == 1
dist.all_reduce(x := on(rank + 1))
assert (x == total()).all()
dist.all_gather_object(found := [None] * size, rank)
assert found == list(range(size)) and part().comm.issued > 2
with pytest.raises(RuntimeError, match="device type cpu"):
    dist.all_reduce(on(1, place="cpu"))
group = dist.new_group(range(size))
assert part(group)._hints == part()._hints == {"minCTAs": "2"}
dist.all_reduce(x, group=group)
dist.destroy_process_group()
with pytest.raises(chorus.InvalidArgumentError, match="backend is one of nccl, ncclx, rccl, not 'mpi'"):
    dist.init_process_group("chorus", pg_options={"accinte": {"backend": "mpi"}})
dist.init_process_group("chorus", pg_options={"accinte": {"nothing": 3, "backend": "ncclx"}})
with pytest.raises(chorus.InvalidArgumentError, match="unknown hint \\"nothing\\"; a communicator of ncclx takes"):
    dist.all_reduce(x)
dist.destroy_process_group()
print("fine")
"""
)


@LONG
def test_the_gpu_alone(standin, tmp_path):
    assert run(standin, tmp_path, 2, ALONE).count("fine") == 2


@LONG
@pytest.mark.parametrize("backend", ["nccl", "ncclx", "rccl"])
def test_a_program_for_torchcomms(standin, tmp_path, backend):
    """A program in the style of torchcomms' documentation, with ``torch.device("cuda")`` and CUDA's streams. Only the
    device's name is changed. Windows use the library's memory."""
    before, _, rest = PROGRAM.partition("window = comm.new_window()")
    program = before + rest[rest.index("handle = comm.register_pre_hook") :]
    place = FOREIGN.replace("torch.accinte.set_device(device)", "")  # such programs don't set the current device
    out = run(standin, tmp_path, 2, place + program.replace("ncclx", backend).replace("cuda", "accinte"))
    assert "done 0" in out and "done 1" in out


WINDOWS = (
    HEADER
    + """
import torchcomms
# The program's pool of the library's memory, as torch.cuda.MemPool(allocator) is.
name = (ctypes.c_uint64 * 2)()
check(_lib.library.chorus_pool_of(b"nccl", opened(device), name))
pool = torch.accinte.MemPool()
pool.id = tuple(name)

comm = torchcomms.new_comm("nccl", device, name="windows")
me, n = comm.get_rank(), comm.get_size()
right, left = (me + 1) % n, (me - 1) % n
with torch.accinte.use_mem_pool(pool):
    mine = torch.zeros(64, device=device)
window = comm.new_window(mine)
assert window.get_size() == 256 and window.device == device and window.get_tensor() is mine
separate = torchcomms.TorchCommWinAccessType.WIN_ACCESS_TYPE_SEPARATE
assert window.get_attr(right).access_type is separate
side = torch.accinte.Stream(device)
for step in range(6):
    asynchronous = step % 2 == 1
    with torch.accinte.stream(side if step > 3 else torch.accinte.default_stream(device)):
        works = [window.put(on(10 * me + step, 8), right, 8 * step, asynchronous),
                 window.signal(right, asynchronous), window.wait_signal(left, asynchronous)]
        for work in works:
            work.wait()
        got = mine[8 * step : 8 * step + 8] * 2  # behind them on the stream
        assert (got == 2 * (10 * left + step)).all(), (step, got)
        window.signal(left, slot=1)  # so that the peer writes only after it was read
        window.wait_signal(right, slot=1)
assert (mine[48:] == 0).all()
for wrong, words in {
    "bounds": lambda: window.put(on(1, 8), right, 60), "memory": lambda: window.put(torch.ones(8), right, 0),
}.items():
    with pytest.raises(chorus.InvalidArgumentError, match={"bounds": "exceeds", "memory": "on cpu"}[wrong]):
        words()
for lacking in (
    lambda: window.get(on(0), right, 0), lambda: window.accumulate(on(0), right, 0, torchcomms.ReduceOp.SUM),
):
    with pytest.raises(chorus.UnsupportedError, match="NCCL's windows have put, signal and wait_signal alone"):
        lacking()
with pytest.raises(chorus.UnsupportedError):
    window.map_remote_tensor(right)
torch.accinte.synchronize(device)
window.tensor_deregister()
comm.all_reduce(x := on(me + 1), torchcomms.ReduceOp.SUM)
assert (x == total()).all()
with pytest.raises(chorus.Error) as caught:  # PyTorch's other memory; it breaks the communicator
    while True:
        comm.new_window(plain := on(0, 64))
        comm.barrier()
assert "windows take memory that NCCL has given out (ncclMemAlloc)" in str(caught.value), caught.value
comm.finalize()
print("fine")
"""
)


def test_windows(standin, tmp_path):
    """One-sided windows of torchcomms on the GPU's tensors, in memory of the library's."""
    assert run(standin, tmp_path, 2, WINDOWS).count("fine") == 2
