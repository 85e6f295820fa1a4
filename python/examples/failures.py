"""What a failure says. Run it on three ranks:

    torchrun --nproc-per-node 3 python/examples/failures.py
"""

import datetime

import torch
import torch.distributed as dist

import chorus


def main():
    dist.init_process_group("chorus")
    rank = dist.get_rank()

    # If ranks call different operations, every rank gets the error at once.
    group = dist.new_group()
    try:
        dist.all_reduce(torch.ones(4 if rank else 5), group=group)
    except chorus.MismatchError as error:
        print(
            f"rank {rank}: rank {error.ranks[0]} calls {error.calls[0]}, rank {error.ranks[1]} calls {error.calls[1]}"
        )

    # A rank that doesn't come is named when the time is over.
    group = dist.new_group(timeout=datetime.timedelta(seconds=5))
    if rank != 2:
        try:
            dist.barrier(group)
        except chorus.TimeoutError as error:
            print(f"rank {rank}: {error.op} #{error.seq} misses {error.missing_ranks}")

    dist.barrier()  # other groups go on
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
