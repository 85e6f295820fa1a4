import pytest
import torch
import torch.distributed as dist
from table import ANY, data, same


def _ring(peers):
    right, left = (peers.rank + 1) % peers.size, (peers.rank - 1) % peers.size
    for dtype in ANY:
        for n in (0, 4, 1024, 1 << 16):
            out = torch.zeros(n, dtype=dtype)
            works = [dist.isend(data(peers.rank, dtype, n), right), dist.irecv(out, left)]
            for work in works:
                work.wait()
            assert same(out, data(left, dtype, n)), (dtype, n)
    x = torch.zeros(5, 4)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.irecv, x.t()[1:3], left),  # not contiguous
            dist.P2POp(dist.isend, data(peers.rank, torch.float32, 10).reshape(2, 5), right),
        ]
    )
    for work in works:
        work.wait()
    assert same(x.t()[1:3], data(left, torch.float32, 10).reshape(2, 5)) and not x.t()[0].any()


def test_ring(world):
    world.run(_ring)


def _blocking(peers):
    for n in (1, 1 << 18):
        if peers.rank == 0:
            for r in range(1, peers.size):
                dist.send(data(0, torch.float32, n), r)
        else:
            out = torch.zeros(n)
            assert dist.recv(out, src=0) == 0
            assert same(out, data(0, torch.float32, n))


def test_blocking(world):
    world.run(_blocking)


def _tags(peers):
    """Messages of different tags may overtake each other; those of one tag don't."""
    if peers.rank == 0:
        works = [dist.isend(torch.full((3,), float(10 * tag + i)), 1, tag=tag) for tag in (1, 2) for i in range(3)]
        for work in works:
            work.wait()
    elif peers.rank == 1:
        for tag in (2, 1):
            for i in range(3):
                out = torch.zeros(3)
                dist.recv(out, src=0, tag=tag)
                assert out.tolist() == [10.0 * tag + i] * 3


def test_tags(pair):
    pair.run(_tags)


def _any_source(peers):
    if peers.rank:
        dist.send(torch.full((4,), float(peers.rank)), 0)
        return
    seen = set()
    for _ in range(peers.size - 1):
        out = torch.zeros(4)
        source = dist.recv(out)
        assert out.tolist() == [float(source)] * 4
        seen.add(source)
    assert seen == set(range(1, peers.size))


def test_any_source(world):
    world.run(_any_source)


def _coalescing(peers):
    """Messages and collectives that the group itself collects, in an order that would deadlock one by one."""
    other = 1 - peers.rank
    cpu = torch.device("cpu")
    out, x = torch.zeros(1 << 18), torch.ones(3)
    with dist._coalescing_manager(device=cpu, async_ops=True) as cm:
        dist.isend(data(peers.rank, torch.float32, 1 << 18), other)
        dist.irecv(out, other)
        dist.group.WORLD.broadcast([x])
    cm.wait()
    assert same(out, data(other, torch.float32, 1 << 18))


def test_coalescing(pair):
    pair.run(_coalescing)


def _coalescing_fails(peers):
    """A block that raises drops what it has collected, with or without a device, and the group goes on."""
    for device in (torch.device("cpu"), None):
        x = torch.ones(3)
        with pytest.raises(ZeroDivisionError), dist._coalescing_manager(device=device):
            dist.all_reduce(x)
            1 / 0
        with dist._coalescing_manager(device=device):
            dist.all_reduce(x)
        assert x.tolist() == [peers.size] * 3
        dist.all_reduce(x)
        assert x.tolist() == [peers.size**2] * 3


def test_coalescing_fails(pair):
    pair.run(_coalescing_fails)


def _objects(peers):
    if peers.rank == 0:
        dist.send_object_list(["a", {"b": 1}], dst=1)
    else:
        things = [None, None]
        dist.recv_object_list(things, src=0)
        assert things == ["a", {"b": 1}]


def test_objects(pair):
    pair.run(_objects)
