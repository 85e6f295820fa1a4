import torch
import torch.distributed as dist
from table import ANY, GLOO, data, run, same


class AllToAllSingle:
    dtypes = ANY
    gloo = GLOO

    @staticmethod
    def tensors(rank, size, dtype, n):
        return [torch.zeros(size * n, dtype=dtype)], [data(rank, dtype, size * n)]

    @staticmethod
    def call(outs, ins, group, async_op):
        return dist.all_to_all_single(outs[0], ins[0], group=group, async_op=async_op)

    @staticmethod
    def expected(rank, size, dtype, n):
        return [torch.cat([data(r, dtype, size * n)[rank * n : (rank + 1) * n] for r in range(size)])]


def test_table(world):
    assert min(world.run(run, AllToAllSingle)) >= 5 * 3 * len(ANY)


def _splits(peers):
    """Splits count rows; one side may leave them out if its blocks are equal."""
    for dtype in (torch.float32, torch.int64):
        rows = [peers.rank + s for s in range(peers.size)]  # from me to s, and from s to me
        x = data(peers.rank, dtype, 3 * sum(rows)).reshape(-1, 3)
        out, want = torch.zeros_like(x), torch.zeros_like(x)
        work = dist.all_to_all_single(out, x, rows, rows, async_op=True)
        work.wait()
        dist.all_to_all_single(want, x, rows, rows, group=peers.gloo)
        assert same(out, want)
    one = torch.zeros(peers.size)
    dist.all_to_all_single(one, data(peers.rank, torch.float32, peers.size), [1] * peers.size)
    assert same(one, torch.stack([data(r, torch.float32, peers.size)[peers.rank] for r in range(peers.size)]))


def test_splits(world):
    world.run(_splits)
