import torch
import torch.distributed as dist
from table import ANY, GLOO, data, run, same


class Scatter:
    dtypes = ANY
    gloo = GLOO

    @staticmethod
    def tensors(rank, size, dtype, n):
        return [torch.zeros(n, dtype=dtype)], [data(0, dtype, n, salt=r) for r in range(size if rank == 0 else 0)]

    @staticmethod
    def call(outs, ins, group, async_op):
        return dist.scatter(outs[0], list(ins) or None, src=0, group=group, async_op=async_op)

    @staticmethod
    def expected(rank, size, dtype, n):
        return [data(0, dtype, n, salt=rank)]


def test_table(world):
    assert min(world.run(run, Scatter)) >= 5 * 3 * len(ANY)


def _roots_and_objects(peers):
    for root in range(peers.size):
        ins = [data(root, torch.float32, 3, salt=r) for r in range(peers.size)] if peers.rank == root else None
        out = torch.zeros(3)
        dist.scatter(out, ins, src=root)
        assert same(out, data(root, torch.float32, 3, salt=peers.rank))
        got = [None]
        dist.scatter_object_list(got, [{"to": r} for r in range(peers.size)] if peers.rank == root else None, src=root)
        assert got == [{"to": peers.rank}]


def test_roots_and_objects(world):
    world.run(_roots_and_objects)
