"""Lists whose tensors overlap each other, as PyTorch's own backends take them: with the results that Gloo has."""

import pytest
import torch
import torch.distributed as dist

CASES = {
    "all_gather, one output for all": lambda c: dist.all_gather([c.room[:4], c.room[:4]], c.mine, c.group),
    "all_gather, in part": lambda c: dist.all_gather([c.room[:4], c.room[2:6]], c.mine, c.group),
    "all_gather, in place": lambda c: dist.all_gather([c.both[:4], c.both[4:]], c.both[4 * c.rank :][:4], c.group),
    "all_gather, input in another's output": lambda c: dist.all_gather([c.both[:4], c.both[4:]], c.both[:4], c.group),
    "all_gather, input across": lambda c: dist.all_gather([c.both[:4], c.both[4:]], c.both[2:6], c.group),
    "all_gather, asynchronous": lambda c: dist.all_gather([c.room[:4], c.room[2:6]], c.mine, c.group, async_op=True).wait(),
    "all_gather_coalesced": lambda c: dist.all_gather_coalesced([[c.room[:4]], [c.room[:4]]], [c.mine], c.group),
    "gather": lambda c: dist.gather(c.mine, [c.room[:4], c.room[1:5]] if c.rank == 0 else None, 0, c.group),
    "gather, input in an output": lambda c: dist.gather(c.both[4:], [c.both[:4], c.both[4:]] if c.rank == 0 else None, 0, c.group),
    "all_to_all": lambda c: dist.all_to_all([c.room[:4], c.room[:4]], [c.both[:4], c.both[4:]], c.group),
    "all_to_all, in place": lambda c: dist.all_to_all([c.both[:4], c.both[4:]], [c.both[:4], c.both[4:]], c.group),
    "scatter, one input for all": lambda c: dist.scatter(c.room[:4], [c.mine, c.mine] if c.rank == 0 else None, 0, c.group),
    "reduce_scatter, in place": lambda c: dist.reduce_scatter(c.both[4 * c.rank :][:4], [c.both[:4], c.both[4:]], group=c.group),
    "reduce_scatter, in another's place": lambda c: dist.reduce_scatter(c.both[:4], [c.both[:4], c.both[4:]], group=c.group),
}


class _Case:
    def __init__(self, group, rank):
        self.group, self.rank = group, rank
        self.mine = torch.arange(4.0) + 10 * rank
        self.both = torch.arange(8.0) + 100 * rank
        self.room = torch.zeros(8)


def _like_gloo(peers, name):
    ours, theirs = _Case(dist.group.WORLD, peers.rank), _Case(peers.gloo, peers.rank)
    for case in (ours, theirs):
        CASES[name](case)
    assert ours.room.tolist() == theirs.room.tolist(), (ours.room, theirs.room)
    assert ours.both.tolist() == theirs.both.tolist(), (ours.both, theirs.both)


@pytest.mark.parametrize("name", CASES)
def test_like_gloo(pair, name):
    pair.run(_like_gloo, name)


def _scattered(peers):
    """Gloo's root fills its output before it has sent the rest, so that the last one's is wrong."""
    c = _Case(dist.group.WORLD, peers.rank)
    dist.scatter(c.both[2:6], [c.both[:4], c.both[4:]] if c.rank == 0 else None, 0)
    assert c.both.tolist() == ([0, 1, 0, 1, 2, 3, 6, 7] if c.rank == 0 else [100, 101, 4, 5, 6, 7, 106, 107])


def test_scatter_into_an_input(pair):
    pair.run(_scattered)
