"""Groups of the backend ``accl``, whose collectives run on offload engines."""

import contextlib
import functools
import os
import re
import subprocess
import sys
import time

import pytest
import torch
import torch.distributed as dist
from calls import CALLS, values
from jobs import ROOT, Job, command
from torch.nn.parallel import DistributedDataParallel
from training import compare, model, steps
from worlds import longest

import chorus
from chorus import backend
from chorus.bench.port import free_port

# Configurations of engines, by pg_options. Compressed ones add up in float16.
WAYS = {
    "rendezvous": None,
    "eager": {"protocol": "udp", "rx_buffer_size": 1024, "max_eager_size": 1024},
    "small": {"rx_buffers": 4, "rx_buffer_size": 512, "max_eager_size": 512, "max_rendezvous_size": 8192},
    "compressed": {"compress": torch.float16},
}
TOLERANCES = {"compressed": {"rtol": 2e-3, "atol": 2e-3}}
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8]
OPS = ["SUM", "MAX", "MIN", "PRODUCT", "AVG", "BAND", "BOR", "BXOR"]


@functools.cache
def _group(way):
    """The group of all ranks that a world uses for a way in all tests."""
    return dist.new_group(backend="accl", pg_options=WAYS[way])


def _equal(ours, theirs, **tolerance):
    for a, b in zip(ours, theirs, strict=True):
        if tolerance and a.is_floating_point():
            torch.testing.assert_close(a, b, **tolerance)
        else:
            assert torch.equal(a, b), (a, b)


def _calls(peers, way):
    group = _group(way)
    assert dist.get_backend(group) == "accl" == group.name()
    for name, call in CALLS.items():
        for dtype in DTYPES:
            for asynchronous in (False, True):
                found = []
                for g in (group, dist.group.WORLD):
                    work, outs = call(
                        lambda which, shape: values(peers.rank, shape, dtype, which),
                        peers.size,
                        peers.rank,
                        async_op=asynchronous,
                        group=g,
                    )
                    if asynchronous:
                        assert work.wait()
                    found.append(outs)
                try:
                    _equal(*found, **TOLERANCES.get(way, {}))
                except AssertionError as error:
                    raise AssertionError(f"{name}, {dtype}: {error}") from None


BRIEF = ("eager", "rendezvous")


@pytest.mark.parametrize("way", [pytest.param(w, marks=() if w in BRIEF else pytest.mark.long) for w in WAYS])
def test_calls(pair, way):
    pair.run(_calls, way)


def _reductions(peers):
    """The reductions that ACCL's engines support, and those that they refuse, of large tensors, too."""
    for n in (5, 100_000):
        for dtype in (torch.float32, torch.float16, torch.int32, torch.int8):
            for op in OPS:
                if op.startswith("B") and dtype.is_floating_point:
                    continue
                found = []
                for group in (_group("rendezvous"), dist.group.WORLD):
                    x = values(peers.rank, (n,), dtype)
                    dist.all_reduce(x, getattr(dist.ReduceOp, op), group=group)
                    found.append([x])
                _equal(*found)


def test_reductions(pair):
    pair.run(_reductions)


def _train(peers, group):
    module = model(seed=peers.rank, buffers=True)
    ddp = DistributedDataParallel(module, process_group=group, bucket_cap_mb=0.001)
    return steps(ddp, module.parameters, peers.rank)


def _like_gloo(peers, way):
    compare(_train(peers, _group(way)), _train(peers, peers.gloo), peers.size)


@pytest.mark.parametrize("way", ["rendezvous", "eager"])
def test_training(pair, way):
    pair.run(_like_gloo, way)


@pytest.mark.long
def test_training_on_more_ranks(world):
    world.run(_like_gloo, "rendezvous")


def _options(peers):
    for wrong in ({"protocol": "smoke"}, {"speed": 9}, {"max_eager_size": "much"}):
        with pytest.raises(chorus.InvalidArgumentError, match=next(iter(wrong))):
            dist.new_group(backend="accl", pg_options=wrong)
    backend.defaults["accl"] = lambda rank, size: {"protocol": "tcp"}
    try:
        assert dist.new_group(backend="accl")._hints == {"accl.protocol": "tcp"}
    finally:
        del backend.defaults["accl"]
    with pytest.raises(chorus.UnsupportedError, match="can't be in one group"):
        dist.new_group(backend="cpu:accl,meta:chorus")


