"""Ray Train on two nodes of a local cluster: TorchConfig takes the backend's name. A worker is killed once, and the run
goes on from its last checkpoint.

python ray_train.py [BACKEND]   # chorus, unless another is named
"""

import os
import signal
import sys
import tempfile

import ray
import ray.train
import torch
import torch.distributed as dist
from ray.cluster_utils import Cluster
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model
from torch import nn

backend = sys.argv[1] if len(sys.argv) > 1 else "chorus"
EPOCHS, KILLED_AT = 6, 3


def train(config):
    torch.manual_seed(0)
    model = prepare_model(nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    context, begin = ray.train.get_context(), 0
    rank = context.get_world_rank()
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "state.pt"))
        model.load_state_dict(state["model"])
        begin = state["epoch"] + 1
    for epoch in range(begin, EPOCHS):
        if epoch == KILLED_AT and begin == 0 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        x = torch.randn(32, 16, generator=torch.Generator().manual_seed(100 * epoch + rank))
        loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        facts = {
            "epoch": epoch,
            "loss": mean.item() / context.get_world_size(),
            "backend": dist.get_backend(),
            "begin": begin,
            "node": ray.get_runtime_context().get_node_id(),
        }
        with tempfile.TemporaryDirectory() as folder:
            saved = None
            if rank == 0:
                torch.save({"model": model.state_dict(), "epoch": epoch}, os.path.join(folder, "state.pt"))
                saved = ray.train.Checkpoint.from_directory(folder)
            ray.train.report(facts, checkpoint=saved)


if __name__ == "__main__":
    cluster = Cluster(initialize_head=True, connect=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=2)
    with tempfile.TemporaryDirectory() as storage:
        result = TorchTrainer(
            train,
            torch_config=TorchConfig(backend=backend),  # the one word
            scaling_config=ray.train.ScalingConfig(num_workers=2, placement_strategy="SPREAD"),
            run_config=ray.train.RunConfig(
                storage_path=storage, failure_config=ray.train.FailureConfig(max_failures=1)
            ),
        ).fit()
        m = result.metrics
        assert m["begin"] > 0, "the run has not begun anew from a checkpoint"
        print(f"epoch {m['epoch']} loss {m['loss']:.6f}")
        print("restarted at epoch", m["begin"])
        print("backend", m["backend"])
    ray.shutdown()
    cluster.shutdown()
