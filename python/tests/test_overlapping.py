"""Tensors that overlap each other, in lists or as input and output: results as with PyTorch's own backends."""

import pytest
import torch
import torch.distributed as dist
from test_torchcomms import SUM, join

CASES = {
    "all_gather, one output for all": lambda c: dist.all_gather([c.room[:4], c.room[:4]], c.mine, c.group),
    "all_gather, in part": lambda c: dist.all_gather([c.room[:4], c.room[2:6]], c.mine, c.group),
    "all_gather, in place": lambda c: dist.all_gather([c.both[:4], c.both[4:]], c.both[4 * c.rank :][:4], c.group),
    "all_gather, input in another's output": lambda c: dist.all_gather([c.both[:4], c.both[4:]], c.both[:4], c.group),
    "all_gather, input across": lambda c: dist.all_gather([c.both[:4], c.both[4:]], c.both[2:6], c.group),
    "all_gather, asynchronous": lambda c: (
        dist.all_gather([c.room[:4], c.room[2:6]], c.mine, c.group, async_op=True).wait()
    ),
    "all_gather_coalesced": lambda c: dist.all_gather_coalesced([[c.room[:4]], [c.room[:4]]], [c.mine], c.group),
    "gather": lambda c: dist.gather(c.mine, [c.room[:4], c.room[1:5]] if c.rank == 0 else None, 0, c.group),
    "gather, input in an output": lambda c: (
        dist.gather(c.both[4:], [c.both[:4], c.both[4:]] if c.rank == 0 else None, 0, c.group)
    ),
    "all_to_all": lambda c: dist.all_to_all([c.room[:4], c.room[:4]], [c.both[:4], c.both[4:]], c.group),
    "all_to_all, in place": lambda c: dist.all_to_all([c.both[:4], c.both[4:]], [c.both[:4], c.both[4:]], c.group),
    "scatter, one input for all": lambda c: (
        dist.scatter(c.room[:4], [c.mine, c.mine] if c.rank == 0 else None, 0, c.group)
    ),
    "reduce_scatter, in place": lambda c: (
        dist.reduce_scatter(c.both[4 * c.rank :][:4], [c.both[:4], c.both[4:]], group=c.group)
    ),
    "reduce_scatter, in another's place": lambda c: (
        dist.reduce_scatter(c.both[:4], [c.both[:4], c.both[4:]], group=c.group)
    ),
    "one tensor, gathered in place": lambda c: dist.all_gather_into_tensor(c.both, c.both[4 * c.rank :][:4], c.group),
    "one tensor, gathered from another's place": lambda c: dist.all_gather_into_tensor(c.both, c.both[:4], c.group),
    "one tensor, gathered from across": lambda c: dist.all_gather_into_tensor(c.both, c.both[2:6], c.group),
    "one tensor, reduced in place": lambda c: (
        dist.reduce_scatter_tensor(c.both[4 * c.rank :][:4], c.both, group=c.group)
    ),
    "one tensor, reduced in another's place": lambda c: dist.reduce_scatter_tensor(c.both[:4], c.both, group=c.group),
    "one tensor, reduced across": lambda c: dist.reduce_scatter_tensor(c.both[2:6], c.both, group=c.group),
}

