"""The basic operations, between ranks that meet in a file.

    torchrun --nproc-per-node 3 python/examples/torchcomms/file_store.py /tmp/meeting-point

The file must be on a file system that all ranks see, and new for each run.
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import torchcomms


def main():
    store = dist.FileStore(sys.argv[1])
    comm = torchcomms.new_comm("gloo", torch.device("cpu"), name="basic", store=store, timeout=timedelta(seconds=60))
    rank, size = comm.get_rank(), comm.get_size()
    comm.barrier(False)

    x = torch.tensor([7.0, 8.0]) if rank == 0 else torch.zeros(2)
    comm.broadcast(x, root=0, async_op=False)
    assert x.tolist() == [7.0, 8.0]

    everybody = [torch.zeros(2) for _ in range(size)]
    comm.all_gather(everybody, torch.full((2,), float(rank)), async_op=False)
    assert [e[0].item() for e in everybody] == list(range(size))

    mine = torch.zeros(1)
    comm.reduce_scatter_single(mine, torch.arange(float(size)), torchcomms.ReduceOp.SUM, async_op=False)
    assert mine.item() == rank * size

    # Rank s sends 10 s + d to rank d.
    received = torch.zeros(size)
    comm.all_to_all_single(received, torch.arange(float(size)) + 10 * rank, async_op=False)
    assert received.tolist() == [10.0 * s + rank for s in range(size)]

    half = comm.split([r for r in range(size) if r % 2 == rank % 2], name=f"half_{rank % 2}")
    print(f"rank {rank}: all right, and rank {half.get_rank()} of {half.get_size()} in {half.get_name()}")
    half.finalize()
    comm.finalize()


if __name__ == "__main__":
    main()
