"""A rank that is killed, as by the kernel when memory runs out; the others learn which."""

import os
import signal

import chorus
import torch
import torch.distributed as dist

dist.init_process_group("chorus")
rank = dist.get_rank()
try:
    for step in range(100):
        if rank == 1 and step == 50:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(torch.ones(1024))
except chorus.PeerLostError as error:
    print(f"rank {rank}: rank {error.peer} is gone, in {error.op} #{error.seq}")