def test_options(pair):
    pair.run(_options)


PROGRAM = """
import os, signal, time
import torch
import torch.distributed as dist
import chorus
from breaking import until_left

rank = int(os.environ["RANK"])
dist.init_process_group("accl", pg_options={"max_eager_size": 32768})
assert dist.get_backend() == "accl"
part = dist.new_group([0, 1])  # it has the world's options
if rank < 2:
    assert part.name() == "accl" and part._hints == {"accl.max_eager_size": "32768"}, part._hints
    x = torch.ones(10)
    dist.all_reduce(x, group=part)
    assert x[0] == 2
split = chorus.split_group([[0, 2], [1], [0, 2]][rank])
assert split.name() == "accl" and dist.get_backend(split) == "accl"
x = torch.ones(10)
dist.all_reduce(x, group=split)
assert x[0] == split.size()
until_left(2)
if rank == 2:
    os.kill(os.getpid(), signal.SIGKILL)
begin = time.monotonic()
try:
    for _ in range(3):
        dist.all_reduce(torch.ones(100_000))
except chorus.PeerLostError as error:
    assert error.peer == 2, error
    assert time.monotonic() - begin < 20
    open(f"ok.{rank}", "w").close()
"""


def test_a_killed_rank_is_named(tmp_path):
    with Job(tmp_path, PROGRAM) as job:
        for process in job.processes:
            process.join(60)
    assert sorted(p.name for p in tmp_path.glob("ok.*")) == ["ok.0", "ok.1"]


EMULATED = """
import os, time
import torch
import torch.distributed as dist
import chorus

rank = int(os.environ["RANK"])
dist.init_process_group("accl", pg_options={{"emulator": {port}, "max_segment_size": 4096}})
for n in (1, 3000):
    x = torch.arange(n) * 1.0 + rank
    dist.all_reduce(x)
    assert torch.equal(x, torch.arange(n) * 3.0 + 3), x
dist.barrier()
open(f"ready.{{rank}}", "w").close()
while not os.path.exists("killed"):
    time.sleep(0.01)
try:
    dist.group.WORLD.comm.set_timeout(20_000_000_000)
    for _ in range(3):
        dist.barrier()
except chorus.PeerLostError as error:
    assert rank != 1 and error.peer == 1, error
except chorus.InternalError as error:
    assert rank == 1 and "rank 1" in str(error) and "the engine is gone" in str(error), error
open(f"ok.{{rank}}", "w").close()
os._exit(0)
"""


@pytest.mark.long
def test_a_killed_engine_is_named(tmp_path):
    """Engines run in processes of their own, and one of them is killed."""
    with contextlib.ExitStack() as stack:
        port = free_port()  # and the ports above it
        engines = []
        for rank in range(3):
            call = [command(), "accl", "emulate", "-s3", f"-r{rank}", f"-p{port}", "-ccyt_rdma", "-l1"]
            engine = subprocess.Popen(call)
            stack.callback(engine.wait)
            stack.callback(engine.kill)
            engines.append(engine)
        job = stack.enter_context(Job(tmp_path, EMULATED.format(port=port)))
        until = time.monotonic() + 60
        while len(list(tmp_path.glob("ready.*"))) < 3:
            assert time.monotonic() < until, "the ranks don't begin"
            time.sleep(0.05)
        engines[1].kill()
        engines[1].wait()
        (tmp_path / "killed").touch()
        for process in job.processes:
            process.join(60)
    assert sorted(p.name for p in tmp_path.glob("ok.*")) == ["ok.0", "ok.1", "ok.2"]


EXAMPLES = {
    (): r"2 engines, cyt_rdma: loss 0\.5\d+ after 40 steps; weights 0\.0e\+00 from Gloo's",
    ("-n", "3", "--protocol", "udp", "--compress"): r"3 engines, udp: loss 0\.5.+; weights .\..e-0[345] from Gloo's",
}


@pytest.mark.long
@pytest.mark.parametrize("args", [pytest.param((), marks=longest), ("-n", "3", "--protocol", "udp", "--compress")])
def test_example(args):
    program = [sys.executable, ROOT / "examples" / "accl" / "train.py", *args]
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert re.search(EXAMPLES[args], done.stdout), done.stdout
