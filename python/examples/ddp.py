"""Data-parallel training on CPUs, on any number of ranks. With "gloo" instead of "chorus" it is an ordinary program of
PyTorch."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("chorus")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(100):
        x = torch.randn(64, 8)  # every rank has data of its own
        loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()  # gradients are averaged between the ranks here
        optimizer.step()
    dist.all_reduce(loss, op=dist.ReduceOp.AVG)
    if dist.get_rank() == 0:
        print(f"loss after {step + 1} steps: {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
