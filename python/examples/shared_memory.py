"""Memory that peers can map. Run it on two ranks:

    torchrun --nproc-per-node 2 python/examples/shared_memory.py
"""

import time

import torch
import torch.distributed as dist

import chorus


def main():
    dist.init_process_group("chorus")
    tensors = {
        "torch.ones": torch.ones(1 << 20),
        "chorus.empty": chorus.empty(1 << 20).fill_(1),
        "chorus.share": chorus.share(torch.ones(1 << 20)),
    }
    with chorus.shared_memory():
        tensors["chorus.shared_memory"] = torch.ones(1 << 20)
    for name, x in tensors.items():
        dist.all_reduce(x, op=dist.ReduceOp.AVG)
        begin = time.perf_counter()
        for _ in range(20):
            dist.all_reduce(x, op=dist.ReduceOp.AVG)
        took = (time.perf_counter() - begin) / 20
        if dist.get_rank() == 0:
            print(f"{name}: {took * 1e6:.0f} us for 4 MiB, mapped: {chorus.is_shared(x)}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
