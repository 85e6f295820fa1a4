import itertools

import torch
import torch.distributed as dist
from table import GLOO, REDUCIBLE, data, run, same, total


class ReduceScatterSingle:
    dtypes = REDUCIBLE
    gloo = [t for t in GLOO if t != torch.bool]

    @staticmethod
    def tensors(rank, size, dtype, n):
        return [torch.zeros(n, dtype=dtype)], [data(rank, dtype, size * n)]

    @staticmethod
    def call(outs, ins, group, async_op):
        return dist.reduce_scatter_tensor(outs[0], ins[0], group=group, async_op=async_op)

    @staticmethod
    def expected(rank, size, dtype, n):
        return [total([data(r, dtype, size * n)[rank * n : (rank + 1) * n] for r in range(size)])]


def test_table(world):
    assert min(world.run(run, ReduceScatterSingle)) >= 5 * 3 * len(REDUCIBLE)


def _in_place(peers):
    x = data(peers.rank, torch.float32, 6 * peers.size)
    block = x[6 * peers.rank : 6 * peers.rank + 6]
    dist.reduce_scatter_tensor(block, x, op=dist.ReduceOp.AVG)
    every = [data(r, torch.float32, 6 * peers.size)[6 * peers.rank : 6 * peers.rank + 6] for r in range(peers.size)]
    assert same(block, total(every) / peers.size)


def test_in_place(world):
    world.run(_in_place)


def _coalesced(peers):
    for async_op, device in itertools.product((False, True), (None, torch.device("cpu"))):
        ins = [data(peers.rank, torch.float32, n * peers.size) for n in (1, 40)]
        outs = [torch.zeros(n) for n in (1, 40)]
        with dist._coalescing_manager(device=device, async_ops=async_op) as cm:
            for o, i in zip(outs, ins, strict=True):
                dist.reduce_scatter_tensor(o, i)
        if async_op:
            cm.wait()
        for o, n in zip(outs, (1, 40), strict=True):
            mine = slice(n * peers.rank, n * peers.rank + n)
            assert same(o, total([data(r, torch.float32, n * peers.size)[mine] for r in range(peers.size)]))


def test_coalesced(world):
    world.run(_coalesced)
