"""Ray's collective groups: actors on two nodes of a local cluster train one model by ray.util.collective.

python ray_collective.py [BACKEND]   # chorus, unless another is named
"""

import sys

import chorus.ray
import ray
import torch
from ray.cluster_utils import Cluster
from ray.util import collective
from torch import nn

backend = sys.argv[1] if len(sys.argv) > 1 else "chorus"
SIZE = 2


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
class Worker:
    def train(self, rank):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for step in range(8):
            x = torch.randn(8, 16, generator=torch.Generator().manual_seed(10 * step + rank))
            loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            for p in model.parameters():
                collective.allreduce(p.grad)
                p.grad /= SIZE
            optimizer.step()
            mean = loss.detach().numpy().reshape(1).copy()
            collective.allreduce(mean)
            losses.append(mean[0] / SIZE)
        return losses, collective.collective.get_group_handle().backend().lower()


if __name__ == "__main__":
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    chorus.ray.register()
    ray.init(cluster.address, runtime_env={"worker_process_setup_hook": "chorus.ray.register"})
    workers = [Worker.remote() for _ in range(SIZE)]
    collective.create_collective_group(workers, SIZE, list(range(SIZE)), backend)  # the one word
    (losses, used), _ = ray.get([worker.train.remote(rank) for rank, worker in enumerate(workers)])
    for step, loss in enumerate(losses):
        print(f"step {step} loss {loss:.6f}")
    print("backend", used)
    ray.shutdown()
    cluster.shutdown()
