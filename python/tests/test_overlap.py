"""All-reduces that are issued in a backward pass and wait for its end."""

import gc
import os
import threading
import time
import types
import weakref

import pytest
import torch
import torch.distributed as dist

import chorus
from chorus import _held
from chorus.torchcomms import ReduceOp, distwrap


def _pass(*calls, tail=None):
    """A backward pass that calls each of ``calls`` on its way; returns what they returned."""
    results = []
    x = torch.ones(3, requires_grad=True)
    y = x
    for call in reversed(calls):
        y = y * 1
        y.register_hook(lambda grad, call=call: results.append(call()))
    if tail is not None:
        x.register_hook(tail)
    y.sum().backward()
    return results


def _world(overlap=False):
    group = dist.group.WORLD
    group.overlap, group.comm.patience = overlap, 3
    return group


def _goes_on_meanwhile(x):
    """Whether an all-reduce that a pass issues isn't held."""
    return _pass(lambda: dist.all_reduce(x, async_op=True) and dist.group.WORLD.comm.holding) == [False]


def _held_until_the_end(peers):
    group = _world()
    issued = group.comm.issued
    x, y, gone = torch.full((5,), float(peers.rank)), torch.ones(4, 4).t(), []

    def first():
        work = dist.all_reduce(x, async_op=True)
        assert group.comm.holding and group.comm.issued == issued
        return work

    def dropped():
        big = torch.ones(1 << 16)
        gone.append(weakref.ref(big))
        dist.all_reduce(big, async_op=True)

    work, future, _ = _pass(first, lambda: dist.all_reduce(y[:, 1:], async_op=True).get_future(), dropped)
    assert not group.comm.holding and group.comm.issued == issued + 3
    assert x.tolist() == [sum(range(peers.size))] * 5, "the pass is over, and with it what it held"
    assert work.is_completed() and work.is_success() and work.wait() and work.result() == [x]
    assert future.done() and torch.equal(future.value()[0], torch.full((4, 3), float(peers.size)))
    assert y[:, 0].tolist() == [1.0] * 4
    gc.collect()  # in PyTorch 2.6 a tensor and its Work hold each other
    assert gone[0]() is None, "a tensor outlived its operation"

    group.overlap = True
    assert _goes_on_meanwhile(x)
    _world(None)


def test_held_until_the_end(world):
    world.run(_held_until_the_end)


def _asked_for(peers):
    """Whoever asks for what is held, or anything else of the communicator, has it at once and in order."""
    group = _world()
    comm = distwrap.get_comm(group)

    def after(ask):
        x = torch.ones(2)

        def call():
            work = dist.all_reduce(x, async_op=True)
            assert group.comm.holding
            result = ask(work, x)
            assert not group.comm.holding
            return result

        (result,) = _pass(call)
        return result

    def polled(work, x):
        while not work.is_completed():
            pass
        return x[0].item()

    n = peers.size
    assert after(lambda work, x: work.wait() and x[0].item()) == n
    assert after(polled) == n
    assert after(lambda work, x: dist.all_reduce(x) or x[0].item()) == n * n
    assert after(lambda work, x: (comm.all_reduce(x, ReduceOp.SUM, async_op=False), x[0].item())[1]) == n * n
    assert after(lambda work, x: dist.barrier() or x[0].item()) == n
    assert after(lambda work, x: (dist.broadcast(x, 0, async_op=True).wait(), x[0].item())[1]) == n

    def coalesced(work, x):
        with dist._coalescing_manager():
            dist.all_reduce(x)
        return x[0].item()

    assert after(coalesced) == n * n
    assert after(lambda work, x: (chorus.split_group(list(range(n))), x[0].item())[1]) == n
    _world(None)


def test_asked_for(world):
    world.run(_asked_for)


def _still(peers):
    """A wait in the pass that only C++ sees takes until the pass is found to stand still, three times; from then on nothing is held."""
    group = _world()
    x = torch.ones(2)
    for left in (2, 1, 0):
        x.fill_(1)
        _pass(lambda: dist.all_reduce(x, async_op=True).get_future().wait())
        assert x[0] == peers.size and group.comm.patience == left
    assert _goes_on_meanwhile(x)
    _world(None)


def test_still(pair):
    pair.run(_still)


