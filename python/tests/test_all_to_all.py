import torch
import torch.distributed as dist
from table import ANY, data, run, same


class AllToAll:
    dtypes = ANY
    gloo = []  # Gloo has no all_to_all of lists

    @staticmethod
    def tensors(rank, size, dtype, n):
        return [torch.zeros(n, dtype=dtype) for _ in range(size)], [data(rank, dtype, n, salt=s) for s in range(size)]

    @staticmethod
    def call(outs, ins, group, async_op):
        return dist.all_to_all(outs, list(ins), group=group, async_op=async_op)

    @staticmethod
    def expected(rank, size, dtype, n):
        return [data(r, dtype, n, salt=rank) for r in range(size)]


def test_table(world):
    assert min(world.run(run, AllToAll)) >= 5 * 3 * len(ANY)


def _uneven(peers):
    ins = [data(peers.rank, torch.float32, 10 * peers.rank + s) for s in range(peers.size)]
    outs = [torch.zeros(10 * r + peers.rank) for r in range(peers.size)]
    dist.all_to_all(outs, ins)
    for r, out in enumerate(outs):
        assert same(out, data(r, torch.float32, 10 * r + peers.rank))


def test_uneven(world):
    world.run(_uneven)
