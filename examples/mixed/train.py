"""Trains a line with PyTorch, on all ranks but the last, which is a program in Go and keeps the metrics."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 50


def main():
    """Train, and drop every reference to the group, so that its threads end before the interpreter does. A thread that
    drops a tensor later would crash the process. The model goes first: if it held the last reference, PyTorch would
    join the group's threads with the interpreter's lock, for which a thread that drops its last all-reduce may wait."""
    dist.init_process_group("gloo")
    rank, metrics = dist.get_rank(), dist.get_world_size() - 1
    trainers = dist.new_group(list(range(metrics)))
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(4, 1), process_group=trainers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for step in range(1, STEPS + 1):
        x = torch.randn(64, 4)
        loss = (model(x) - x.sum(1, keepdim=True) - 3).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.reduce(torch.tensor([loss.item(), len(x), float(step == STEPS)]), dst=metrics)
    dist.barrier()
    del model, loss, optimizer
    dist.destroy_process_group()


main()
