import torch
import torch.distributed as dist
from table import ANY, GLOO, data, run, same


class Broadcast:
    dtypes = ANY
    gloo = GLOO

    @staticmethod
    def tensors(rank, size, dtype, n):
        return [data(rank, dtype, n)], []

    @staticmethod
    def call(outs, ins, group, async_op):
        return dist.broadcast(outs[0], src=dist.get_world_size() - 1, group=group, async_op=async_op)

    @staticmethod
    def expected(rank, size, dtype, n):
        return [data(size - 1, dtype, n)]


def test_table(world):
    assert min(world.run(run, Broadcast)) >= 5 * 3 * len(ANY)


def _roots_and_layouts(peers):
    for root in range(peers.size):
        x = data(peers.rank, torch.float32, 12).reshape(3, 4).t()
        dist.broadcast(x, src=root)
        assert same(x, data(root, torch.float32, 12).reshape(3, 4).t())
    odd = torch.arange(16, dtype=torch.uint8).view(torch.float8_e4m3fnuz) if peers.rank == 0 else torch.zeros(
        16, dtype=torch.float8_e4m3fnuz)  # fmt: skip
    dist.broadcast(odd, src=0)  # a type that can only be moved
    assert torch.equal(odd.view(torch.uint8), torch.arange(16, dtype=torch.uint8))


def test_roots_and_layouts(world):
    world.run(_roots_and_layouts)


def _objects(peers):
    things = [{"rank": 0, "list": list(range(1000))}, "text"] if peers.rank == 0 else [None, None]
    dist.broadcast_object_list(things, src=0)
    assert things == [{"rank": 0, "list": list(range(1000))}, "text"]


def test_objects(world):
    world.run(_objects)
