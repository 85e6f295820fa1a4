"""Collectives on tensors of devices, between processes: results are those of CPU tensors in the same group."""

import datetime
import gc
import os
import signal
import time

import pytest
import torch
import torch.distributed as dist
from breaking import until_left
from calls import CALLS, values
from slow import busy, held
from worlds import World

import chorus
from chorus import _lib
from chorus._fastcall import OTHERWISE, POSSIBLE

OK = _lib.OK
N = 1 << 18  # elements of a tensor that is too large for a stage


def _device(rank):
    return torch.device("accinte", rank % torch.accinte.device_count())


DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8]


def _call(peers, name, asynchronous, **options):
    d = _device(peers.rank)
    for dtype in DTYPES:
        found = []
        for where in ("cpu", d):
            work, outs = CALLS[name](
                lambda which, shape, where=where: values(peers.rank, shape, dtype, which).to(where),
                peers.size,
                peers.rank,
                async_op=asynchronous,
                **options,
            )
            if asynchronous:
                assert work.wait()
            assert all(t.device == torch.device(where) for t in outs)
            found.append([t.cpu() for t in outs])
        for a, b in zip(*found, strict=True):
            assert torch.equal(a, b), (dtype, a, b)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("name", CALLS)
def test_as_on_the_cpu(pair, name, asynchronous):
    pair.run(_call, name, asynchronous)


def _on_engines(peers):
    """Collectives in a group over ACCL's engines."""
    group = dist.new_group(backend="accl")
    for name in CALLS:
        for asynchronous in (False, True):
            _call(peers, name, asynchronous, group=group)
    dist.destroy_process_group(group)


def test_on_engines(pair):
    pair.run(_on_engines)


def _without_staging(peers):
    comm = dist.group.WORLD.comm
    x = torch.full((N,), peers.rank + 1.0, device=_device(peers.rank))
    out = torch.empty(N * peers.size, device=x.device)
    before = comm.info()
    dist.all_reduce(x)
    dist.all_gather_into_tensor(out, x)
    dist.reduce_scatter_tensor(x, out)
    dist.broadcast(x, 0)
    dist.all_to_all_single(torch.empty_like(x), x)
    torch.accinte.synchronize(x.device)
    after = comm.info()
    assert after.mapped - before.mapped == 5 and after.staged == before.staged
    assert torch.equal(x.cpu(), torch.full((N,), float(peers.size * sum(range(1, peers.size + 1)))))


def test_nothing_is_staged_through_the_host(pair):
    """Devices of two processes reduce in place in each other's memory."""
    pair.run(_without_staging)


