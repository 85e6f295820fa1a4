import gc

import pytest
import torch
import torch.distributed as dist
from table import same

import chorus


def test_like_torch():
    for args, kwargs in (
        ((3, 4), {}),
        (((2, 5),), {"dtype": torch.int8}),
        ((torch.Size([7]),), {}),
        ((0,), {}),
        (((),), {}),
    ):
        for ours, theirs in ((chorus.empty, torch.empty), (chorus.zeros, torch.zeros)):
            a, b = ours(*args, **kwargs), theirs(*args, **kwargs)
            assert a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride()
            if ours is chorus.zeros:
                assert not a.any()
            assert chorus.is_shared(a) == (a.numel() > 0) and not chorus.is_shared(b)
    assert chorus.zeros(3, requires_grad=True).requires_grad
    view = chorus.zeros(8)[2:5]
    assert chorus.is_shared(view)


@pytest.mark.long
def test_memory_is_given_back():
    def used():
        with open("/proc/self/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) >> 10

    chorus.zeros(1 << 20).fill_(1)
    before = used()
    for _ in range(50):
        x = chorus.empty(1 << 22).fill_(1)  # 16 MiB
        y = x[3:]
        del x
        assert y[5] == 1
        del y
    gc.collect()
    assert used() - before < 200


def test_shared_memory():
    with chorus.shared_memory():
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
        x = torch.ones(4, 8)
        view = x.t()[1:]
        y = x + 1
        z = x.clone()
        z += 1
    assert all(chorus.is_shared(t) for t in (*model.parameters(), *model.buffers(), x, view, y, z))
    assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert torch.equal(y, torch.full((4, 8), 2.0)) and torch.equal(z, y)
    assert not chorus.is_shared(torch.ones(3))
    assert model(torch.ones(4, 8)).shape == (4, 8)


def test_share_a_module():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight  # tied
    model(torch.ones(1, 4)).sum().backward()
    before, grad = model[0].weight.detach().clone(), model[0].weight.grad.clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    assert chorus.share(model) is model
    assert chorus.is_shared(model[0].weight) and chorus.is_shared(model[0].weight.grad)
    assert model[0].weight is model[1].weight and same(model[0].weight.detach(), before)
    optimizer.step()
    assert torch.allclose(model[0].weight, before - 0.5 * grad)
    x = torch.arange(6.0).reshape(2, 3).t()
    y = x[1:]
    chorus.share(x)
    assert chorus.is_shared(x) and x.stride() == (1, 3) and torch.equal(x, torch.arange(6.0).reshape(2, 3).t())
    assert not chorus.is_shared(y)


def _peers_map(peers):
    """Collectives on shared memory, of whole tensors and views, have the same results as on ordinary memory."""
    for make in (chorus.empty, torch.empty):
        x = make(100_000).fill_(peers.rank + 1)
        dist.all_reduce(x[10:-7])
        assert x[10] == sum(range(1, peers.size + 1)) and x[9] == peers.rank + 1 and x[-7] == peers.rank + 1
        outs = list(make(peers.size, 5).unbind())
        dist.all_gather(outs, make(5).fill_(peers.rank))
        assert [o[0].item() for o in outs] == list(range(peers.size))


def test_peers_map(world):
    world.run(_peers_map)


def _fsdp_buffers(peers):
    x = dist.group.WORLD.allocate_tensor(16, dtype=torch.float32, device=torch.device("cpu"))
    assert chorus.is_shared(x) and dist.group.WORLD.supports_tensor_alloc(torch.device("cpu"))


def test_fsdp_buffers(pair):
    pair.run(_fsdp_buffers)


def test_no_memory():
    with pytest.raises(chorus.Error):
        chorus.empty(1 << 60, dtype=torch.uint8)
