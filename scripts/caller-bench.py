"""The time that one all-reduce of a GPU's tensor takes its caller in Python, over libraries whose calls return at once.

    go run ./comm/nccl/nccltest/buildnoop /tmp/libnoop.so libcuda.so.1
    python scripts/caller-bench.py /tmp/libnoop.so

With "one" as a second argument the group serves both the CPU and the GPU. The tensors are those of PyTorch's device
"accinte", on a stream of their own; the library takes them for a GPU's. The time is the calling thread's CPU time.
"""

import ctypes
import os
import statistics
import sys
import time

os.environ["CHORUS_NCCL_LIBRARY"] = sys.argv[1]
ctypes.CDLL(sys.argv[1])

import torch
import torch.distributed as dist
from chorus import backend

CALLS = 1000


def main() -> None:
    device = torch.device("accinte", 0)
    torch.accinte.set_device(device)
    backend.serve("accinte", "cuda", lambda device: 0x5000)
    dist.init_process_group("chorus", store=dist.HashStore(), rank=0, world_size=1, device_id=device,
        pg_options=None if sys.argv[2:] == ["one"] else {"backend": "nccl"})  # fmt: skip
    x = torch.ones(1024, device=device)

    def synchronous() -> None:
        dist.all_reduce(x)

    def asynchronous() -> None:
        dist.all_reduce(x, async_op=True).wait()

    for call in synchronous, asynchronous:
        times = []
        for _ in range(7):
            begin = time.thread_time_ns()
            for _ in range(CALLS):
                call()
            times.append((time.thread_time_ns() - begin) / CALLS / 1000)
        print(f"{call.__name__}: {statistics.median(times):.1f} us of {sorted(round(t, 1) for t in times)}")
    dist.destroy_process_group()


main()
