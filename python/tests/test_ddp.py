import contextlib

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from training import batch, compare, model, steps

import chorus


def _train(peers, group, kind):
    module = model(seed=peers.rank, buffers=kind == "buffers")  # DDP makes them equal
    options = {"bucket_cap_mb": 0.001, "process_group": group}
    if kind in ("bucket_view", "shared", "at_end"):
        options["gradient_as_bucket_view"] = True
    if kind == "static":
        options["static_graph"] = True
    if kind == "unused":
        module.add_module("unused", torch.nn.Linear(3, 3))
        module.forward = lambda x: torch.nn.Sequential.forward(module[:-1], x)
        options["find_unused_parameters"] = True
    ddp = DistributedDataParallel(module, **options)
    if kind == "shared" and isinstance(group, chorus.ProcessGroup):
        chorus.share(ddp)
    if kind in ("at_end", "copied_at_end") and isinstance(group, chorus.ProcessGroup):
        chorus.reduce_at_end(ddp)
    if kind == "fp16_hook":
        ddp.register_comm_hook(group, default_hooks.fp16_compress_hook)
    if kind == "bf16_hook":
        ddp.register_comm_hook(group, default_hooks.bf16_compress_hook)
    if kind == "own_hook":

        def hook(state, bucket):
            work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
            return work.get_future().then(lambda f: f.value()[0] / dist.get_world_size(group))

        ddp.register_comm_hook(None, hook)
    history = steps(ddp, module.parameters, peers.rank, loss_of=_accumulate if kind == "no_sync" else None)
    if kind == "shared" and isinstance(group, chorus.ProcessGroup):
        assert all(chorus.is_shared(p) for p in module.parameters())
        ddp(batch(peers.rank, 0)[0]).sum().backward()
        assert all(chorus.is_shared(p.grad) for p in module.parameters()), "the buckets are not in shared memory"
    return history


def _accumulate(ddp, x, y, step):
    for i in range(3):
        with ddp.no_sync() if i < 2 else contextlib.nullcontext():
            torch.nn.functional.mse_loss(ddp(x + i), y).backward()


def _compare(peers, kind):
    ours, theirs = (_train(peers, group, kind) for group in (dist.group.WORLD, peers.gloo))
    compare(ours, theirs, peers.size)


KINDS = ["plain", "buffers", "bucket_view", "shared", "static", "unused", "no_sync", "fp16_hook", "bf16_hook", "own_hook",
    "at_end", "copied_at_end"]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_like_gloo(pair, kind):
    pair.run(_compare, kind)


def test_on_more_ranks(world):
    world.run(_compare, "plain")


def _sparse(peers):
    histories = []
    for group in (dist.group.WORLD, peers.gloo):
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Embedding(10, 4, sparse=True), torch.nn.Flatten(), torch.nn.Linear(8, 1))
        ddp = DistributedDataParallel(module, process_group=group)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for step in range(3):
            ddp(torch.tensor([[peers.rank, step], [3, 9]])).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        histories.append([p.detach().clone() for p in module.parameters()])
    for a, b in zip(*histories, strict=True):
        torch.testing.assert_close(a, b)


def test_sparse_gradients(pair):
    pair.run(_sparse)


def _join(peers):
    """Ranks with different numbers of batches."""
    from torch.distributed.algorithms.join import Join

    results = []
    for group in (dist.group.WORLD, peers.gloo):
        module = model()
        ddp = DistributedDataParallel(module, process_group=group)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        with Join([ddp]):
            for step in range(2 + 2 * peers.rank):
                x, y = batch(peers.rank, step)
                torch.nn.functional.mse_loss(ddp(x), y).backward()
                optimizer.step()
                optimizer.zero_grad()
        results.append([[p.detach().clone() for p in module.parameters()]])
    compare(*results, peers.size)


def test_join(pair):
    pair.run(_join)


def _zero(peers):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    results = []
    for group in (dist.group.WORLD, peers.gloo):
        module = model()
        ddp = DistributedDataParallel(module, process_group=group)
        optimizer = ZeroRedundancyOptimizer(module.parameters(), torch.optim.Adam, process_group=group, lr=0.01)
        history = []
        for step in range(3):
            x, y = batch(peers.rank, step)
            torch.nn.functional.mse_loss(ddp(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
            history.append([p.detach().clone() for p in module.parameters()])
        results.append(history)
    compare(*results, peers.size)


def test_zero_redundancy_optimizer(pair):
    pair.run(_zero)
