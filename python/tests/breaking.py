"""For programs in which a rank dies, aborts or gives up."""

import datetime
import itertools

import torch.distributed as dist

TIMEOUT = 60  # seconds, of every operation in a test

_numbers = itertools.count()


def until_left(breaker, rank=None, size=None, store=None):
    """Rank ``breaker`` waits until every other one is here. After a barrier another rank may still be in it: what fails
    now reaches no rank in an operation of before."""
    if rank is None:
        rank, size = dist.get_rank(), dist.get_world_size()
    store = store or dist.distributed_c10d._get_default_store()
    key = f"left/{next(_numbers)}/"
    if rank != breaker:
        store.set(f"{key}{rank}", "")
    elif size > 1:
        store.wait([f"{key}{r}" for r in range(size) if r != breaker], datetime.timedelta(seconds=TIMEOUT))
