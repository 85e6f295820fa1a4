"""Accelerate: a process group that exists is the one it uses.

torchrun --nproc-per-node 2 accelerate_loop.py [BACKEND]   # chorus, unless another is named
"""

import sys

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

backend = sys.argv[1] if len(sys.argv) > 1 else "chorus"
dist.init_process_group(backend)  # before Accelerate, which refuses backends on CPUs that it doesn't know
accelerator = Accelerator(cpu=True)

torch.manual_seed(0)
x = torch.randn(64, 16)
data = DataLoader(TensorDataset(x, x[:, :4].argmax(1)), batch_size=8)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), data)
for epoch in range(2):
    for step, (inputs, labels) in enumerate(data):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        mean = accelerator.reduce(loss.detach(), "mean").item()
        accelerator.print(f"step {epoch * len(data) + step} loss {mean:.6f}")
accelerator.print("backend", dist.get_backend(), "ranks", accelerator.num_processes)
accelerator.end_training()
