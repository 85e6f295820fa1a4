"""Programs for the Python API of ACCL's plug-in, on the package of that name, imported from its sources."""

import os
import pathlib
import subprocess
import sys

import pytest
from children import path_with
from jobs import Job

SOURCES = pathlib.Path(__file__).resolve().parents[1] / "accl" / "src"

# Each call of the plug-in, compared with its closed form; then refused calls.
PROGRAM = """
import os
import sys

import torch
import torch.distributed as dist

sys.path.insert(0, {sources!r})
import accl_process_group as accl

COUNT, TOLERANCE = {count}, {tolerance}
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ranks = [accl.Rank("127.0.0.1", 5500 + i, i, {segment}) for i in range(size)]
compressed = {{accl.DataType.float32: accl.DataType.float16}}


def line(start, end):
    return torch.linspace(start, end, COUNT)


def check(got, want):
    torch.testing.assert_close(got, want, rtol=TOLERANCE, atol=TOLERANCE)


def broadcast():
    x = line(0, 10) if rank == 0 else torch.zeros(COUNT)
    dist.broadcast(x, 0)
    check(x, line(0, 10))


def sendrcv():
    x, y = line(rank, rank + 1), torch.empty(COUNT)
    before, after = (rank - 1) % size, (rank + 1) % size
    if rank % 2:
        dist.send(x, after)
        dist.recv(y, before)
    else:
        dist.recv(y, before)
        dist.send(x, after)
    check(y, line(before, before + 1))


def scatter():
    y = torch.empty(COUNT)
    dist.scatter(y, [line(i, i + 1) for i in range(size)] if rank == 0 else None, 0)
    check(y, line(rank, rank + 1))


def gather():
    y = [torch.empty(COUNT) for _ in range(size)] if rank == 0 else None
    dist.gather(line(rank, rank + 1), y, 0)
    for i, c in enumerate(y or ()):
        check(c, line(i, i + 1))


def allgather():
    y = [torch.empty(COUNT) for _ in range(size)]
    dist.all_gather(y, line(rank, rank + 1))
    for i, c in enumerate(y):
        check(c, line(i, i + 1))


def reduce():
    x = line(0, 10)
    dist.reduce(x, 0, dist.ReduceOp.SUM)
    if rank == 0:
        check(x, line(0, 10 * size))


def allreduce():
    x = line(0, 10)
    dist.all_reduce(x, dist.ReduceOp.SUM)
    check(x, line(0, 10 * size))


def refused_there():
    whole = torch.cat([line(i, i + 1) for i in range(size)])
    out = torch.empty(COUNT)
    dist.reduce_scatter(out, list(whole.chunk(size)))
    check(out, line(rank, rank + 1) * size)
    outs = [torch.empty(COUNT) for _ in range(size)]
    dist.all_to_all(outs, [line(rank + i, 1) for i in range(size)])
    for i, c in enumerate(outs):
        check(c, line(rank + i, 1))
    everything = torch.empty(COUNT * size)
    dist.all_gather_into_tensor(everything, line(rank, rank + 1))
    check(everything, whole)
    half, most, small = torch.full((COUNT,), 0.5).half(), line(rank, rank + 1), torch.tensor([rank], dtype=torch.int8)
    dist.all_reduce(half)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    dist.all_reduce(small, dist.ReduceOp.MIN)
    assert half.unique().tolist() == [size / 2] and small.item() == 0
    check(most, line(size - 1, size))
    part = dist.new_group([0, 1])
    if rank < 2:
        x = torch.ones(COUNT)
        dist.all_reduce(x, group=part)
        check(x, torch.full((COUNT,), 2.0))
    dist.barrier()


try:
    accl.initialize()
except RuntimeError:
    pass
else:
    raise AssertionError("it's initialized before it's created")
{create}
dist.init_process_group("ACCL", rank=rank, world_size=size)
assert isinstance(dist.group.WORLD, accl.ProcessGroupACCL)
{then}
for call in broadcast, sendrcv, scatter, gather, allgather, reduce, allreduce, refused_there:
    call()
open(f"ok.{{rank}}", "w").close()
"""

QUEUES = """
for other in range(size):  # as a program for Coyote does it, with its own way between the ranks
    pairs = [None] * size
    dist.all_gather_object(pairs, accl.get_local_qp(other))
    accl.set_remote_qp(other, pairs[other])
accl.initialize()
"""

