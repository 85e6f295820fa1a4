import datetime

import pytest
import torch.distributed as dist

import chorus


def _barrier(peers):
    """Nobody leaves before everybody has come: each counts itself in before, and finds all counted after."""
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


def test_barrier(world):
    world.run(_barrier)


def _no_time(peers):
    group = dist.new_group()
    if peers.rank == 0:
        with pytest.raises(chorus.TimeoutError) as caught:
            group.monitored_barrier(datetime.timedelta(0))
        assert (*caught.value.missing_ranks, *caught.value.unknown_ranks) == (1,)
    dist.barrier()


def test_no_time(pair):
    pair.run(_no_time)
