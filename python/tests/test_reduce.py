import torch
import torch.distributed as dist
from table import GLOO, REDUCIBLE, data, run, same, total


class Reduce:
    dtypes = REDUCIBLE
    gloo = []  # on other ranks than the root, Gloo leaves partial sums behind

    @staticmethod
    def tensors(rank, size, dtype, n):
        return [data(rank, dtype, n)], []

    @staticmethod
    def call(outs, ins, group, async_op):
        return dist.reduce(outs[0], dst=0, group=group, async_op=async_op)

    @staticmethod
    def expected(rank, size, dtype, n):
        if rank:
            return [data(rank, dtype, n)]
        return [total([data(r, dtype, n) for r in range(size)])]


def test_table(world):
    assert min(world.run(run, Reduce)) >= 5 * 3 * len(REDUCIBLE)


def _roots(peers):
    for root in range(peers.size):
        for dtype in GLOO:
            if dtype == torch.bool:
                continue
            x = data(peers.rank, dtype, 33)
            y = x.clone()
            dist.reduce(x, dst=root, op=dist.ReduceOp.MAX)
            dist.reduce(y, dst=root, op=dist.ReduceOp.MAX, group=peers.gloo)
            assert same(x, y) if peers.rank == root else same(x, data(peers.rank, dtype, 33))


def test_roots(world):
    world.run(_roots)
