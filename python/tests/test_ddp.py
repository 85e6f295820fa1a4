import contextlib
import threading

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from training import batch, compare, model, steps

import chorus
from chorus import memory


def _powersgd(group):
    return powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=2, start_powerSGD_iter=2)


def _train(peers, group, kind):
    module = model(seed=peers.rank, buffers=kind == "buffers")  # DDP makes them equal
    options = {"process_group": group}
    if kind != "powersgd":  # Gloo supports only one bucket with it
        options["bucket_cap_mb"] = 0.001
    if kind in ("bucket_view", "shared", "at_end_view"):
        options["gradient_as_bucket_view"] = True
    if kind in ("static", "at_end_static"):
        options["static_graph"] = True
    if kind == "checkpoint":  # a pass within the pass
        module.forward = lambda x: checkpoint(module[2:], module[:2](x), use_reentrant=True)
    if kind in ("unused", "at_end_unused"):
        module.add_module("unused", torch.nn.Linear(3, 3))
        module.forward = lambda x: torch.nn.Sequential.forward(module[:-1], x)
        options["find_unused_parameters"] = True
    ddp = DistributedDataParallel(module, **options)
    if kind == "shared" and isinstance(group, chorus.ProcessGroup):
        chorus.share(ddp)
    if kind.startswith("at_end") and isinstance(group, chorus.ProcessGroup):
        ddp.register_comm_hook(group, chorus.ddp_hook)
    if kind == "fp16_hook":
        ddp.register_comm_hook(group, default_hooks.fp16_compress_hook)
    if kind == "bf16_hook":
        ddp.register_comm_hook(group, default_hooks.bf16_compress_hook)
    if kind == "powersgd_in_order":
        ddp.register_comm_hook(_powersgd(group), chorus.in_order(powerSGD_hook.powerSGD_hook))
    if kind == "powersgd":  # it issues all-reduces when others are over
        ddp.register_comm_hook(_powersgd(group), powerSGD_hook.powerSGD_hook)
    if kind == "builtin_fp16":
        ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    if kind == "own_hook":

        def hook(state, bucket):
            work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
            return work.get_future().then(lambda f: f.value()[0] / dist.get_world_size(group))

        ddp.register_comm_hook(None, hook)
    history = steps(
        ddp, module.parameters, peers.rank, loss_of=_accumulate if kind in ("no_sync", "at_end_no_sync") else None
    )
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


