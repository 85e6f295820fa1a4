"""A rank of a library that lives in PyTorch: python torch.py LIBRARY SOCKET BUILD RANK SIZE PORT [PIN].

LIBRARY is gloo, vllm or deepspeed; BUILD is the folder with what the harness built for it, and PIN ties each rank to a
core. The rounds themselves run in C++ (torch.cpp).
"""

import os
import sys

if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
    sys.path.pop(0)  # this file's own name is torch's

library, socket, build, rank, size, port = sys.argv[1:7]
rank, size = int(rank), int(size)
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, LOCAL_SIZE=str(size), OMP_NUM_THREADS="1")
if len(sys.argv) > 7:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})

import torch
import torch.distributed as dist

sys.path.insert(0, build)
import chorus_compare

torch.set_num_threads(1)
dist.init_process_group("gloo", rank=rank, world_size=size)
handle = 0
if library == "vllm":
    torch.ops.load_library(os.environ["VLLM_LIBRARY"])
    name = f"chorus-compare-{port}"
    handle = torch.ops._C.init_shm_manager(name, size, rank, 1)
    dist.barrier()
    torch.ops._C.join_shm_manager(handle, name)
    dist.barrier()
elif library == "deepspeed":
    import deepspeed_shm_comm

    deepspeed_shm_comm.initialize(size, rank)
    dist.barrier()
sys.exit(chorus_compare.serve(library, handle, dist.distributed_c10d._get_default_group().group_name, rank, size, socket))
