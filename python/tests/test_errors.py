import datetime
import os
import resource
import time

import pytest
import torch
import torch.distributed as dist
from breaking import until_left
from torch._C import _distributed_c10d as c10d
from worlds import LONG, World, world_of

import chorus
from chorus.torchcomms import ReduceOp, distwrap


def _with_another(peers, x):
    """Collectives of tensors on the CPU together with one on another device, or one that isn't dense."""
    group, n = dist.group.WORLD, peers.size
    yield lambda other: group.allgather([[x] * (n - 1) + [other]], [x])
    yield lambda other: group.reduce_scatter([x], [[x] * (n - 1) + [other]])
    yield lambda other: group.alltoall([x] * n, [x] * (n - 1) + [other] if n > 1 else [x, other])
    yield lambda other: group.alltoall([x] * (n - 1) + [other], [x] * n)
    yield lambda other: group._allgather_base(other, x)
    yield lambda other: group._reduce_scatter_base(other, x)
    yield lambda other: group.alltoall_base(other, x, [], [])
    root = c10d.GatherOptions()
    root.rootRank = peers.rank
    yield lambda other: group.gather([[x] * (n - 1) + [other]], [x], root)
    root = c10d.ScatterOptions()
    root.rootRank = peers.rank
    yield lambda other: group.scatter([x], [[x] * (n - 1) + [other]], root)


def _narrow(peers):
    """Reductions of types with fewer bits than a byte."""
    names = [f"{kind}{bits}" for kind in ("uint", "int") for bits in range(1, 8)]
    for dtype in (getattr(torch, name) for name in names if hasattr(torch, name)):
        x = torch.ones(4, dtype=torch.uint8).view(dtype)
        many = torch.ones(4 * peers.size, dtype=torch.uint8).view(dtype)
        yield lambda x=x: dist.all_reduce(x)
        yield lambda x=x: dist.all_reduce(x, group=dist.group.WORLD, async_op=True)
        yield lambda x=x: dist.group.WORLD.allreduce([x])
        yield lambda x=x: dist.group.WORLD.allreduce_coalesced([x])
        yield lambda x=x: dist.reduce(x, 0)
        yield lambda x=x, many=many: dist.reduce_scatter_tensor(x, many)
        yield lambda x=x: dist.reduce_scatter(x, [x] * peers.size)
        yield lambda x=x: distwrap.get_comm(dist.group.WORLD).all_reduce(x, ReduceOp.SUM, False)


def _on_meta(peers, x):
    """Every operation on a tensor without elements."""
    many = torch.empty(len(x) * peers.size, device="meta")
    yield lambda: dist.all_reduce(x)
    yield lambda: dist.all_reduce(x, async_op=True)
    yield lambda: dist.group.WORLD.allreduce_coalesced([x])
    yield lambda: dist.broadcast(x, 0)
    yield lambda: dist.reduce(x, 0)
    yield lambda: dist.all_gather_into_tensor(many, x)
    yield lambda: dist.all_gather([x] * peers.size, x)
    yield lambda: dist.reduce_scatter_tensor(x, many)
    yield lambda: dist.reduce_scatter(x, [x] * peers.size)
    yield lambda: dist.all_to_all_single(x, x)
    yield lambda: dist.all_to_all([x] * peers.size, [x] * peers.size)
    yield lambda: dist.gather(x, [x] * peers.size if peers.rank == 0 else None)
    yield lambda: dist.scatter(x, [x] * peers.size if peers.rank == 0 else None)
    yield lambda: dist.isend(x, (peers.rank + 1) % peers.size)
    yield lambda: dist.irecv(x, (peers.rank + 1) % peers.size)


