"""The form of the texts of errors."""

import datetime

import pytest
import torch
import torch.distributed as dist
from worlds import TIMEOUT, World

from chorus.process_group import ours
from chorus.torchcomms import ReduceOp, distwrap


def _texts(peers):
    """The texts of real errors: refusals, timeouts, mismatches, aborts, lost ranks, and failed starts."""
    found = {}

    def note(name, call):
        with pytest.raises(Exception) as e:
            call()
        found[name] = str(e.value)

    def group():
        return dist.new_group([0, 1], timeout=datetime.timedelta(seconds=TIMEOUT))

    def meet():
        dist.barrier(group=peers.gloo)

    first = peers.rank == 0
    x = torch.ones(4)
    note("refused", lambda: dist.all_gather_into_tensor(torch.ones(9), x))
    meta, torchcomm = torch.ones(4, device="meta"), distwrap.get_comm(dist.group.WORLD)
    note("refused, of torchcomms", lambda: torchcomm.all_reduce(meta, ReduceOp.SUM, False))
    g = group()
    note("mismatch", lambda: dist.all_reduce(torch.ones(4 + peers.rank), group=g))
    note("broken", lambda: dist.barrier(group=g))
    note("split of a broken group", lambda: ours(g).split_group([0, 1]))
    g = group()
    meet()
    if first:
        ours(g).set_timeout(datetime.timedelta(seconds=0.2))
        note("late", lambda: dist.barrier(group=g))
    meet()
    g = group()
    meet()
    if first:
        ours(g).set_timeout(datetime.timedelta(seconds=0.2))
        work = dist.all_reduce(x, group=g, async_op=True)
        future = work.get_future()
        note("late, of a work", work.wait)
        note("late, of a future", future.wait)
        note("late, of a future's then", future.then(lambda f: f.value()).wait)
    meet()
    g = group()
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4), process_group=g)
    meet()
    if first:
        loss = ddp(torch.ones(2, 4)).sum()
        note("aborted, of DDP", loss.backward)
    else:
        ours(g).abort()
    note("aborted", lambda: dist.barrier(group=g))
    meet()
    g = group()
    dist.barrier(group=g)
    if first:
        note("lost", lambda: dist.barrier(group=g))
    else:
        dist.destroy_process_group(g)
    meet()
    g = group()
    meet()
    if first:
        ours(g).comm.abort(found["lost"])  # like a program that aborts because of an error
    note("aborted for an error", lambda: dist.barrier(group=g))
    meet()
    dist.destroy_process_group()
    alone = {"store": dist.HashStore(), "rank": 0, "world_size": 2, "timeout": datetime.timedelta(seconds=0.2)}
    note("start", lambda: dist.init_process_group("chorus", **alone))
    return found


@pytest.mark.long
def test_texts_begin_once():
    """An error that quotes another one, or passes through a future of PyTorch, has the prefix once."""
    world = World(2)
    try:
        texts = world.run(_texts)
    finally:
        world.kill()  # it has no default group any more
    assert len(texts[0]) == 14
    for found in texts:
        for name, text in found.items():
            assert text.count("chorus:") == 1, f"{name}: {text}"
