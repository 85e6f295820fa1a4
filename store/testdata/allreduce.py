"""One rank of two PyTorch jobs of two, one after the other: all-reduces its
rank + 1 and prints the sum."""
import datetime
import os
import sys

import torch
import torch.distributed as dist

tcp, store, rank = (int(a) for a in sys.argv[1:4])
args = {"rank": rank, "world_size": 2, "timeout": datetime.timedelta(seconds=30)}


def job(name):
    x = torch.full((4,), float(rank + 1))
    dist.all_reduce(x)
    dist.barrier()
    print(name, "sum", x[0].item(), flush=True)
    dist.destroy_process_group()


# Nobody among the ranks serves: TORCHELASTIC_USE_AGENT_STORE is set.
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(tcp), RANK=str(rank), WORLD_SIZE="2")
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{tcp}", **args)
job("tcp")
dist.init_process_group("gloo", store=dist.TCPStore("127.0.0.1", store, 2, False), **args)
job("store")