def _messages(peers):
    d, other = _device(peers.rank), 1 - peers.rank
    x, y = torch.full((1000,), float(peers.rank), device=d), torch.empty(1000, device=d)
    if peers.rank == 0:
        dist.send(x, 1, tag=3)
        dist.recv(y, 1)
    else:
        assert dist.recv(y, tag=3) == 0, "a receive from any source"
        dist.send(x, 0)
    assert torch.equal(y.cpu(), torch.full((1000,), float(other)))
    # Posted in the same order on both, into tensors that aren't contiguous.
    into = torch.zeros(100, 2, device=d)
    works = [
        dist.irecv(into[:, 0], other),
        dist.irecv(into[:, 1], other),
        dist.isend(x[:100], other),
        dist.isend(x[:100] + 5, other),
    ]
    for work in works:
        work.wait()
    assert into.cpu()[50].tolist() == [other, other + 5]
    ops = [dist.P2POp(dist.isend, x, other), dist.P2POp(dist.irecv, y.zero_(), other)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert torch.equal(y.cpu(), torch.full((1000,), float(other)))
    with dist._coalescing_manager(device=d, async_ops=True) as manager:
        for t in (x, y):
            dist.all_reduce(t)
    manager.wait()
    assert x.cpu()[0] == 1 and y.cpu()[0] == 1


def test_messages_and_batches(pair):
    pair.run(_messages)


def _order(peers):
    """A collective runs after a slow kernel, and before later work; the host waits for neither."""
    d = _device(peers.rank)
    x = torch.zeros(N, device=d)
    with busy(d, 0.01):
        x += 0  # PyTorch loads its Meta kernels when it first needs one
    with held(d):
        x += peers.rank + 1
        dist.all_reduce(x)
        x *= 2
        work = dist.all_reduce(x, async_op=True)
        assert not work.is_completed()
        side = torch.Stream(d)
        with side:
            work.wait()
            y = x + 1
        work.wait()
        future = dist.group.WORLD.allreduce([x.clone()]).get_future()
        assert future.done()
        assert not torch.accelerator.current_stream(d).query() and not side.query()
    side.synchronize()
    assert y.cpu()[7] == 13 and future.wait()[0].cpu()[3] == 24
    assert work.is_completed() and work.is_success()


def test_in_the_order_of_streams(pair):
    pair.run(_order)


def _memory(peers):
    """Tensors are dropped while operations on a busy stream use them: their memory isn't reused before the end."""
    d = _device(peers.rank)
    works = []
    with busy(d, 0.3):
        for i in range(8):
            x = torch.full((N,), float(i), device=d)
            works.append(
                (dist.all_reduce(x, async_op=True), x[:1]) if i == 7 else (dist.all_reduce(x, async_op=True), None)
            )
            del x
            with torch.Stream(d):
                torch.full((N,), -1.0, device=d)
    (last, x) = works[-1]
    last.wait()
    assert x.item() == 14
    del works, last, x
    gc.collect()
    torch.accinte.synchronize(d)
    before = torch.accinte.memory_allocated(d)
    for _ in range(20):
        dist.all_reduce(torch.ones(N, device=d), async_op=True)
    torch.accinte.synchronize(d)
    dist.barrier()
    assert torch.accinte.memory_allocated(d) == before, "operations without a waiter keep memory"


def test_memory_of_operations_under_way(pair):
    pair.run(_memory)


def _late(peers):
    """A call doesn't wait for the program of another rank, and its tensor may be dropped."""
    d = _device(peers.rank)
    x = torch.full((N,), peers.rank + 1.0, device=d)
    dist.barrier()
    if peers.rank == 1:
        dist.barrier(peers.gloo)  # rank 0's call has returned
    dist.all_reduce(x)
    if peers.rank == 0:
        dist.barrier(peers.gloo)
    y = x + 1
    del x
    with torch.Stream(d):
        torch.full((N,), -1.0, device=d)
    assert y.cpu().eq(4).all()


def test_a_rank_that_is_late(pair):
    pair.run(_late)


def _one_call(peers):
    """Collectives that are one call from Python into the library."""
    d = _device(peers.rank)
    group = dist.new_group(backend="cpu:gloo,accinte:chorus", timeout=datetime.timedelta(seconds=60))
    for of, host in ((dist.group.WORLD, OK), (group, OTHERWISE)):
        x = torch.full((2, 3), peers.rank + 1.0, device=d)
        dist.all_reduce(x, group=of)  # the first tensor of the device binds the group
        assert x.cpu().eq(3).all()
        submit = of.comm.submit
        for tensor, status in (
            (x, OK),
            (x.to(torch.uint8), OK),
            (x[:0], OK),
            (x.t(), OTHERWISE),
            (x.cpu(), host),
            (x.to(torch.complex64), OTHERWISE),
            (torch.ones(2, device="meta"), OTHERWISE),
        ):
            assert submit(_lib.BROADCAST, 0, 0, 0, 0, False, tensor) == status, tensor
        out = torch.zeros(4, 3, device=d)
        assert submit(_lib.ALL_GATHER_SINGLE, 0, 0, 0, 0, False, out, x) == OK
        assert out.cpu().eq(3).all()
        assert submit(_lib.ALL_GATHER_SINGLE, 0, 0, 0, 0, False, out, x.cpu()) == OTHERWISE
        assert submit(_lib.BARRIER, 0, 0, 0, 0, False) == OTHERWISE
        wrong = torch.ones(2, device=_device(peers.rank + 1))
        assert submit(_lib.BROADCAST, 0, 0, 0, 0, False, wrong) == _lib.INVALID_ARGUMENT
    dist.destroy_process_group(group)


@pytest.mark.skipif(not POSSIBLE, reason="this PyTorch can't tell the library what a tensor is")
def test_one_call(pair):
    pair.run(_one_call)


def _mixed(peers):
    d, n = _device(peers.rank), peers.size
    total = sum(range(1, n + 1))
    for i in range(10):
        a, b = torch.full((50,), peers.rank + 1.0), torch.full((50,), peers.rank + 1.0, device=d)
        works = [dist.all_reduce(t, async_op=True) for t in ((a, b) if i % 2 else (b, a))]
        dist.all_reduce(b.clone())
        for work in works:
            work.wait()
        assert a[0] == total and b.cpu()[0] == total
    names = [None] * n
    dist.all_gather_object(names, peers.rank)
    assert names == list(range(n))
    dist.barrier()
    with pytest.raises(chorus.InvalidArgumentError, match="is on accinte:.*, and another on the CPU"):
        dist.all_gather_into_tensor(torch.zeros(n), torch.ones(1, device=d))
    with pytest.raises(chorus.InvalidArgumentError, match="the communicator is for accinte"):
        dist.all_reduce(torch.ones(1, device=_device(peers.rank + 1)))
    part = dist.new_group(list(range(n)))
    x = torch.ones(3, device=_device(peers.rank + 1))  # another group may be bound to another device
    dist.all_reduce(x, group=part)
    assert x.cpu()[0] == n
    split = chorus.split_group(list(range(n)))
    x = torch.ones(3, device=d)
    dist.all_reduce(x, group=split)
    assert x.cpu()[0] == n
    dist.destroy_process_group(part)
    dist.destroy_process_group(split)


def test_tensors_of_host_and_device_in_one_group(pair):
    pair.run(_mixed)


def _named(peers):
    """The backend that PyTorch chooses, for the device's tensors and by default, and a group that is bound to a device
    when it's made."""
    assert dist.get_backend_config() == "cpu:chorus,accinte:chorus"
    assert dist.Backend.default_device_backend_map["accinte"] == "chorus"
    assert dist.group.WORLD._device_types == [torch.device("cpu"), torch.device("accinte")]
    group = dist.new_group(backend="cpu:gloo,accinte:chorus", timeout=datetime.timedelta(seconds=60))
    for where in ("cpu", _device(peers.rank)):
        x = torch.ones(3, device=where)
        dist.all_reduce(x, group=group)
        assert x.cpu()[0] == peers.size
    dist.destroy_process_group(group)
    return group.comm.info().device


def test_which_backend(pair):
    assert pair.run(_named) == [b"accinte:0", b"accinte:1"]


def _differ(peers):
    group = dist.new_group(timeout=datetime.timedelta(seconds=20))
    x = torch.ones(N + peers.rank, device=_device(peers.rank))
    work = dist.all_reduce(x, group=group, async_op=True)
    while not work.is_completed():
        time.sleep(0.01)
    assert isinstance(work.exception(), chorus.MismatchError) and not work.is_success()
    side = torch.Stream(x.device)
    with side, pytest.raises(chorus.MismatchError):
        work.wait()
        side.synchronize()
    assert isinstance(group.failure, chorus.MismatchError)
    return str(work.exception())


def test_ranks_that_differ():
    world = World(2)  # a separate one, as its streams keep the error
    try:
        assert all("mismatch" in text or "calls" in text for text in world.run(_differ))
    finally:
        world.kill()


def _killed(peers):
    x = torch.ones(N, device=_device(peers.rank))
    dist.all_reduce(x)
    torch.accinte.synchronize(x.device)
    until_left(1)
    if peers.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    with pytest.raises(chorus.PeerLostError) as lost:
        dist.all_reduce(x)
        torch.accinte.synchronize(x.device)
    assert lost.value.peer == 1 and lost.value.op == "all_reduce"
    assert time.monotonic() - begin < 10
    with pytest.raises(chorus.PeerLostError):
        dist.all_reduce(x)


def test_a_rank_is_killed():
    """The others' synchronization raises the same exception as in a group of the CPU, which names the rank."""
    world = World(3)
    try:
        for pipe in world.pipes:
            pipe.send((_killed, ()))
        for rank in (0, 2):
            assert world.pipes[rank].poll(60)
            fine, text = world.pipes[rank].recv()
            assert fine, text
    finally:
        world.kill()
