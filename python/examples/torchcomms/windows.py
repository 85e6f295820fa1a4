"""One-sided communication: writing into a neighbor's memory, and telling it so.

    torchrun --nproc-per-node 2 python/examples/torchcomms/windows.py
"""

import torch
import torchcomms


def main():
    comm = torchcomms.new_comm("gloo", torch.device("cpu"), name="windows")
    rank, size = comm.get_rank(), comm.get_size()
    right, left = (rank + 1) % size, (rank - 1) % size

    mine = comm.get_mem_allocator().zeros(2 * 8)  # memory that the others can map
    window = comm.new_window(mine)
    for step in range(4):
        # Into the other half, from element 8 or 0.
        window.put(torch.full((8,), 10.0 * rank + step), right, 8 * (step % 2), async_op=False)
        window.signal(right, async_op=False)
        window.wait_signal(left, async_op=False)
        assert mine[8 * (step % 2)].item() == 10.0 * left + step

    comm.barrier(False)
    unified = torchcomms.TorchCommWinAccessType.WIN_ACCESS_TYPE_UNIFIED
    if window.get_attr(right).access_type is unified:
        theirs = window.map_remote_tensor(right)
        print(f"rank {rank}: rank {right} has {theirs[0].item():g} and {theirs[8].item():g}")
        del theirs
    comm.barrier(False)
    window.tensor_deregister()
    comm.finalize()


if __name__ == "__main__":
    main()
