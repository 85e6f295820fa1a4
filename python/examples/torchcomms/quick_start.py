"""One communicator, one all-reduce. Run it on two ranks or more:

    torchrun --nproc-per-node 2 python/examples/torchcomms/quick_start.py
"""

import torch
import torchcomms


def main():
    comm = torchcomms.new_comm("gloo", torch.device("cpu"), name="quick_start")
    rank, size = comm.get_rank(), comm.get_size()
    x = torch.full((1024,), float(rank + 1))
    comm.all_reduce(x, torchcomms.ReduceOp.SUM, async_op=False)
    assert x[0].item() == size * (size + 1) / 2
    print(f"rank {rank} of {size} on {comm.get_device()}: the sum is {x[0].item():g}")
    comm.finalize()


if __name__ == "__main__":
    main()
