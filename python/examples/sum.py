"""The sum of all ranks' numbers."""

import torch
import torch.distributed as dist

dist.init_process_group("chorus")
x = torch.full((1024,), float(dist.get_rank()))
dist.all_reduce(x)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: the sum of the ranks is {x[0].item():.0f}")
dist.destroy_process_group()
