"""Groups of this backend in jobs whose other ranks have PyTorch's own Gloo: ``pg_options={"wire": "gloo"}``."""

import pytest
import torch
from jobs import Job

import chorus
from chorus import torchcomms

PROGRAM = """
import os
import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
if rank in {ranks}:
    dist.init_process_group("chorus", pg_options={{"wire": "gloo"}})
else:
    dist.init_process_group("gloo")
n = dist.get_world_size()
x = torch.full((1000,), float(rank))
dist.all_reduce(x)
assert x[999] == 3, x
parts = [torch.zeros(17, dtype=torch.int64) for _ in range(n)]
dist.all_gather(parts, torch.full((17,), rank))
assert [int(p[16]) for p in parts] == [0, 1, 2]
lists = [None] * n
dist.all_gather_object(lists, {{"rank": rank}})
assert [e["rank"] for e in lists] == [0, 1, 2]
dist.broadcast(x, 1)
group = dist.new_group([0, 2])
if rank != 1:
    y = torch.ones(3)
    dist.all_reduce(y, group=group)
    assert y[0] == 2
work = dist.isend(x, (rank + 1) % n, tag=5)
dist.recv(torch.empty(1000), (rank + 2) % n, tag=5)
work.wait()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
model(torch.full((2, 4), float(rank))).sum().backward()
assert torch.equal(model.module.weight.grad, torch.full((1, 4), 2.0)), model.module.weight.grad
dist.barrier()
open(f"ok.{{rank}}", "w").close()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("ranks", [[1], pytest.param([0, 2], marks=pytest.mark.long)])
def test_with_gloo(tmp_path, monkeypatch, ranks):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    with Job(tmp_path, PROGRAM.format(ranks=ranks)) as job:
        for process in job.processes:
            process.join(60)
    assert sorted(p.name for p in tmp_path.glob("ok.*")) == ["ok.0", "ok.1", "ok.2"]


COMM = """
import os
import torch
import torch.distributed as dist
from chorus import torchcomms

rank, n, given = int(os.environ["RANK"]), 3, {given}
ours = rank in {ranks}
store = None
if given:
    store = dist.PrefixStore("mine", dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), n, rank == 0))
if ours:
    hints = {{"wire": "gloo", "interface": "lo"}}
    comm = torchcomms.new_comm("gloo", torch.device("cpu"), "main", store=store, hints=hints)
    assert comm.get_size() == n and comm.get_backend() == "gloo"
elif given:
    group = dist.ProcessGroupGloo(store, rank, n)
else:
    dist.init_process_group("gloo")
    group = dist.group.WORLD
SUM = torchcomms.ReduceOp.SUM
x = torch.full((1000,), float(rank))
comm.all_reduce(x, SUM, False) if ours else group.allreduce([x]).wait()
assert x[999] == 3, x
parts = [torch.zeros(17, dtype=torch.int64) for _ in range(n)]
mine = torch.full((17,), rank)
comm.all_gather(parts, mine, False) if ours else group.allgather([parts], [mine]).wait()
assert [int(p[16]) for p in parts] == [0, 1, 2]
out, into = torch.zeros(4), torch.arange(12.0)
if ours:
    comm.reduce_scatter_single(out, into, SUM, True).wait()
else:
    group._reduce_scatter_base(out, into).wait()
assert torch.equal(out, 3 * into[4 * rank : 4 * rank + 4]), out
out = torch.zeros(n)
y = torch.arange(3.0) + 10 * rank
comm.all_to_all_single(out, y, False) if ours else group.alltoall_base(out, y, [], []).wait()
assert out.tolist() == [rank, 10 + rank, 20 + rank], out
z = torch.full((5,), float(rank))
comm.broadcast(z, 2, False) if ours else group.broadcast(z, 2).wait()
assert z[4] == 2
got = torch.zeros(7)
if ours:
    work = comm.send(torch.full((7,), float(rank)), (rank + 1) % n, True)
    comm.recv(got, (rank + 2) % n, False)
else:
    work = group.send([torch.full((7,), float(rank))], (rank + 1) % n, 0)
    group.recv([got], (rank + 2) % n, 0).wait()
work.wait()
assert got[6] == (rank + 2) % n
if not given:
    part = comm.split([0, 2] if rank != 1 else [], "part") if ours else dist.new_group([0, 2])
    y = torch.ones(3)
    if rank != 1:
        part.all_reduce(y, SUM, False) if ours else dist.all_reduce(y, group=part)
        assert y[0] == 2
        if ours:
            part.finalize()
comm.barrier(False) if ours else group.barrier().wait()
if ours:
    comm.finalize()
open(f"ok.{{rank}}", "w").close()
if rank == 0:  # who serves the store leaves last
    import time
    while len([f for f in os.listdir() if f.startswith("ok.")]) < n:
        time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("ranks", "given"),
    [
        ([1], False),
        *(pytest.param(r, g, marks=pytest.mark.long) for r, g in [([0, 2], True), ([0], False), ([0], True)]),
    ],
)
def test_torchcomms_with_gloo(tmp_path, monkeypatch, ranks, given):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    with Job(tmp_path, COMM.format(ranks=ranks, given=bool(given))) as job:
        for process in job.processes:
            process.join(60)
    assert sorted(p.name for p in tmp_path.glob("ok.*")) == ["ok.0", "ok.1", "ok.2"]


def test_torchcomms_refuses():
    cpu = torch.device("cpu")
    with pytest.raises(chorus.InvalidArgumentError, match="wire='ucx'"):
        torchcomms.new_comm("gloo", cpu, "x", hints={"wire": "ucx"})
    with pytest.raises(chorus.UnsupportedError, match="'fake'"):
        torchcomms.new_comm("fake", cpu, "x", hints={"wire": "gloo"})
    with pytest.raises(chorus.UnsupportedError, match="reconfigure"):
        torchcomms.new_comm("gloo", cpu, "x", enable_reconfigure=True, hints={"wire": "gloo"})
