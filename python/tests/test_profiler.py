"""Operations in PyTorch's profiler."""

import pytest
import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

import chorus
from chorus.torchcomms import ReduceOp, distwrap

# Older versions issue most operations as asynchronous ones.
OLD = tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 7)


def _calls(peers, group):
    """Operations with the same name in both backends: the names, and calls that return a Work if asynchronous."""
    n, r = peers.size, peers.rank
    x = torch.ones(6)
    parts = [torch.empty(6) for _ in range(n)]
    root = dict(group=group, async_op=False)
    yield "all_reduce", lambda a: dist.all_reduce(x, group=group, async_op=a)
    yield "broadcast", lambda a: dist.broadcast(x, 0, group=group, async_op=a)
    yield "reduce", lambda a: dist.reduce(x, 0, group=group, async_op=a)
    yield "all_gather", lambda a: dist.all_gather(parts, x, group=group, async_op=a)
    yield "gather", lambda a: dist.gather(x, parts if r == 0 else None, 0, **root | {"async_op": a})
    yield "scatter", lambda a: dist.scatter(torch.empty(6), parts if r == 0 else None, 0, **root | {"async_op": a})
    yield "barrier", lambda a: dist.barrier(group=group, async_op=a)
    if r == 0:
        yield "send", lambda a: dist.isend(x, 1, group=group) if a else dist.send(x, 1, group=group)
    if r == 1:
        yield "recv", lambda a: dist.irecv(x, 0, group=group) if a else dist.recv(x, 0, group=group)


def _profiled(*calls):
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as p:
        for call in calls:
            work = call()
            if isinstance(work, dist.Work):
                work.wait()
        with record_function("over"):
            dist.barrier()  # by its end the background thread has written all events
    events = p.events()
    over = next(e.time_range.start for e in events if e.name == "over")
    return [e for e in events if e.name.startswith(("gloo:", "chorus:")) and e.time_range.start < over]


def _like_gloo(peers, asynchronous):
    named = {}
    for backend, group in (("chorus", dist.group.WORLD), ("gloo", peers.gloo)):
        names, calls = zip(*_calls(peers, group), strict=True)
        events = _profiled(*(lambda call=call: call(asynchronous) for call in calls))
        wanted = [f"{backend}:{name}" for name in names]
        named[backend] = [e.name.removeprefix(f"{backend}:") for e in events if e.name in wanted]
        assert named[backend] == list(names), f"{named[backend]} for {wanted}"
        if backend == "chorus":
            _facts_hold(peers, events, names, asynchronous)


def _facts_hold(peers, events, names, asynchronous):
    calls = [e for e in events if e.name.startswith("chorus:issue:") or (not e.is_async and e.kwinputs)]
    assert [e.name.rpartition(":")[2] for e in calls] == list(names)
    for event, name in zip(calls, names, strict=True):
        assert event.kwinputs["group"] == dist.group.WORLD.comm.name
        assert event.kwinputs["rank"] == peers.rank
        if name in ("send", "recv"):
            assert event.kwinputs["peer"] == 1 - peers.rank
            assert "seq" not in event.kwinputs
        else:
            assert event.kwinputs["seq"] > 0
        assert ("root" in event.kwinputs) == (name in ("broadcast", "reduce", "gather", "scatter"))
        if name != "barrier" and (name != "scatter" or peers.rank == 0):
            assert event.input_shapes[0] == [6]
    numbers = [e.kwinputs["seq"] for e in calls if "seq" in e.kwinputs]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    spans = [e for e in events if not e.kwinputs]
    issued = [name for e, name in zip(calls, names, strict=True) if e.name.startswith("chorus:issue:")]
    assert [s.name for s in spans] == [f"chorus:{name}" for name in issued]
    assert OLD or issued == [name for name in names if asynchronous or name in ("send", "recv")]
    for span in spans:
        call = next(e for e in calls if e.name == f"chorus:issue:{span.name.removeprefix('chorus:')}")
        assert span.is_async
        assert call.time_range.start <= span.time_range.start <= call.time_range.end <= span.time_range.end


@pytest.mark.parametrize("asynchronous", [False, True], ids=["synchronous", "asynchronous"])
def test_named_like_gloos(pair, asynchronous):
    pair.run(_like_gloo, asynchronous)


def _others(peers):
    group = dist.group.WORLD
    comm = distwrap.get_comm(group)
    x, peer = torch.ones(4), 1 - peers.rank

    def exchange():
        for work in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, torch.empty(4), peer)]
        ):
            work.wait()

    def coalesced():
        with dist._coalescing_manager(group, x.device, async_ops=True) as manager:
            dist.all_reduce(x)
            dist.all_reduce(x)
        manager.wait()

    def written_to():
        window = comm.new_window(torch.zeros(8))
        window.put(x, peer, 0, False)
        window.fence()

    def mismatched():
        other = dist.new_group()
        with pytest.raises(chorus.MismatchError):
            dist.all_reduce(torch.ones(4 + peers.rank), group=other)
        with pytest.raises(chorus.MismatchError):
            dist.all_reduce(torch.ones(4 + peers.rank), group=other, async_op=True).wait()

    def seen(*calls):
        return [e.name.removeprefix("chorus:") for e in _profiled(*calls)]

    assert seen(lambda: comm.all_reduce(x, ReduceOp.SUM, False) and None) == ["all_reduce"]
    # A batch is one event from PyTorch 2.15 on.
    assert sorted(seen(exchange)) in (["issue:recv", "issue:send", "recv", "send"], ["batch", "issue:batch"])
    assert seen(coalesced) == ["issue:batch", "batch"]
    assert seen(written_to) == ["put", "fence"]
    assert sum(name.endswith("all_reduce") for name in seen(mismatched)) >= 2


def test_other_operations(pair):
    pair.run(_others)


def _outlives(peers):
    x = torch.ones(3)
    with profile(activities=[ProfilerActivity.CPU]):
        work = dist.irecv(x, 1 - peers.rank)
    with profile(activities=[ProfilerActivity.CPU]) as p:
        dist.send(torch.full((3,), 7.0), 1 - peers.rank)
        work.wait()
    assert x.tolist() == [7, 7, 7]
    assert "chorus:send" in {e.name for e in p.events()}
    before = dist.group.WORLD.comm.issued
    dist.all_reduce(x)
    assert dist.group.WORLD.comm.issued == before + 1


def test_an_operation_that_outlives_the_profile(pair):
    pair.run(_outlives)
