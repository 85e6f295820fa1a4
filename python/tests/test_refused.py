"""Invalid arguments: all interfaces refuse them before anything moves, and the group works as before."""

import datetime

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from test_torchcomms import SUM, join
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DTensor, Replicate, init_device_mesh

import chorus


def _fake(n):
    with FakeTensorMode():
        return torch.ones(n)


def _dtensor(n):
    return DTensor.from_local(torch.ones(n), init_device_mesh("cpu", (dist.get_world_size(),)), [Replicate()])


def _plain(n):
    return [torch.ones(4) for _ in range(n)]


def _coalesced(x, n, me, async_op):
    with dist._coalescing_manager(async_ops=async_op):
        dist.all_reduce(x)


def _batch(op):
    def call(x, n, me, async_op):
        for work in dist.batch_isend_irecv([dist.P2POp(op, x, 1 - me)]):
            work.wait()

    return call


# Each with a tensor of 4 elements for every one of n ranks.
WRITTEN = {
    "all_reduce": lambda x, n, me, **how: dist.all_reduce(x, **how),
    "all_reduce max": lambda x, n, me, **how: dist.all_reduce(x, dist.ReduceOp.MAX, **how),
    "broadcast": lambda x, n, me, **how: dist.broadcast(x, 1 - me, **how),
    "reduce": lambda x, n, me, **how: dist.reduce(x, me, **how),
    "all_gather": lambda x, n, me, **how: dist.all_gather([x, *_plain(n - 1)], torch.ones(4), **how),
    "gather": lambda x, n, me, **how: dist.gather(torch.ones(4), [x, *_plain(n - 1)], me, **how),
    "scatter": lambda x, n, me, **how: dist.scatter(x, _plain(n), me, **how),
    "reduce_scatter": lambda x, n, me, **how: dist.reduce_scatter(x, _plain(n), **how),
    "all_to_all": lambda x, n, me, **how: dist.all_to_all([x, *_plain(n - 1)], _plain(n), **how),
    "all_gather_into_tensor": lambda x, n, me, **how: dist.all_gather_into_tensor(x, torch.ones(4 // n), **how),
    "reduce_scatter_tensor": lambda x, n, me, **how: dist.reduce_scatter_tensor(x, torch.ones(4 * n), **how),
    "all_to_all_single": lambda x, n, me, **how: dist.all_to_all_single(x, torch.ones(4), **how),
    "coalesced": _coalesced,
    "recv": lambda x, n, me, async_op: dist.irecv(x, 1 - me).wait() if async_op else dist.recv(x, 1 - me),
    "batch": _batch(dist.irecv),
    "method": lambda x, n, me, async_op: dist.group.WORLD.allreduce([x]).wait(),
}
READ = {
    "broadcast": lambda x, n, me, **how: dist.broadcast(x, me, **how),
    "reduce": lambda x, n, me, **how: dist.reduce(x, 1 - me, **how),
    "all_gather": lambda x, n, me, **how: dist.all_gather(_plain(n), x, **how),
    "gather": lambda x, n, me, **how: dist.gather(x, dst=1 - me, **how),
    "scatter": lambda x, n, me, **how: dist.scatter(torch.ones(4), [x, *_plain(n - 1)], me, **how),
    "reduce_scatter": lambda x, n, me, **how: dist.reduce_scatter(torch.ones(4), [x, *_plain(n - 1)], **how),
    "all_to_all": lambda x, n, me, **how: dist.all_to_all(_plain(n), [x, *_plain(n - 1)], **how),
    "all_gather_into_tensor": lambda x, n, me, **how: dist.all_gather_into_tensor(torch.ones(4 * n), x, **how),
    "reduce_scatter_tensor": lambda x, n, me, **how: dist.reduce_scatter_tensor(torch.ones(4 // n), x, **how),
    "all_to_all_single": lambda x, n, me, **how: dist.all_to_all_single(torch.ones(4), x, **how),
    "send": lambda x, n, me, async_op: dist.isend(x, 1 - me).wait() if async_op else dist.send(x, 1 - me),
    "batch": _batch(dist.isend),
}
COMMS_WRITTEN = {
    "all_reduce": lambda c, x, n, me, how: c.all_reduce(x, SUM, how),
    "broadcast": lambda c, x, n, me, how: c.broadcast(x, 1 - me, how),
    "reduce": lambda c, x, n, me, how: c.reduce(x, me, SUM, how),
    "all_gather": lambda c, x, n, me, how: c.all_gather([x, *_plain(n - 1)], torch.ones(4), how),
    "all_gather_v": lambda c, x, n, me, how: c.all_gather_v([x, *_plain(n - 1)], torch.ones(4), how),
    "all_gather_single": lambda c, x, n, me, how: c.all_gather_single(x, torch.ones(4 // n), how),
    "reduce_scatter": lambda c, x, n, me, how: c.reduce_scatter(x, _plain(n), SUM, how),
    "reduce_scatter_single": lambda c, x, n, me, how: c.reduce_scatter_single(x, torch.ones(4 * n), SUM, how),
    "all_to_all": lambda c, x, n, me, how: c.all_to_all([x, *_plain(n - 1)], _plain(n), how),
    "all_to_all_single": lambda c, x, n, me, how: c.all_to_all_single(x, torch.ones(4), how),
    "all_to_all_v_single": lambda c, x, n, me, how: (
        c.all_to_all_v_single(x, torch.ones(4), [x.size(0) // n] * n, [x.size(0) // n] * n, how)
    ),
    "gather": lambda c, x, n, me, how: c.gather([x, *_plain(n - 1)], torch.ones(4), me, how),
    "scatter": lambda c, x, n, me, how: c.scatter(x, _plain(n), me, how),
    "recv": lambda c, x, n, me, how: c.recv(x, 1 - me, how),
}
MEMORYLESS = {
    "DTensor": _dtensor,
    "zero tensor": torch._efficientzerotensor,
    "FakeTensor": _fake,
}


def _tensors(peers):
    n, me = peers.size, peers.rank
    overlapping = {"expanded": torch.ones(1).expand(4), "strided": torch.ones(3).as_strided((2, 2), (1, 1))}
    comm = join(peers)
    for async_op in (False, True):
        for name, call in WRITTEN.items():
            for how, x in overlapping.items():
                with pytest.raises(chorus.InvalidArgumentError, match="share memory"):
                    print(name, how, call(x, n, me, async_op=async_op))
                assert x.eq(1).all()
        for name, call in (*WRITTEN.items(), *READ.items()):
            for kind, make in MEMORYLESS.items():
                with pytest.raises(chorus.InvalidArgumentError, match=f"a {kind} has no memory of its own"):
                    print(name, call(make(4), n, me, async_op=async_op))
        for name, call in COMMS_WRITTEN.items():
            for x in overlapping.values():
                with pytest.raises(chorus.InvalidArgumentError, match="share memory"):
                    print(name, call(comm, x, n, me, async_op))
            for kind, make in MEMORYLESS.items():
                with pytest.raises(chorus.InvalidArgumentError, match=f"a {kind} has no memory of its own"):
                    print(name, call(comm, make(4), n, me, async_op))
    with pytest.raises(chorus.InvalidArgumentError, match="share memory"):
        torch.ops._c10d_functional.all_reduce_(overlapping["expanded"], "sum", dist.group.WORLD.group_name)
    quantized = torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8)
    with pytest.raises(chorus.InvalidArgumentError, match="the tensor is quantized"):
        dist.broadcast(quantized, 0)
    torch.func.grad(lambda x: _in_grad(x).sum())(torch.ones(4))
    comm.finalize()
    x = torch.ones(4)
    dist.all_reduce(x)
    assert x.eq(n).all()


def _in_grad(x):
    with pytest.raises(chorus.InvalidArgumentError, match="has no memory of its own"):
        dist.all_reduce(x)
    return x


def test_tensors(pair):
    pair.run(_tensors)


def _still_taken(peers):
    """Tensors that look like refused ones, but are valid."""
    n = peers.size
    x = functional.all_reduce(torch.ones(4), "sum", dist.group.WORLD)  # it may not have been waited for
    dist.all_reduce(x)
    assert x.eq(n * n).all()
    x = torch.zeros(8)
    dist.all_reduce(x.as_strided((3, 2), (2, 3)).fill_(1))  # no two elements share memory
    assert x.tolist() == [n, 0, n, n, n, n, 0, n]
    dist.broadcast(torch.ones(1).expand(4) if peers.rank == 0 else torch.ones(4), 0)


def test_still_taken(pair):
    pair.run(_still_taken)


def _numbers(peers):
    group, x, me = dist.group.WORLD, torch.ones(4), peers.rank

    def options(kind, **values):
        made = kind()
        for name, value in values.items():
            setattr(made, name, value)
        return made

    for beyond in (2**31, 2**32 + 1, 2**40, -(2**40)):
        for call in (
            lambda v: dist.isend(x, 1 - me, tag=v),
            lambda v: dist.irecv(x, 1 - me, tag=v),
            lambda v: dist.irecv(x, tag=v),
            lambda v: group.send([x], v, 0),
            lambda v: group.recv([x], v, 0),
            *(
                lambda v, call=call, kind=kind, at_once=at_once: call(
                    options(kind, rootRank=v, asyncOp=not at_once)
                )
                for at_once in (False, True)
                for kind, call in (
                    (dist.BroadcastOptions, lambda o: group.broadcast([x], o)),
                    (dist.ReduceOptions, lambda o: group.reduce([x], o)),
                    (dist.ScatterOptions, lambda o: group.scatter([x], [], o)),
                    (dist.GatherOptions, lambda o: group.gather([], [x], o)),
                )
            ),
            lambda v: group.all_to_all_single(x, x.clone(), [v, 4 - v], [2, 2]).wait(),
            lambda v: group.split_group([v]),
        ):
            with pytest.raises(chorus.InvalidArgumentError, match="out of range|in range|split 0|negative tag"):
                print(beyond, call(beyond))
    with pytest.raises(chorus.InvalidArgumentError, match="no integer"):
        group.all_to_all_single(x, x.clone(), [2.0, 2.0], [2, 2])
    longest = datetime.timedelta.max  # the longest that the type can hold
    group.barrier(options(dist.BarrierOptions, timeout=datetime.timedelta(days=10**7), asyncOp=False))
    assert group.allreduce([x], options(dist.AllreduceOptions, timeout=datetime.timedelta(days=10**7))).wait(longest)
    group.monitored_barrier(longest)
    part = dist.new_group([0, 1], timeout=longest)
    part.set_timeout(longest)
    dist.barrier(part)


def test_numbers(pair):
    pair.run(_numbers)
