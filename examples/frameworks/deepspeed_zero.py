"""DeepSpeed's ZeRO on CPUs: init_distributed takes the backend's name.

DS_ACCELERATOR=cpu torchrun --nproc-per-node 2 deepspeed_zero.py [BACKEND]   # chorus, unless another is named
"""

import sys

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

backend = sys.argv[1] if len(sys.argv) > 1 else "chorus"
deepspeed.init_distributed(dist_backend=backend)  # the one word

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
engine, *_ = deepspeed.initialize(
    model=model,
    optimizer=torch.optim.Adam(model.parameters(), lr=0.01),
    config={
        "train_micro_batch_size_per_gpu": 8,
        "zero_optimization": {"stage": 2},
        "zero_allow_untested_optimizer": True,
    },
)
for step in range(8):
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(10 * step + dist.get_rank()))
    loss = nn.functional.cross_entropy(engine(x), x[:, :4].argmax(1))
    engine.backward(loss)
    engine.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    if dist.get_rank() == 0:
        print(f"step {step} loss {mean.item() / dist.get_world_size():.6f}", flush=True)
if dist.get_rank() == 0:
    print("backend", dist.get_backend(), "ranks", dist.get_world_size())
dist.destroy_process_group()