def _refused(peers):
    """Errors that one rank can detect are refused before anything moves; the group stays usable."""
    x = torch.ones(4)
    elsewhere, sparse = torch.empty(4, device="meta"), torch.ones(4).to_sparse()
    for call in (
        lambda: dist.all_gather([torch.ones(4)] * (peers.size + 1), x),
        lambda: dist.all_gather_into_tensor(torch.ones(4 * peers.size + 1), x),
        lambda: dist.all_gather_into_tensor(torch.ones(4 * peers.size, dtype=torch.int32), x),
        lambda: dist.reduce_scatter_tensor(x, torch.ones(4 * peers.size + 1)),
        lambda: dist.all_to_all_single(x, torch.ones(4), [1] * (peers.size + 1), [1] * peers.size),
        lambda: dist.group.WORLD.send([x], peers.size, 0),
        lambda: dist.group.WORLD.recv([x], -2, 0),
        lambda: dist.all_reduce(torch.ones(3), op=dist.ReduceOp.BAND),
        lambda: dist.all_reduce(torch.ones(3).to(torch.float8_e4m3fnuz)),
        *_narrow(peers),
        *_on_meta(peers, elsewhere),
        lambda: dist.group.WORLD.broadcast([x, x]),
        lambda: dist.broadcast(torch.sparse_coo_tensor([[0]], [1.0], (2,)), 0),
        *(lambda strange=strange: call(strange) for call in _with_another(peers, x) for strange in (elsewhere, sparse)),
        lambda: dist.group.WORLD.allreduce_coalesced([]),
        lambda: dist.group.WORLD.allgather_coalesced([[]] * peers.size, []),
        lambda: dist.group.WORLD.allgather_into_tensor_coalesced([], []),
        lambda: dist.group.WORLD.reduce_scatter_tensor_coalesced([], []),
        lambda: dist.all_to_all_single(
            x, torch.ones(4), [-1] + [5] + [0] * (peers.size - 2), [4] + [0] * (peers.size - 1)
        ),
        lambda: dist.group.WORLD.send([x], (peers.rank + 1) % peers.size, -3),
    ):
        with pytest.raises(chorus.InvalidArgumentError) as caught:
            call()
        assert isinstance(caught.value, dist.DistBackendError) and isinstance(caught.value, RuntimeError)
        assert caught.value.reporter == peers.rank and caught.value.op and caught.value.comm, (
            caught.value
        )
    dist.all_reduce(x)
    assert x[0] == peers.size and chorus.failure() is None


def test_refused(world):
    world.run(_refused)


def _lost_mismatch(peers):
    """Rank 0 has returned from a broadcast when rank 1 calls a barrier: destroying the group raises the mismatch."""
    group = dist.new_group()
    if peers.rank == 0:
        dist.broadcast(torch.ones(4), 0, group=group)
        dist.barrier()
        while chorus.failure(group) is None:
            time.sleep(0.01)
        with pytest.raises(chorus.MismatchError):
            dist.destroy_process_group(group)
    else:
        dist.barrier()
        with pytest.raises(chorus.MismatchError):
            dist.barrier(group=group)
        dist.destroy_process_group(group)


def test_lost_mismatch(pair):
    pair.run(_lost_mismatch)


def _mismatch(peers, async_op):
    group = dist.new_group()
    with pytest.raises(chorus.MismatchError) as caught:
        work = dist.all_reduce(torch.ones(4 + peers.rank), group=group, async_op=async_op)
        if async_op:
            work.wait()
    error = caught.value
    assert error.op == "all_reduce" and error.seq > 0 and set(error.ranks) == {0, 1}
    assert "4" in error.calls[error.ranks.index(0)] and "5" in error.calls[error.ranks.index(1)]
    with pytest.raises(chorus.Error):  # it stays broken, and says why
        dist.barrier(group)
    assert type(chorus.failure(group)) is chorus.MismatchError
    dist.destroy_process_group(group)
    dist.barrier()


@pytest.mark.parametrize("async_op", [False, True])
def test_mismatch(pair, async_op):
    pair.run(_mismatch, async_op)


def _timeout(peers, how):
    group = dist.new_group()
    dist.barrier()  # all have it
    group.set_timeout(datetime.timedelta(milliseconds=300))
    store = dist.distributed_c10d._get_default_store()
    if peers.rank == peers.size - 1:
        store.wait([f"timed out {how}"], datetime.timedelta(seconds=30))
    else:
        with pytest.raises(chorus.TimeoutError) as caught:
            if how == "monitored_barrier":
                chorus.monitored_barrier(group, datetime.timedelta(milliseconds=200))
            elif how == "wait":
                dist.all_reduce(torch.ones(4), group=group, async_op=True).wait()
            elif how == "future":
                dist.all_reduce(torch.ones(4), group=group, async_op=True).get_future().wait()
            else:
                dist.all_reduce(torch.ones(4), group=group)
        error = caught.value
        assert error.missing_ranks == (peers.size - 1,), error
        assert error.elapsed >= 0.15 and error.seq == 1
        assert (f"(Rank {peers.size - 1} failed to pass monitoredBarrier in 200 ms)" in str(error)) == (
            how == "monitored_barrier"
        )
        assert error.op == ("barrier" if how == "monitored_barrier" else "all_reduce")
        if peers.rank == 0:
            store.set(f"timed out {how}", "1")
    dist.destroy_process_group(group)
    dist.barrier()