# The same calls of chorus.torchcomms; group is its communicator.
TORCHCOMMS = {
    "all_gather, one output for all": lambda c: c.group.all_gather([c.room[:4], c.room[:4]], c.mine, False),
    "all_gather, in part": lambda c: c.group.all_gather_v([c.room[:4], c.room[2:6]], c.mine, False),
    "all_gather, in place": lambda c: c.group.all_gather([c.both[:4], c.both[4:]], c.both[4 * c.rank :][:4], False),
    "all_gather, input in another's output": lambda c: c.group.all_gather([c.both[:4], c.both[4:]], c.both[:4], False),
    "all_gather, input across": lambda c: c.group.all_gather([c.both[:4], c.both[4:]], c.both[2:6], False),
    "all_gather, asynchronous": lambda c: c.group.all_gather([c.room[:4], c.room[2:6]], c.mine, True).wait(),
    "gather": lambda c: c.group.gather([c.room[:4], c.room[1:5]] if c.rank == 0 else [], c.mine, 0, False),
    "all_to_all": lambda c: c.group.all_to_all([c.room[:4], c.room[:4]], [c.both[:4], c.both[4:]], False),
    "all_to_all, in place": lambda c: c.group.all_to_all([c.both[:4], c.both[4:]], [c.both[:4], c.both[4:]], False),
    "scatter, one input for all": lambda c: (
        c.group.scatter(c.room[:4], [c.mine, c.mine] if c.rank == 0 else [], 0, False)
    ),
    "reduce_scatter, in place": lambda c: (
        c.group.reduce_scatter(c.both[4 * c.rank :][:4], [c.both[:4], c.both[4:]], SUM, False)
    ),
    "reduce_scatter, in another's place": lambda c: (
        c.group.reduce_scatter_v(c.both[:4], [c.both[:4], c.both[4:]], SUM, False)
    ),
    "one tensor, gathered in place": lambda c: c.group.all_gather_single(c.both, c.both[4 * c.rank :][:4], False),
    "one tensor, gathered from across": lambda c: c.group.all_gather_single(c.both, c.both[2:6], False),
    "one tensor, reduced in place": lambda c: (
        c.group.reduce_scatter_single(c.both[4 * c.rank :][:4], c.both, SUM, False)
    ),
    "one tensor, reduced across": lambda c: c.group.reduce_scatter_single(c.both[2:6], c.both, SUM, False),
}


class _Case:
    def __init__(self, group, rank):
        self.group, self.rank = group, rank
        self.mine = torch.arange(4.0) + 10 * rank
        self.both = torch.arange(8.0) + 100 * rank
        self.room = torch.zeros(8)


def _like_gloo(peers, name, torchcomms=False):
    ours, theirs = _Case(join(peers) if torchcomms else dist.group.WORLD, peers.rank), _Case(peers.gloo, peers.rank)
    (TORCHCOMMS if torchcomms else CASES)[name](ours)
    CASES[name](theirs)
    if torchcomms:
        ours.group.finalize()
    assert ours.room.tolist() == theirs.room.tolist(), (ours.room, theirs.room)
    assert ours.both.tolist() == theirs.both.tolist(), (ours.both, theirs.both)


@pytest.mark.parametrize("name", CASES)
def test_like_gloo(pair, name):
    pair.run(_like_gloo, name)


@pytest.mark.parametrize("name", TORCHCOMMS)
def test_torchcomms_like_gloo(pair, name):
    pair.run(_like_gloo, name, True)


def _scattered(peers):
    """Gloo's root fills its output before it has sent the rest, so that the last rank's result is wrong."""
    c = _Case(dist.group.WORLD, peers.rank)
    dist.scatter(c.both[2:6], [c.both[:4], c.both[4:]] if c.rank == 0 else None, 0)
    assert c.both.tolist() == ([0, 1, 0, 1, 2, 3, 6, 7] if c.rank == 0 else [100, 101, 4, 5, 6, 7, 106, 107])


def test_scatter_into_an_input(pair):
    pair.run(_scattered)


def _exchanged(peers):
    """Gloo exchanges blocks in place while it still reads them."""
    world, comm = dist.group.WORLD, join(peers)
    for call in (
        lambda c: dist.all_to_all_single(c.both, c.both, group=world),
        lambda c: dist.all_to_all_single(c.both, c.both, [4, 4], [4, 4], world),
        lambda c: comm.all_to_all_single(c.both, c.both, False),
        lambda c: comm.all_to_all_v_single(c.both, c.both, [4, 4], [4, 4], False),
    ):
        c = _Case(world, peers.rank)
        call(c)
        assert c.both.tolist() == [100 * peer + 4 * peers.rank + i for peer in range(2) for i in range(4)]
    c = _Case(world, peers.rank)
    comm.all_to_all_v_single(c.both, c.both[2:], [1, 1], [1, 1], False)  # the rest stays
    assert c.both.tolist() == [2 + peers.rank, 102 + peers.rank, *(100 * peers.rank + i for i in range(2, 8))]
    comm.finalize()


@pytest.mark.long
def test_exchanged_in_place(pair):
    pair.run(_exchanged)
