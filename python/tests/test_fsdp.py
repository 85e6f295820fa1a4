import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from training import compare, model, steps

VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
trains = pytest.mark.skipif(VERSION < (2, 7), reason="fully_shard of PyTorch 2.6 asks CPUs for streams")


def _train(peers, group, kind):
    module = model()
    mesh = DeviceMesh.from_group(group, "cpu")
    options = {"mesh": mesh}
    if kind == "mixed":
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    if kind == "keep":
        options["reshard_after_forward"] = False
    for layer in module:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, **options)
    fully_shard(module, **options)
    if kind == "group_memory" and hasattr(module, "set_allocate_memory_from_process_group_for_comm"):
        if group is dist.group.WORLD:
            module.set_allocate_memory_from_process_group_for_comm(True)

    def loss_of(module, x, y, step):
        return torch.nn.functional.mse_loss(module(x).float(), y)

    return steps(module, lambda: [p.full_tensor() for p in module.parameters()], peers.rank, loss_of=loss_of)


def _compare(peers, kind):
    ours, theirs = (_train(peers, group, kind) for group in (dist.group.WORLD, peers.gloo))
    compare(ours, theirs, peers.size)


@trains
@pytest.mark.parametrize("kind", ["plain", "mixed", "keep", "group_memory"])
def test_like_gloo(pair, kind):
    pair.run(_compare, kind)


@trains
def test_on_three_ranks():
    from worlds import world_of

    world_of(3).run(_compare, "plain")  # shards are uneven


def _checkpoint(peers, path):
    """Distributed checkpoints are written and read through the group."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict

    mesh = DeviceMesh.from_group(dist.group.WORLD, "cpu")
    module = fully_shard(model(), mesh=mesh)
    want = [p.full_tensor().clone() for p in module.parameters()]
    dcp.save({"model": get_model_state_dict(module)}, checkpoint_id=path)
    with torch.no_grad():
        for p in module.parameters():
            p.zero_()
    state = {"model": get_model_state_dict(module)}
    dcp.load(state, checkpoint_id=path)
    for p, w in zip(module.parameters(), want, strict=True):
        assert torch.equal(p.full_tensor(), w)


def test_checkpoint(pair, tmp_path):
    pair.run(_checkpoint, str(tmp_path))
