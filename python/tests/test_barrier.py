import datetime

import pytest
import torch
import torch.distributed as dist
from worlds import world_of

import chorus

VERSION = tuple(map(int, torch.__version__.split(".")[:2]))


def _barrier(peers):
    """No rank leaves before all have entered: each counts itself before, and finds all counted after."""
    store = dist.distributed_c10d._get_default_store()
    for i, async_op in enumerate((False, True, True)):
        store.add(f"came {i}", 1)
        work = dist.barrier(async_op=async_op)
        if async_op:
            work.wait()
        assert store.add(f"came {i}", 0) == peers.size
    dist.barrier(async_op=True)
    dist.barrier(device_ids=None)
    chorus.monitored_barrier(timeout=datetime.timedelta(seconds=30))
    dist.group.WORLD.monitored_barrier(datetime.timedelta(seconds=30), wait_all_ranks=True)
    # PyTorch's own function takes other backends than Gloo from 2.15 on, as docs/from-gloo.md says.
    if VERSION >= (2, 15):
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=30))
    elif VERSION <= (2, 13):
        with pytest.raises(ValueError, match="only implemented for GLOO"):
            dist.monitored_barrier()


def test_barrier(world):
    world.run(_barrier)


def _no_time(peers):
    group = dist.new_group()
    dist.barrier()  # all have it
    if peers.rank == 0:
        with pytest.raises(chorus.TimeoutError) as caught:
            group.monitored_barrier(datetime.timedelta(0))
        assert (*caught.value.missing_ranks, *caught.value.unknown_ranks) == (1,)
    dist.barrier()


def test_no_time(pair):
    pair.run(_no_time)


def _no_other_rank_comes(peers, wait_all_ranks):
    """Only rank 0 calls it: the error has all missing ranks, and its text ends with PyTorch's words."""
    group = dist.new_group()
    dist.barrier()  # all have it
    if peers.rank == 0:
        with pytest.raises(chorus.TimeoutError) as caught:
            chorus.monitored_barrier(group, datetime.timedelta(milliseconds=50), wait_all_ranks)
        assert caught.value.missing_ranks == (1, 2)
        who = "Ranks 1, 2" if wait_all_ranks else "Rank 1"
        assert str(caught.value).endswith(f"({who} failed to pass monitoredBarrier in 50 ms)")
    dist.barrier()
    dist.destroy_process_group(group)


@pytest.mark.parametrize("wait_all_ranks", [False, True])
def test_no_other_rank_comes(wait_all_ranks):
    world_of(3).run(_no_other_rank_comes, wait_all_ranks)