KINDS = [
    "plain", "buffers", "bucket_view", "shared", "static", "unused", "no_sync", "checkpoint", "fp16_hook", "bf16_hook",
    "builtin_fp16",
    "own_hook", "powersgd", "powersgd_in_order", "at_end", "at_end_view", "at_end_static", "at_end_unused",
    "at_end_no_sync",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_like_gloo(pair, kind):
    pair.run(_compare, kind)


def _called_back(peers):
    """A future's callback issues an operation, before the program's next one on one rank and after it on the other. The
    error explains that."""
    group, issued = dist.new_group(), threading.Event()

    def callback(future):
        if peers.rank == 0:
            assert issued.wait(60)
        dist.all_reduce(torch.ones(128), group=group, async_op=True)
        issued.set()

    dist.all_reduce(torch.ones(4), group=group, async_op=True).get_future().then(callback)
    told = "callbacks of futures issued some .* see chorus.in_order"
    if peers.rank == 0:  # its operation may fail at once, before the callback has issued one
        told += r"|rank 1 calls all_reduce\(float32\[128\]"
    with pytest.raises(chorus.MismatchError, match=told):
        if peers.rank == 1:
            assert issued.wait(60)
        try:
            work = dist.all_reduce(torch.ones(256), group=group, async_op=True)
        finally:
            issued.set()
        work.wait()
        dist.barrier(group)


def test_called_back(pair):
    pair.run(_called_back)


def _all_at_the_end(peers):
    """With the hook nothing is issued before all gradients are computed; without it, the first buckets are issued."""
    seen = {}
    for hook in (None, chorus.ddp_hook):
        module = model()
        ddp = DistributedDataParallel(module, bucket_cap_mb=0.001)
        if hook is not None:
            ddp.register_comm_hook(None, hook)
        issued = []
        for step in range(2):  # in the first step all gradients are in one bucket
            x, y = batch(peers.rank, step)
            loss = torch.nn.functional.mse_loss(ddp(x), y)
            before = dist.group.WORLD.comm.issued
            # The last gradient to be computed.
            last = module[0].weight.register_hook(lambda grad: issued.append(dist.group.WORLD.comm.issued - before))
            loss.backward()
            last.remove()
        seen[hook] = issued[1], dist.group.WORLD.comm.issued - before
    (early, all_of_it), (held, same) = seen.values()
    assert early > 0 and held == 0 and all_of_it == same > 1, seen


def test_all_at_the_end(pair):
    pair.run(_all_at_the_end)


def _two_models(peers):
    """Two models in one pass, with interleaved buckets, after a pass that failed in the middle."""
    modules = [model(seed=s) for s in (1, 2)]
    ddps = [DistributedDataParallel(m, bucket_cap_mb=0.001) for m in modules]
    for ddp in ddps:
        ddp.register_comm_hook(None, chorus.ddp_hook)
    for step in range(3):
        x, y = batch(peers.rank, step)
        for m in modules:
            m.zero_grad()
        if step == 2:

            def fail(grad):
                raise KeyError("in the pass")

            failing = modules[0][0].weight.register_hook(fail)
            with pytest.raises(KeyError, match="in the pass"):
                torch.nn.functional.mse_loss(ddps[0](x), y).backward()
            failing.remove()
            issued = dist.group.WORLD.comm.issued
            torch.nn.functional.mse_loss(ddps[1](x), y).backward()
            assert issued < dist.group.WORLD.comm.issued
        else:
            torch.nn.functional.mse_loss(ddps[0](x) + ddps[1](x), y).backward()
    return [p.grad for p in modules[1].parameters()]


def test_two_models(pair):
    a, b = pair.run(_two_models)
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def _another_group(peers):
    ddp = DistributedDataParallel(model(), process_group=peers.gloo)
    ddp.register_comm_hook(peers.gloo, chorus.ddp_hook)
    with pytest.raises(chorus.InvalidArgumentError, match="not a group of the backend 'chorus'"):
        ddp(batch(peers.rank, 0)[0]).sum().backward()


def test_another_group(pair):
    pair.run(_another_group)


def _mismatched(peers):
    """The backward pass raises the error of an all-reduce."""
    group = dist.new_group(backend="chorus")
    ddp = DistributedDataParallel(torch.nn.Linear(3, 3), process_group=group)
    ddp.register_comm_hook(group, chorus.ddp_hook)
    loss = ddp(torch.ones(1, 3)).sum()
    with pytest.raises(chorus.MismatchError, match="all_reduce" if peers.rank == 0 else None):
        loss.backward() if peers.rank == 0 else dist.barrier(group)
    dist.destroy_process_group(group)


def test_mismatched(pair):
    pair.run(_mismatched)


def test_on_more_ranks(world):
    world.run(_compare, "plain")


def _sparse(peers, hook):
    histories = []
    for group in (dist.group.WORLD, peers.gloo):
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Embedding(10, 4, sparse=True), torch.nn.Flatten(), torch.nn.Linear(8, 1))
        ddp = DistributedDataParallel(module, process_group=group)
        if hook and group is not peers.gloo:
            ddp.register_comm_hook(group, chorus.ddp_hook)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for step in range(3):
            ddp(torch.tensor([[peers.rank, step], [3, 9]])).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        histories.append([p.detach().clone() for p in module.parameters()])
    for a, b in zip(*histories, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("hook", [False, True])
def test_sparse_gradients(pair, hook):
    pair.run(_sparse, hook)


def _buckets(peers, options, own):
    """The gradients, which are views of the buckets here, are in the buckets' memory."""
    group = dist.group.WORLD if own else peers.gloo
    module = model()
    ddp = DistributedDataParallel(module, process_group=group, gradient_as_bucket_view=True, **options)
    places = []
    for step in range(3):
        torch.nn.functional.mse_loss(ddp(batch(peers.rank, step)[0]), batch(peers.rank, step)[1]).backward()
        places.append({chorus.is_shared(p.grad) for p in module.parameters()})
    assert places == [{own}] * 3
    assert ddp._has_rebuilt_buckets != bool(options.get("find_unused_parameters"))
    assert not any(chorus.is_shared(p) for p in module.parameters()) and not chorus.is_shared(torch.empty(100))


@pytest.mark.parametrize(
    "options", [{}, {"find_unused_parameters": True}, {"static_graph": True}], ids=["plain", "unused", "static"]
)
@pytest.mark.parametrize("own", [True, False], ids=["chorus", "gloo"])
def test_buckets_are_in_shared_memory(pair, options, own):
    pair.run(_buckets, options, own)


def _no_memory(peers):
    def refuse(*_):
        raise chorus.Error("no memory")

    alloc, memory._storage = memory._storage, refuse
    try:
        ddp = DistributedDataParallel(model(), gradient_as_bucket_view=True)
        for step in range(3):
            x, y = batch(peers.rank, step)
            torch.nn.functional.mse_loss(ddp(x), y).backward()
    finally:
        memory._storage = alloc
    assert not any(chorus.is_shared(p.grad) for p in ddp.parameters())


def test_buckets_without_shared_memory(pair):
    pair.run(_no_memory)


def _join(peers, first, unused, hook=False):
    """Ranks with different numbers of batches."""
    from torch.distributed.algorithms.join import Join

    results = []
    for group in (dist.group.WORLD, peers.gloo):
        module = model()
        ddp = DistributedDataParallel(module, process_group=group, find_unused_parameters=unused)
        if hook and group is not peers.gloo:
            ddp.register_comm_hook(group, chorus.ddp_hook)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        with Join([ddp]):
            for step in range(first + 2 * peers.rank):
                x, y = batch(peers.rank, step)
                torch.nn.functional.mse_loss(ddp(x), y).backward()
                optimizer.step()
                optimizer.zero_grad()
        results.append([[p.detach().clone() for p in module.parameters()]])
    compare(*results, peers.size)


@pytest.mark.parametrize("unused", [False, True])
@pytest.mark.parametrize("first", [1, 2])  # buckets are made again in the second step
def test_join(pair, first, unused):
    pair.run(_join, first, unused)


def test_join_with_the_hook(pair):
    pair.run(_join, 2, False, True)


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
