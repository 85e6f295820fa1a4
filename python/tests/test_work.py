import datetime
import threading
import time
import weakref

import pytest
import torch
import torch.distributed as dist

import chorus
from chorus import _comm


def _future(peers):
    for n in (4, 1 << 18):
        x = torch.ones(n)
        future = dist.all_reduce(x, async_op=True).get_future()
        doubled = future.then(lambda f: f.value()[0] * 2)
        assert doubled.wait()[0] == 2 * peers.size
        assert future.wait()[0] is x and future.done()
    outs = [torch.zeros(2) for _ in range(peers.size)]
    work = dist.all_gather(outs, torch.full((2,), float(peers.rank)), async_op=True)
    assert work.get_future().wait() is not None
    assert work.get_future().wait() is not None, "a second future, of a work that is done"
    assert [o[0].item() for o in work.result()] == list(range(peers.size))
    assert work.get_future_result().wait() == 0


def test_future(world):
    world.run(_future)


def _future_in_callback(peers):
    """A callback of a finished operation may wait for another operation."""

    def again(future):
        return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]

    future = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(again).then(lambda f: f.value() + 1)
    assert future.wait().tolist() == [peers.size**2 + 1] * 3


def test_future_in_callback(world):
    world.run(_future_in_callback)


def _messages_future(peers):
    """A pending message delays no other future."""
    out = torch.zeros(3)
    if peers.rank == 0:
        pending = dist.irecv(out, 1)
        future = pending.get_future()
        assert dist.all_reduce(torch.ones(3), async_op=True).get_future().wait()
        assert not future.done() and not pending.is_completed()
        dist.barrier()
        future.wait()
        assert out.tolist() == [5.0] * 3 and pending.is_success() and pending.source_rank() == 1
    else:
        dist.all_reduce(torch.ones(3))
        dist.barrier()
        dist.send(torch.full((3,), 5.0), 0)


def test_messages_future(pair):
    pair.run(_messages_future)


def _wait_timeout(peers):
    """A wait may end before the operation does, which goes on."""
    out = torch.zeros(3)
    if peers.rank == 0:
        work = dist.irecv(out, 1)
        with pytest.raises(chorus.TimeoutError):
            work.wait(datetime.timedelta(milliseconds=50))
        dist.barrier()
        work.wait(datetime.timedelta(seconds=30))
        assert out.tolist() == [1.0] * 3
    else:
        dist.barrier()
        dist.send(torch.ones(3), 0)


def test_wait_timeout(pair):
    pair.run(_wait_timeout)


def _tensors_live(peers):
    """The tensors of an operation live until it's done, and no longer."""
    big = torch.ones(1 << 16)
    gone = weakref.ref(big)
    if peers.rank == 0:
        dist.irecv(big, 1)  # the work is dropped
        del big
        assert gone() is not None
        dist.barrier()
        while gone() is not None:
            _comm.sweep()
    else:
        dist.barrier()
        dist.send(big, 0)
    works = [dist.all_reduce(torch.ones(8), async_op=True) for _ in range(300)]
    for work in works:
        work.wait()
    for _ in range(300):
        dist.all_reduce(torch.ones(8), async_op=True)
    dist.barrier()
    _comm.sweep()
    assert not _comm._live


def test_tensors_live(pair):
    pair.run(_tensors_live)


def _gil(peers):
    """Other threads run while one waits."""
    if peers.rank == 0:

        def run():
            for _ in range(50):
                time.sleep(0.001)
            dist.barrier(peers.gloo)  # rank 1 sends afterwards

        thread = threading.Thread(target=run)
        thread.start()
        dist.recv(torch.zeros(1), 1)
        thread.join()
    else:
        dist.barrier(peers.gloo)
        dist.send(torch.ones(1), 0)


def test_gil(pair):
    pair.run(_gil)


def test_work_is_pytorchs():
    assert issubclass(chorus.Work, dist.Work)
