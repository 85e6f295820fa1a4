"""torch.distributed.config.use_torchcomms: PyTorch makes its process groups of communicators of torchcomms."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch.distributed as dist
from worlds import context, free_port, longest

pytestmark = pytest.mark.skipif(
    not hasattr(getattr(dist, "config", None), "use_torchcomms"), reason="this PyTorch has no such switch"
)
HERE = pathlib.Path(__file__).parent

# The program of a rank, with tensors on PLACE.
PROGRAM = """
import datetime, os, sys
sys.path.insert(0, {tests!r})
import pytest, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
import chorus, chorus.torchcomms
from calls import CALLS, values
from chorus.torchcomms._wrapper import CommGroup

rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = torch.device({place!r}, rank) if {place!r} != "cpu" else torch.device("cpu")
minute = datetime.timedelta(seconds=60)
store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), n, rank == 0)

def start():
    # The switch alone: rank and size are arguments, and the environment tells others.
    os.environ["RANK"] = os.environ["WORLD_SIZE"] = "7"
    dist.config.use_torchcomms = True
    dist.init_process_group({backend!r}, store=dist.PrefixStore("a", store), rank=rank, world_size=n, timeout=minute)
    world = dist.group.WORLD
    assert isinstance(world, CommGroup) and world.get_comm().get_size() == n and world.get_comm().get_rank() == rank
    assert world.get_comm().get_options().timeout == minute
    return world

def differ(results, name):
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs.cpu(), msg=lambda text: name + ": " + text)

world = start()
with dist.config.patch(use_torchcomms=False):
    gloo = dist.new_group(backend="gloo", timeout=minute)
assert not isinstance(gloo, CommGroup)
for name, call in CALLS.items():
    for async_op in (False, True):
        results = []
        for group, where in ((world, place), (gloo, "cpu")):
            make = lambda which, shape: values(rank, shape, torch.float32, which).to(where)
            with dist.config.patch(use_torchcomms=group is world):
                work, out = call(make, n, rank, group=group, async_op=async_op)
            assert (work is not None) == async_op
            if async_op:
                work.wait()
            results.append(out)
        if name != "reduce" or rank == 1:  # Gloo leaves what it likes where the root isn't
            differ(results, name)
objects = [None] * n
dist.all_gather_object(objects, {{"rank": rank}})
assert objects == [{{"rank": r}} for r in range(n)]
got = torch.zeros(3, device=place)
ops = [dist.P2POp(dist.isend, torch.full((3,), float(rank), device=place), (rank + 1) % n),
       dist.P2POp(dist.irecv, got, (rank - 1) % n)]
for work in dist.batch_isend_irecv(ops):
    work.wait()
assert got.tolist() == [float((rank - 1) % n)] * 3
dist.barrier()
dist.monitored_barrier(timeout=minute) if dist.get_backend() == "gloo" else world.monitored_barrier(minute)

# ---- DistributedDataParallel ----
def gradients(wrap):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)).to(place)
    wrapped = wrap(model)
    wrapped(torch.full((2, 4), rank + 1.0, device=place)).square().sum().backward()
    return [p.grad for p in model.parameters()]

alone = [g.cpu() for g in gradients(lambda model: model)]
for g in alone:
    dist.all_reduce(g, group=gloo)
differ((gradients(torch.nn.parallel.DistributedDataParallel), [g / n for g in alone]), "gradients")

# ---- groups ----
pair = dist.new_group([0, n - 1], timeout=datetime.timedelta(seconds=1))
assert (pair is dist.GroupMember.NON_GROUP_MEMBER) == (rank not in (0, n - 1))
halves = dist.split_group(split_ranks=[[0], list(range(1, n))])
assert dist.get_world_size(halves) == (1 if rank == 0 else n - 1)
x = torch.ones(2, device=place)
dist.all_reduce(x, group=halves)
assert x.tolist() == [float(halves.size())] * 2
mesh = init_device_mesh(place.type, (n,), mesh_dim_names=("all",))
x = torch.ones(2, device=place)
dist.all_reduce(x, group=mesh.get_group())
assert x.tolist() == [float(n)] * 2
if rank == 0:
    with pytest.raises(chorus.TimeoutError) as failed:
        dist.barrier(group=pair)
    assert failed.value.missing_ranks == (1,), failed.value
    assert pair.failure is not None and world.failure is None
dist.barrier()
with pytest.raises(chorus.InvalidArgumentError, match="all_reduce"):
    dist.all_reduce(torch.ones(3, device=place).expand(4, 3))
with pytest.raises(NotImplementedError, match="use_local_synchronization"):
    dist.new_group([0], use_local_synchronization=True)
if pair is not dist.GroupMember.NON_GROUP_MEMBER:
    dist.destroy_process_group(pair)
dist.barrier()
dist.destroy_process_group()
assert world.comm.finalized
start()
dist.barrier()  # or rank 0 could end, and its store with it, while others read addresses from it
dist.destroy_process_group()
"""


def _rank(program, **environment):
    os.environ.update({name: str(value) for name, value in environment.items()})
    exec(program, {})


def run(ranks, place, backend):
    program, port = PROGRAM.format(tests=str(HERE), place=place, backend=backend), free_port()
    processes = [
        context.Process(target=_rank, args=(program,), kwargs={"RANK": r, "WORLD_SIZE": ranks, "MASTER_PORT": port})
        for r in range(ranks)
    ]
    for process in processes:
        process.start()
    try:
        for process in processes:
            process.join(200)
        assert [process.exitcode for process in processes] == [0] * ranks
    finally:
        for process in processes:
            process.kill()


@pytest.mark.long
def test_programs():
    run(3, "cpu", "gloo")


def _said(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@longest
@pytest.mark.long
def test_whose_torchcomms_it_is():
    """The switch takes Chorus' torchcomms only if a program uses it: by that name, or as chorus.torchcomms."""
    code = """
import sys, torch.distributed as dist
{first}
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
print(type(dist.group.WORLD).__module__, "chorus._lib" in sys.modules)
"""
    switch, path = {"TORCH_DISTRIBUTED_USE_TORCHCOMMS": "1"}, {"PYTHONPATH": str(HERE.parent / "torchcomms/src")}
    ours, theirs = ["chorus.torchcomms._switch", "True"], ["torch.distributed.distributed_c10d", "False"]
    assert _said(code.format(first=""), **switch, **path) == ours
    assert _said(code.format(first="import chorus.torchcomms"), **switch) == ours
    assert _said(code.format(first=""), **switch) == theirs
    assert _said(code.format(first=""), **path) == theirs