@pytest.mark.parametrize("how", ["call", "wait", "future", "monitored_barrier"])
def test_timeout(how):
    world_of(3).run(_timeout, how)


def test_names_of_ranks():
    """``rank`` would be the lost rank, or the one that reports: exceptions have neither under that name."""
    for kind in chorus.PeerLostError, chorus.AbortedError, chorus.TimeoutError:
        error = kind("over", reporter=0, peer=1, by=2)
        assert (error.reporter, error.peer, error.by) == (0, 1, 2) and not hasattr(error, "rank")


def _abort(peers):
    group = dist.new_group()
    until_left(0)
    if peers.rank == 0:
        group.abort()
    with pytest.raises(chorus.AbortedError) as caught:
        while True:
            dist.all_reduce(torch.ones(4), group=group)
    assert (caught.value.reporter, caught.value.peer, caught.value.by) == (peers.rank, -1, 0)
    dist.destroy_process_group(group)
    with pytest.raises((chorus.FinalizedError, chorus.AbortedError)):  # PyTorch 2.6 doesn't shut the group down
        group.barrier().wait()
    dist.barrier()


def test_abort():
    world_of(3).run(_abort)


def _killed(peers):
    dist.barrier()
    until_left(1)
    if peers.rank == 1:
        os.kill(os.getpid(), 9)
    begin = time.monotonic()
    with pytest.raises(chorus.PeerLostError) as caught:
        while True:
            dist.all_reduce(torch.ones(1 << 16))
    error = caught.value
    assert error.reporter == peers.rank and error.by == -1, vars(error)
    assert error.peer == 1 and error.missing_ranks == (1,) and error.op == "all_reduce" and error.seq > 0, vars(error)
    return time.monotonic() - begin


def test_killed_rank_is_named():
    world = World(3)
    for pipe in world.pipes:
        pipe.send((_killed, ()))
    for rank in (0, 2):
        assert world.pipes[rank].poll(30)
        fine, value = world.pipes[rank].recv()
        assert fine, value
    world.kill()


def _hungry(peers, left):
    """A rank has few descriptors left while all make a group. Its error says so, and the others' name the rank; the
    default group goes on."""
    culprit = peers.size - 1
    dist.barrier()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if peers.rank == culprit:
        # One of the descriptors in use is the directory's.
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1 + left, before[1]))
    began = time.monotonic()
    try:
        group = dist.new_group(timeout=datetime.timedelta(seconds=30))
        dist.barrier(group)
        dist.destroy_process_group(group)
        error = None
    except chorus.Error as e:
        error = type(e).__name__, e.by if isinstance(e, chorus.AbortedError) else e.reporter, str(e)
    took = time.monotonic() - began
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    x = torch.ones(4)
    dist.all_reduce(x)
    assert x.tolist() == [peers.size] * 4
    return error, took


def _crowded(peers):
    """A rank may open 24 more descriptors, and all ranks make 20 groups and keep them."""
    culprit = peers.size - 1
    dist.barrier()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if peers.rank == culprit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1 + 24, before[1]))
    began, groups, error = time.monotonic(), [], None
    try:
        for _ in range(20):
            groups.append(dist.new_group(timeout=datetime.timedelta(seconds=30)))
            dist.barrier(groups[-1])
    except chorus.Error as e:
        error = type(e).__name__, e.by if isinstance(e, chorus.AbortedError) else e.reporter, str(e)
    took = time.monotonic() - began
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    for group in groups:
        dist.destroy_process_group(group)
    dist.barrier()
    return error, took, len(groups)


def test_twenty_groups_of_few_descriptors():
    answers = world_of(3).run(_crowded)
    culprit = len(answers) - 1
    for rank, (error, took, made) in enumerate(answers):
        assert took < 10 and made == answers[0][2] < 20, answers
        assert error[0] == ("InternalError" if rank == culprit else "AbortedError"), answers
        assert error[1] == culprit and "too many open files" in error[2], answers


@pytest.mark.parametrize("left", range(41) if LONG else [0, 1, 2, 3, 4, 8])
def test_new_group_without_descriptors(left):
    world = world_of(3)
    answers = world.run(_hungry, left)
    culprit = len(answers) - 1
    hungry = answers[culprit][0] is not None
    for rank, (error, took) in enumerate(answers):
        assert took < 5, answers
        if not hungry:
            assert error is None, answers
        else:
            assert error[0] == ("InternalError" if rank == culprit else "AbortedError"), answers
            assert error[1] == culprit and "too many open files" in error[2], answers
