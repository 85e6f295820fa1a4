"""Messages around a ring, one by one and as a batch.

    torchrun --nproc-per-node 3 python/examples/torchcomms/send_recv.py
"""

import torch
import torchcomms


def main():
    comm = torchcomms.new_comm("gloo", torch.device("cpu"), name="send_recv")
    rank, size = comm.get_rank(), comm.get_size()
    right, left = (rank + 1) % size, (rank - 1) % size

    # One by one: one rank has to receive first.
    token = torch.zeros(1)
    if rank == 0:
        comm.send(token, right, async_op=False)
        comm.recv(token, left, async_op=False)
        assert token.item() == size - 1
    else:
        comm.recv(token, left, async_op=False)
        token += 1
        comm.send(token, right, async_op=False)

    # As a batch the order does not matter.
    got = torch.zeros(1000)
    batch = comm.batch_op_create()
    batch.send(torch.full((1000,), float(rank)), right)
    batch.recv(got, left)
    batch.issue(async_op=True).wait()
    print(f"rank {rank}: rank {int(got[0])} is on the left")
    comm.finalize()


if __name__ == "__main__":
    main()
