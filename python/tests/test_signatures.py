"""The call signatures of a group's methods, and their behavior under PyTorch's modes."""

import datetime

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import chorus

NEW = tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 13)  # its short signatures take a timeout


def _signatures(peers):
    rank, size, most = peers.rank, peers.size, dist.ReduceOp.MAX
    late = {"timeout": datetime.timedelta(seconds=20)} if NEW else {}
    ins = [torch.arange(4.0) * (rank + r + 1) for r in range(size)]
    calls = [
        lambda g, x, *_: g.allreduce(x).wait() and x,
        lambda g, x, *_: g.allreduce(x, most).wait() and x,
        lambda g, x, *_: g.allreduce(x, op=most, **late).wait() and x,
        lambda g, x, *_: g.allreduce([x], most).wait() and x,
        lambda g, x, *_: g.broadcast(x, 1).wait() and x,
        lambda g, x, *_: g.broadcast(x, root=1, **late).wait() and x,
        lambda g, x, *_: g.reduce(x, 0, most).wait() and rank == 0 and x,
        lambda g, x, *_: g.reduce(x, root=0, **late).wait() and rank == 0 and x,
        lambda g, x, out, outs: g.allgather(outs, x).wait() and outs,
        lambda g, *_: g.barrier(**late).wait(),
    ]
    if NEW:  # before, Gloo refuses these
        calls += [
            lambda g, x, out, outs: g.alltoall(outs, ins).wait() and outs,
            lambda g, x, out, outs: g.reduce_scatter(out, ins).wait() and out,
            lambda g, x, out, outs: g.gather(outs if rank == 0 else [], x, 0).wait() and rank == 0 and outs,
            lambda g, x, out, outs: g.scatter(out, ins if rank == 1 else [], root=1).wait() and out,
        ]
    for i, call in enumerate(calls):
        ours, theirs = (
            call(group, torch.arange(4.0) + rank, torch.zeros(4), [torch.zeros(4) for _ in range(size)])
            for group in (dist.group.WORLD, peers.gloo)
        )
        assert str(ours) == str(theirs), f"call {i}: {ours}, {theirs}"


def test_short_forms_like_gloo(pair):
    pair.run(_signatures)


def _unknown(peers):
    group = dist.group.WORLD
    with pytest.raises(TypeError, match="color"):
        group.allreduce(torch.ones(1), color="red")
    with pytest.raises(TypeError, match="root"):
        group.allreduce(torch.ones(1), root=0)
    with pytest.raises(TypeError, match="arguments"):
        group.allreduce(torch.ones(1), dist.ReduceOp.SUM, None, 4)
    dist.barrier()


def test_unknown_arguments(pair):
    pair.run(_unknown)


def _fake(peers):
    issued = dist.group.WORLD.comm.issued
    with FakeTensorMode():
        x, wide = torch.ones(4), torch.ones(4 * peers.size)
        dist.all_reduce(x)
        dist.all_reduce(x, async_op=True).wait()
        dist.broadcast(x, 0)
        dist.all_gather([torch.ones(4) for _ in range(peers.size)], x)
        dist.all_gather_into_tensor(wide, x)
        dist.reduce_scatter_tensor(x, wide)
        dist.all_to_all_single(wide, wide)
        dist.send(x, 1 - peers.rank)
        dist.recv(x, 1 - peers.rank)
        assert isinstance(x, FakeTensor)
        assert x.shape == (4,)
    assert dist.group.WORLD.comm.issued == issued, "something without elements was sent"


def test_tensors_without_elements(pair):
    pair.run(_fake)


def _traced(peers):
    def step(x):
        dist.all_reduce(x)
        return x * 2

    for kind in ("real", "fake"):
        with pytest.raises(chorus.UnsupportedError, match="make_fx"):
            make_fx(step, tracing_mode=kind)(torch.ones(2))
    assert step(torch.ones(2)).tolist() == [2.0 * peers.size] * 2


def test_a_graph_that_would_miss_it(pair):
    pair.run(_traced)


def _inference(peers):
    """Results are copied into inference tensors by a thread that isn't in inference mode."""
    with torch.inference_mode():
        strange = [torch.arange(6.0).view(2, 3).t() for _ in range(20)]
        works = [dist.all_reduce(t, async_op=True) for t in strange]
        torch.ones(1 << 20).sum()
        for work in works:
            work.wait()
        assert all(torch.equal(t, peers.size * torch.arange(6.0).view(2, 3).t()) for t in strange)


def test_inference_tensors(pair):
    pair.run(_inference)


def _members(_):
    import inspect

    assert "allreduce" in dict(inspect.getmembers(dist.group.WORLD))


def test_every_attribute_can_be_read(pair):
    pair.run(_members)
