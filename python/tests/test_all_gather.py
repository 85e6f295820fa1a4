import torch
import torch.distributed as dist
from table import ANY, GLOO, data, run, same


class AllGather:
    dtypes = ANY
    gloo = GLOO

    @staticmethod
    def tensors(rank, size, dtype, n):
        return [torch.zeros(n, dtype=dtype) for _ in range(size)], [data(rank, dtype, n)]

    @staticmethod
    def call(outs, ins, group, async_op):
        return dist.all_gather(outs, ins[0], group=group, async_op=async_op)

    @staticmethod
    def expected(rank, size, dtype, n):
        return [data(r, dtype, n) for r in range(size)]


def test_table(world):
    assert min(world.run(run, AllGather)) >= 5 * 3 * len(ANY)


def _uneven(peers):
    outs = [torch.zeros(3 * r + 1) for r in range(peers.size)]
    dist.all_gather(outs, data(peers.rank, torch.float32, 3 * peers.rank + 1))
    for r, out in enumerate(outs):
        assert same(out, data(r, torch.float32, 3 * r + 1))


def test_uneven(world):
    world.run(_uneven)


def _blocks_of_one(peers):
    """The outputs may be blocks of one tensor, or have gaps, and the input may be one of them."""
    whole = torch.zeros(peers.size, 6)
    blocks = list(whole.unbind())
    blocks[peers.rank].copy_(data(peers.rank, torch.float32, 6))
    dist.all_gather(blocks, blocks[peers.rank])
    gaps = torch.zeros(6, 2 * peers.size)
    dist.all_gather(list(gaps.t()[::2].unbind()), data(peers.rank, torch.float32, 6))
    for r in range(peers.size):
        assert same(whole[r], data(r, torch.float32, 6))
        assert same(gaps[:, 2 * r], data(r, torch.float32, 6))
        assert not gaps[:, 2 * r + 1].any()


def test_blocks_of_one(world):
    world.run(_blocks_of_one)


def _coalesced(peers):
    ins = [data(peers.rank, torch.float32, 4), data(peers.rank, torch.float32, 9)]
    outs = [[torch.zeros(4), torch.zeros(9)] for _ in range(peers.size)]
    dist.all_gather_coalesced(outs, ins)
    for r in range(peers.size):
        assert same(outs[r][0], data(r, torch.float32, 4)) and same(outs[r][1], data(r, torch.float32, 9))


def test_coalesced(world):
    world.run(_coalesced)


def _objects(peers):
    things = [None] * peers.size
    dist.all_gather_object(things, {"rank": peers.rank, "text": "x" * peers.rank})
    assert things == [{"rank": r, "text": "x" * r} for r in range(peers.size)]


def test_objects(world):
    world.run(_objects)
