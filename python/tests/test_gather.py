import pytest
import torch
import torch.distributed as dist
from table import ANY, GLOO, data, run, same

import chorus


class Gather:
    dtypes = ANY
    gloo = GLOO

    @staticmethod
    def tensors(rank, size, dtype, n):
        return [torch.zeros(n, dtype=dtype) for _ in range(size if rank == 0 else 0)], [data(rank, dtype, n)]

    @staticmethod
    def call(outs, ins, group, async_op):
        return dist.gather(ins[0], outs or None, dst=0, group=group, async_op=async_op)

    @staticmethod
    def expected(rank, size, dtype, n):
        return [data(r, dtype, n) for r in range(size if rank == 0 else 0)]


def test_table(world):
    assert min(world.run(run, Gather)) >= 5 * 3 * len(ANY)


def _roots_and_objects(peers):
    for root in range(peers.size):
        outs = [torch.zeros(3) for _ in range(peers.size)] if peers.rank == root else None
        dist.gather(data(peers.rank, torch.float32, 3), outs, dst=root)
        for r, out in enumerate(outs or []):
            assert same(out, data(r, torch.float32, 3))
        things = [None] * peers.size if peers.rank == root else None
        dist.gather_object({"rank": peers.rank}, things, dst=root)
        assert things is None or things == [{"rank": r} for r in range(peers.size)]


def test_roots_and_objects(world):
    world.run(_roots_and_objects)


def _single(peers):
    group, n = dist.group.WORLD, peers.size
    x = data(peers.rank, torch.float32, 6).reshape(2, 3)
    for root in range(n):
        for shape in ((n, 2, 3), (2 * n, 3), (6 * n,)):
            out = torch.zeros(shape if peers.rank == root else 0)
            (group.gather_single if root % 2 else group.gather_into_tensor)(out, x, root=root).wait()
            if peers.rank == root:
                for r, block in enumerate(out.reshape(n, 6)):
                    assert same(block, data(r, torch.float32, 6))
    if n == 1:
        for out in (torch.zeros(7), torch.zeros(3, 2).t()):
            with pytest.raises(chorus.InvalidArgumentError, match="output is to be contiguous, with 1 times the 6"):
                group.gather_single(out, x)


def test_single(world):
    world.run(_single)


def _uneven(peers):
    """The root's list is uneven: every rank gets an error that names the sizes, and no rank waits."""
    last = peers.size - 1
    sizes = [2 + (r == last) for r in range(peers.size)]
    x = torch.ones(sizes[peers.rank])
    lists = [torch.zeros(n) for n in sizes] if peers.rank == 0 else None
    said = rf"float32\[2\], root 0, \[3\] for rank {last}\)"
    if peers.size > 2:  # two other ranks than the root may be compared first
        said += r"|float32\[[23]\], root 0\).*float32\[[23]\], root 0\)"
    for call in (
        lambda **how: dist.gather(x, lists, dst=0, **how),
        lambda **how: dist.scatter(x, lists, src=0, **how),
    ):
        for how in ({}, {"async_op": True}):
            group = dist.new_group()
            with pytest.raises(chorus.MismatchError, match=said):
                if work := call(group=group, **how):
                    work.wait()
                dist.barrier(group)  # a rank that waits for no other gets the error at its next call


@pytest.mark.parametrize("world", [2, 3], indirect=True)
def test_uneven(world):
    world.run(_uneven)
