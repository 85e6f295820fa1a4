import itertools

import torch
import torch.distributed as dist
from table import ANY, GLOO, data, run, same


class AllGatherSingle:
    dtypes = ANY
    gloo = GLOO

    @staticmethod
    def tensors(rank, size, dtype, n):
        return [torch.zeros(size * n, dtype=dtype)], [data(rank, dtype, n)]

    @staticmethod
    def call(outs, ins, group, async_op):
        return dist.all_gather_into_tensor(outs[0], ins[0], group=group, async_op=async_op)

    @staticmethod
    def expected(rank, size, dtype, n):
        return [torch.cat([data(r, dtype, n) for r in range(size)])]


def test_table(world):
    assert min(world.run(run, AllGatherSingle)) >= 5 * 3 * len(ANY)


def _in_place_and_stacked(peers):
    out = torch.zeros(peers.size, 5)
    out[peers.rank] = data(peers.rank, torch.float32, 5)
    dist.all_gather_into_tensor(out.view(-1), out[peers.rank])
    stacked = torch.zeros(peers.size, 5)
    dist.all_gather_into_tensor(stacked, data(peers.rank, torch.float32, 5))
    for r in range(peers.size):
        assert same(out[r], data(r, torch.float32, 5)) and same(stacked[r], out[r])


def test_in_place_and_stacked(world):
    world.run(_in_place_and_stacked)


def _coalesced(peers):
    for async_op, device in itertools.product((False, True), (None, torch.device("cpu"))):
        ins = [data(peers.rank, torch.float32, n) for n in (1, 40)]
        outs = [torch.zeros(peers.size * n) for n in (1, 40)]
        with dist._coalescing_manager(device=device, async_ops=async_op) as cm:
            for o, i in zip(outs, ins, strict=True):
                dist.all_gather_into_tensor(o, i)
        if async_op:
            cm.wait()
        for o, n in zip(outs, (1, 40), strict=True):
            assert same(o, torch.cat([data(r, torch.float32, n) for r in range(peers.size)]))


def test_coalesced(world):
    world.run(_coalesced)
