import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from training import compare, model, steps


def _train(peers, group, sequence):
    mesh = DeviceMesh.from_group(group, "cpu")
    module = model()
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel(), "4": ColwiseParallel(output_layouts=Replicate())}
    if sequence:
        module = torch.nn.Sequential(torch.nn.LayerNorm(8), *module)
        plan = {
            "0": SequenceParallel(sequence_dim=0),
            "1": ColwiseParallel(input_layouts=Shard(0)),
            "3": RowwiseParallel(),
            "5": ColwiseParallel(output_layouts=Shard(0)),
        }
    parallelize_module(module, mesh, plan)

    def full():
        return [p.full_tensor() if isinstance(p, DTensor) else p for p in module.parameters()]

    return steps(module, full, 0)  # all ranks see the same batch


def _compare(peers, sequence):
    ours, theirs = (_train(peers, group, sequence) for group in (dist.group.WORLD, peers.gloo))
    compare(ours, theirs, peers.size)


def test_like_gloo(pair):
    pair.run(_compare, False)


def test_sequence_parallel(pair):
    pair.run(_compare, True)


def _redistribute(peers):
    """Every change of a DTensor's placement, on one and two dimensions."""
    mesh = DeviceMesh.from_group(dist.group.WORLD, "cpu")
    whole = torch.arange(7.0 * 5 * peers.size).reshape(-1, 5)
    for source in (Shard(0), Shard(1), Replicate()):
        for target in (Shard(0), Shard(1), Replicate()):
            x = distribute_tensor(whole, mesh, [source]).redistribute(placements=[target])
            assert torch.equal(x.full_tensor(), whole)


def test_redistribute(world):
    world.run(_redistribute)
