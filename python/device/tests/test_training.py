"""Training on devices of several processes: after every step the parameters are those of the same training on the
CPU."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from training import batch, compare, model, steps
from versions import since
from worlds import World

import chorus


def _place(where, peers):
    if where == "cpu":
        return torch.device("cpu")
    torch.accinte.set_device(peers.rank)
    return torch.device("accinte", peers.rank)


def _run(module, parameters, d, rank, **options):
    def loss_of(module, x, y, step):
        return torch.nn.functional.mse_loss(module(x.to(d)).float(), y.to(d))

    history = steps(module, parameters, rank, loss_of=loss_of, **options)
    assert all(p.device == d for p in history[-1])
    return [[p.cpu() for p in step] for step in history]


def _ddp(d, peers, kind):
    module = model(seed=peers.rank, buffers=kind == "buffers").to(d)
    options = {"bucket_cap_mb": 0.001}
    if kind == "bucket_view":
        options["gradient_as_bucket_view"] = True
    if kind == "static":
        options["static_graph"] = True
    ddp = DistributedDataParallel(module, device_ids=[d.index] if d.index is not None else None, **options)
    if kind == "bf16_hook":
        ddp.register_comm_hook(dist.group.WORLD, default_hooks.bf16_compress_hook)
    if kind == "at_end":
        ddp.register_comm_hook(None, chorus.ddp_hook)
    return _run(ddp, module.parameters, d, peers.rank)


def _fsdp(d, peers, kind):
    module = model().to(d)
    options = {"mesh": init_device_mesh(d.type, (peers.size,))}
    if kind == "mixed":
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in module:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, **options)
    fully_shard(module, **options)
    if kind == "group_memory":
        module.set_allocate_memory_from_process_group_for_comm(True)
    return _run(module, lambda: [p.full_tensor() for p in module.parameters()], d, peers.rank)


def _tensor_parallel(d, peers, kind):
    module = model().to(d)
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel(), "4": ColwiseParallel(output_layouts=Replicate())}
    if kind == "sequence":
        module = torch.nn.Sequential(torch.nn.LayerNorm(8, device=d), *module)
        plan = {
            "0": SequenceParallel(sequence_dim=0),
            "1": ColwiseParallel(input_layouts=Shard(0)),
            "3": RowwiseParallel(),
            "5": ColwiseParallel(output_layouts=Shard(0)),
        }
    parallelize_module(module, init_device_mesh(d.type, (peers.size,)), plan)

    def full():
        return [p.full_tensor() if isinstance(p, DTensor) else p for p in module.parameters()]

    return _run(module, full, d, 0)


def _pipeline(d, peers, kind):
    torch.manual_seed(0)
    parts = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()) for _ in range(peers.size - 1)] + [model()]
    part = parts[peers.rank].to(d)
    optimizer = torch.optim.SGD(part.parameters(), lr=0.1)
    stage = PipelineStage(part, peers.rank, peers.size, d)
    schedule = Schedule1F1B(stage, n_microbatches=6, loss_fn=torch.nn.functional.mse_loss)
    history = []
    for step in range(3):
        x, y = (t.to(d) for t in batch(0, step))
        if peers.rank == 0:
            schedule.step(x)
        else:
            schedule.step(**({"target": y} if peers.rank == peers.size - 1 else {}))
        optimizer.step()
        optimizer.zero_grad()
        history.append([p.detach().to("cpu", copy=True) for p in part.parameters()])
    return history


def _zero(d, peers, kind):
    module = model(seed=peers.rank).to(d)
    ddp = DistributedDataParallel(module)
    optimizer = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.Adam, lr=0.01)
    history = []
    for step in range(3):
        x, y = (t.to(d) for t in batch(peers.rank, step))
        torch.nn.functional.mse_loss(ddp(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        history.append([p.detach().to("cpu", copy=True) for p in module.parameters()])
    return history


def _both(peers, train, kind):
    on_cpu, on_devices = (train(_place(where, peers), peers, kind) for where in ("cpu", "accinte"))
    torch.accinte.set_device(0)
    bits = kind != "sequence"  # layer norm sums in another order
    compare(on_devices, on_cpu, peers.size if bits else 3)


@pytest.mark.parametrize("kind", ["plain", "buffers", "bucket_view", "static", "bf16_hook", "at_end"])
def test_data_parallel(pair, kind):
    pair.run(_both, _ddp, kind)


@pytest.mark.parametrize("kind", ["plain", "mixed", "group_memory"])
def test_fully_sharded(pair, kind):
    pair.run(_both, _fsdp, kind)


@pytest.mark.parametrize("kind", ["plain", "sequence"])
def test_tensor_parallel(pair, kind):
    pair.run(_both, _tensor_parallel, kind)


@pytest.fixture(scope="module")
def four():
    """Four processes, with a device each."""
    world = World(4, CHORUS_ACCINTE_DEVICES="4")
    yield world
    world.close()


PIPELINES = since(2, 13, "stages greet each other with numbers of two types")


@pytest.mark.parametrize("train", [_ddp, _fsdp, _tensor_parallel, pytest.param(_pipeline, marks=PIPELINES)])
def test_four_devices(four, train):
    four.run(_both, train, "plain")


@PIPELINES
def test_pipeline(pair):
    pair.run(_both, _pipeline, "plain")


def test_sharded_optimizer(pair):
    pair.run(_both, _zero, "plain")


def _redistribute(peers):
    d = _place("accinte", peers)
    mesh = init_device_mesh(d.type, (peers.size,))
    whole = torch.arange(7.0 * 5 * peers.size, device=d).reshape(-1, 5)
    for source in (Shard(0), Shard(1), Replicate()):
        for target in (Shard(0), Shard(1), Replicate()):
            x = distribute_tensor(whole, mesh, [source]).redistribute(placements=[target])
            assert torch.equal(x.full_tensor().cpu(), whole.cpu())
    torch.accinte.set_device(0)


def test_redistribute(pair):
    pair.run(_redistribute)


def _batch_norm(peers, shape, dtype, affine):
    """Each rank has another part of a batch; the reference is one process with the whole batch."""
    d = _place("accinte", peers)
    torch.manual_seed(0)
    sizes = [shape[0] + r for r in range(peers.size)]
    whole = (torch.nn.BatchNorm1d if len(shape) < 4 else torch.nn.BatchNorm2d)(shape[1], affine=affine)
    own = torch.nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(whole)).to(d)
    ddp = DistributedDataParallel(own) if affine else own
    tolerance = dict(atol=1e-5, rtol=1e-4) if dtype == torch.float32 else dict(atol=5e-2, rtol=2e-2)
    for _ in range(2):
        x = torch.randn(sum(sizes), *shape[1:]).to(dtype)
        g = torch.randn_like(x)
        part = slice(sum(sizes[: peers.rank]), sum(sizes[: peers.rank + 1]))
        all_of_it, mine = x.float().clone().requires_grad_(), x[part].to(d).requires_grad_()
        whole(all_of_it).backward(g.float())
        y = ddp(mine)
        y.backward(g[part].to(d))
        assert y.dtype == dtype and mine.grad.dtype == dtype
        torch.testing.assert_close(mine.grad.cpu().float(), all_of_it.grad[part], **tolerance)
        for name, value in whole.named_buffers():
            torch.testing.assert_close(dict(own.named_buffers())[name].cpu(), value, **tolerance)
        for name, p in whole.named_parameters():  # DDP's are means
            torch.testing.assert_close(dict(own.named_parameters())[name].grad.cpu() * peers.size, p.grad, **tolerance)
        whole.zero_grad()
        own.zero_grad()
    whole.eval(), own.eval()
    torch.testing.assert_close(own(mine.float()).cpu(), whole(mine.cpu().float()), **tolerance)
    torch.accinte.set_device(0)


@pytest.mark.parametrize(
    "shape, dtype, affine",
    [
        ((5, 3), torch.float32, True),
        ((2, 3, 7), torch.float32, False),
        ((2, 4, 3, 5), torch.float32, True),
        ((4, 4, 3, 5), torch.bfloat16, False),
    ],
)
def test_batch_norm(pair, shape, dtype, affine):
    pair.run(_batch_norm, shape, dtype, affine)
