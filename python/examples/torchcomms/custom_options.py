"""Timeouts and hints, of a communicator and of one operation, and what a missed deadline looks like.

    torchrun --nproc-per-node 2 python/examples/torchcomms/custom_options.py
"""

from datetime import timedelta

import torch
import torchcomms


def main():
    comm = torchcomms.new_comm(
        "gloo",
        torch.device("cpu"),
        name="custom_options",
        timeout=timedelta(seconds=60),
        abort_process_on_timeout_or_error=False,
        hints={"fabric": "auto", "is_high_priority_stream": "true"},
    )
    rank = comm.get_rank()
    assert comm.get_options().timeout == timedelta(seconds=60)
    x = torch.ones(1 << 16)
    comm.all_reduce(
        x, torchcomms.ReduceOp.PREMUL_SUM(0.5), False, hints={"algorithm": "ring"}, timeout=timedelta(seconds=30)
    )
    assert x[0].item() == comm.get_size() / 2

    # Options of a part are the whole's, unless given. A failure breaks the one and not the other.
    part = comm.split(list(range(comm.get_size())), name="part", timeout=timedelta(milliseconds=300))
    if rank == 0:  # the others don't come
        try:
            part.barrier(False)
        except RuntimeError as error:
            within = part.get_options().timeout.total_seconds()  # error.elapsed is how long it took, which may be more
            print(f"rank 0: {type(error).__name__}: ranks {error.missing_ranks} did not come in {within} s")
    comm.barrier(False)
    part.finalize()
    comm.finalize()


if __name__ == "__main__":
    main()
