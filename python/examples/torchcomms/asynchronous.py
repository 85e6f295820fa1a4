"""Operations that run while the program computes.

    torchrun --nproc-per-node 2 python/examples/torchcomms/asynchronous.py
"""

import torch
import torchcomms


def main():
    comm = torchcomms.new_comm("gloo", torch.device("cpu"), name="asynchronous")
    rank, size = comm.get_rank(), comm.get_size()
    buckets = [torch.full((1 << 16,), float(rank + i)) for i in range(4)]
    # Collectives of a communicator run one at a time, in the order in which they were issued.
    works = [comm.all_reduce(bucket, torchcomms.ReduceOp.AVG, async_op=True) for bucket in buckets]
    computed = torch.randn(256, 256) @ torch.randn(256, 256)
    for work in works:
        work.wait()
    means = [bucket[0].item() for bucket in buckets]
    assert means == [(size - 1) / 2 + i for i in range(4)] and all(work.is_completed() for work in works)
    print(f"rank {rank}: computed {computed.numel()} numbers meanwhile; the means are {means}")
    comm.finalize()


if __name__ == "__main__":
    main()