def _busy(peers):
    """A pass that takes long doesn't stand still."""
    group = _world()
    x = torch.ones(2)
    dist.barrier()

    def compute():
        end = time.thread_time() + 4 * _held._LOOK
        while time.thread_time() < end:
            torch.ones(1000).sum()
        return group.comm.holding

    assert _pass(lambda: dist.all_reduce(x, async_op=True) and None, compute) == [None, True]
    assert x[0] == peers.size and group.comm.patience == 3
    _world(None)


def test_busy(pair):
    pair.run(_busy)


def _failed_pass(peers):
    """What a pass has issued that failed later is issued, before what comes next."""
    _world()
    x = torch.ones(2)

    def fail():
        raise KeyError("in the pass")

    with pytest.raises(KeyError, match="in the pass"):
        _pass(lambda: dist.all_reduce(x, async_op=True) and None, fail)
    y = torch.ones(2)
    dist.all_reduce(y)
    assert x[0] == y[0] == peers.size
    _world(None)


def test_failed_pass(pair):
    pair.run(_failed_pass)


def _several_groups(peers):
    """Ranks may come to their groups in different orders."""
    groups = [dist.new_group(backend="chorus"), dist.new_group(backend="chorus")]
    xs = [torch.ones(2), torch.ones(2)]
    for group in groups:
        group.overlap = False
    order = [0, 1] if peers.rank == 0 else [1, 0]
    works = _pass(*[lambda i=i: dist.all_reduce(xs[i], group=groups[i], async_op=True) for i in order])
    for work in works:
        work.wait()
    assert [x[0].item() for x in xs] == [peers.size] * 2
    for group in groups:
        dist.destroy_process_group(group)


def test_several_groups(pair):
    pair.run(_several_groups)


def _waited_for_elsewhere(peers):
    """Another thread waits while the end of the pass is at it."""
    _world()
    x = torch.ones(2)
    answers = []

    def wait(work):
        work.wait()
        answers.append(x[0].item())

    def call():
        work = dist.all_reduce(x, async_op=True)
        thread = threading.Thread(target=wait, args=(work,))
        if peers.rank == 0:  # rank 1 comes a little later to the end of its pass
            torch.autograd.Variable._execution_engine.queue_callback(thread.join)
            threading.Timer(0.05, thread.start).start()
        return thread

    def late(_):
        if peers.rank == 1:
            time.sleep(0.15)

    _pass(call, tail=late)
    assert answers == ([peers.size] if peers.rank == 0 else [])
    _world(None)


def test_waited_for_elsewhere(pair):
    pair.run(_waited_for_elsewhere)


def _broken(peers):
    """The error of what was held is its waiters', also by their futures."""
    group = dist.new_group(backend="chorus")
    group.overlap = False
    x = torch.ones(2 + peers.rank)
    work, future = _pass(lambda: dist.all_reduce(x, group=group, async_op=True), lambda: dist.all_reduce(x, group=group, async_op=True).get_future())
    with pytest.raises(chorus.MismatchError, match="all_reduce"):
        work.wait()
    with pytest.raises(chorus.MismatchError):
        future.wait()
    assert isinstance(work.exception(), chorus.MismatchError)
    dist.destroy_process_group(group)


def test_broken(pair):
    pair.run(_broken)


@pytest.mark.parametrize(
    "size, local, threads, launched, cores, crowded",
    [
        (2, 2, 1, 0, 2, True),
        (2, 2, 1, 0, 3, False),
        (2, 2, 4, 0, 8, True),
        (2, 2, 4, 0, 9, False),
        (1, 1, 8, 0, 2, False),  # nobody to wait for
        (2, 1, 8, 0, 2, False),  # a network to hide
        (2, 0, 8, 0, 2, False),  # not known
        (2, 2, 2, 4, 8, True),  # a group of some of the ranks
        (2, 2, 2, 4, 9, False),
    ],
)
def test_crowded(monkeypatch, size, local, threads, launched, cores, crowded):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(cores))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(launched))
    assert _held.crowded(types.SimpleNamespace(size=size, local_size=local)) == crowded


def test_crowded_where_bound(monkeypatch):
    """A rank that is bound to as many cores as it has threads."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(64 if pid == 1 else 4))
    assert _held.crowded(types.SimpleNamespace(size=2, local_size=2))


def test_without_a_view_of_the_first_process(monkeypatch):
    def affinity(pid):
        raise PermissionError

    monkeypatch.setattr(os, "sched_getaffinity", affinity)
    assert _held._cores() == os.cpu_count()