LATER = """
COUNT = 1000
x = line(0, 1) / 3
exact = x.clone()
dist.broadcast(x, 0)
assert torch.equal(x, exact) and accl.get_compression() == {}
accl.set_compression(compressed)
assert accl.get_compression() == compressed
dist.broadcast(x, 0)
assert rank == 0 or torch.equal(x, exact.half().float())
try:
    accl.set_compression({accl.DataType.int64: accl.DataType.int32})
except RuntimeError as error:
    assert "no way" in str(error)
assert accl.get_compression() == compressed
accl.set_compression({})
"""

TRAFFIC = """
for _ in range(3):
    allreduce()
info = dist.group.WORLD.comm.info()
assert (info.mapped, info.staged) == {}, (info.mapped, info.staged)
"""

CASES = {
    "simulated": dict(create="accl.create_simulate_process_group(ranks, bufsize=6000)", segment=6000),
    "compressed": dict(
        create="accl.create_simulate_process_group(ranks, bufsize=6000, compression=compressed)", segment=6000,
        tolerance=2e-2,
    ),
    "udp, in segments": dict(create="accl.create_simulate_process_group(ranks, udp=True)", count=3082, segment=1024),
    "a card": dict(
        create="accl.create_process_group(ranks, 'ccl_offload.xclbin', 0, accl.ACCLDesign.axis3x, bufsize=6000, "
        "p2p_enabled=True, profiling_ranks=[1], profiling_timeout=0.1)",
        then=TRAFFIC.format((3, 0)),
    ),
    "the second version": dict(
        create="accl.create_process_group(ranks, accl.ACCLDesign.cyt_rdma, bufsize=4096, simulation=True)",
        then=LATER,
    ),
    "Coyote": dict(
        create="accl.create_process_group_coyote(ranks, accl.ACCLDesign.cyt_rdma, p2p_enabled=False)",
        then=TRAFFIC.format((0, 3)) + QUEUES,
    ),
}  # fmt: skip
FIRST = ("compressed", "the second version")


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in FIRST else pytest.mark.long) for n in CASES])
def test_program(tmp_path, name):
    values = dict(sources=str(SOURCES), count=1024, segment=4096, tolerance=1e-5, then="") | CASES[name]
    with Job(tmp_path, PROGRAM.format(**values)) as job:
        for process in job.processes:
            process.join(60)
    assert sorted(p.name for p in tmp_path.glob("ok.*")) == ["ok.0", "ok.1", "ok.2"]


CODE = """
import warnings
import accl_process_group as accl
r = accl.Rank("127.0.0.1", 5500, 1, 4096)
assert (r.ip, r.port, r.session_id, r.max_segment_size) == ("127.0.0.1", 5500, 1, 4096) and "5500" in repr(r)
assert [t.value for t in accl.DataType] == [2, 3, 4, 5, 6]
assert [d.name for d in accl.ACCLDesign] == ["axis3x", "tcp", "udp", "roce", "cyt_tcp", "cyt_rdma"]
def refuses(error, call, *args, **options):
    try:
        call(*args, **options)
    except error:
        return
    raise AssertionError((call, args, options))
D, T = accl.ACCLDesign, accl.DataType
refuses(RuntimeError, accl.get_compression)
refuses(RuntimeError, accl.set_compression, {})
refuses(RuntimeError, accl.create_process_group, [r], "x.xclbin", 0, D.cyt_rdma)
refuses(RuntimeError, accl.create_process_group_coyote, [r], D.udp)
refuses(RuntimeError, accl.create_simulate_process_group, [r], compression={T.float16: T.float32})
refuses(TypeError, accl.create_process_group, [r], "udp")
refuses(TypeError, accl.create_process_group, [r], "x.xclbin", D.udp)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    accl.create_process_group([r], "x.xclbin", 0, D.udp)
assert "no card" in str(caught[0].message) and caught[0].filename == "<string>", caught
import torch.distributed as dist
refuses(RuntimeError, dist.init_process_group, "ACCL", store=dist.HashStore(), rank=0, world_size=2)
"""


@pytest.mark.parametrize("folder", [SOURCES, pytest.param(SOURCES.parent, marks=pytest.mark.long)])
def test_refusals(folder):
    """Refusals, also in the folders of the sources."""
    environment = dict(os.environ, PYTHONPATH=path_with(SOURCES))
    done = subprocess.run([sys.executable, "-c", CODE], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
