"""A rank that stops coming: its data don't arrive."""

import time

import torch
import torch.distributed as dist


def load_batch(step):
    if dist.get_rank() == 2 and step == 50:
        time.sleep(3600)  # as if a file server didn't answer
    return torch.ones(1024)


dist.init_process_group("chorus")
for step in range(1000):
    batch = load_batch(step)
    dist.all_reduce(batch)
