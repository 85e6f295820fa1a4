import torch
import torch.distributed as dist
from table import GLOO, REDUCIBLE, data, run, same, total

OLD = tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 8)  # its Gloo has no reduce-scatter


class ReduceScatter:
    dtypes = REDUCIBLE
    gloo = [] if OLD else [t for t in GLOO if t != torch.bool]

    @staticmethod
    def tensors(rank, size, dtype, n):
        return [torch.zeros(n, dtype=dtype)], [data(rank, dtype, n, salt=r) for r in range(size)]

    @staticmethod
    def call(outs, ins, group, async_op):
        return dist.reduce_scatter(outs[0], ins, group=group, async_op=async_op)

    @staticmethod
    def expected(rank, size, dtype, n):
        return [total([data(r, dtype, n, salt=rank) for r in range(size)])]


def test_table(world):
    assert min(world.run(run, ReduceScatter)) >= 5 * 3 * len(REDUCIBLE)


def _uneven(peers):
    ins = [data(peers.rank, torch.float32, 2 * r + 1) for r in range(peers.size)]
    before = [t.clone() for t in ins]
    out = torch.zeros(2 * peers.rank + 1)
    dist.reduce_scatter(out, ins, op=dist.ReduceOp.MAX)
    assert same(out, torch.stack([data(r, torch.float32, 2 * peers.rank + 1) for r in range(peers.size)]).amax(0))
    assert all(same(a, b) for a, b in zip(ins, before, strict=True)), "an input was written"


def test_uneven(world):
    world.run(_uneven)
