"""Starts that fail on some rank, and are retried on the same store."""

import os
import signal
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from worlds import context, free_port

import chorus

LIMIT = timedelta(seconds=1)
PATIENCE = timedelta(seconds=60)
BACKENDS = {"chorus": {}, "accl": {}, "gloo": {"pg_options": {"wire": "gloo"}}}


def _start(store, rank, size, kind="chorus", timeout=LIMIT):
    backend = "accl" if kind == "accl" else "chorus"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout, **BACKENDS[kind])
    x = torch.full((4,), rank + 1.0)
    dist.all_reduce(x)
    assert x.tolist() == [size * (size + 1) / 2] * 4
    dist.destroy_process_group()


def _tries(store, rank, size, kind, most):
    """The number of failed tries before a successful one."""
    for failed in range(most):
        try:
            _start(store, rank, size, kind, LIMIT if failed == 0 else PATIENCE)
            return failed
        except (chorus.Error, RuntimeError) as error:
            store.set(f"missed/{rank}", repr(error))
    raise AssertionError(f"rank {rank} tried {most} times: {store.get(f'missed/{rank}').decode()}")


def _open(place):
    if isinstance(place, int):
        return dist.TCPStore("127.0.0.1", place, is_master=False, timeout=PATIENCE, wait_for_workers=False)
    return dist.FileStore(place, -1)


def _rank(pipe, target, place, rank, size, *args):
    torch.set_num_threads(1)
    try:
        pipe.send(target(_open(place), rank, size, *args))
    except BaseException as error:
        pipe.send(repr(error))
        raise


class Ranks:
    """Processes that join as ranks through a store."""

    def __init__(self, size, place=None):
        self.size = size
        self.place = free_port() if place is None else place
        self.server = None
        if place is None:
            self.server = dist.TCPStore("127.0.0.1", self.place, None, True, timeout=PATIENCE, wait_for_workers=False)
        self.store = _open(self.place)
        self.came = []

    def come(self, target, rank, *args):
        ours, theirs = context.Pipe()
        process = context.Process(target=_rank, args=(theirs, target, self.place, rank, self.size, *args), daemon=True)
        process.start()
        theirs.close()
        self.came.append((process, ours))
        return process

    def results(self):
        """The results of the processes that live."""
        found = []
        for process, pipe in self.came:
            if process.exitcode == -signal.SIGKILL:
                continue
            assert pipe.poll(100), "no answer"
            found.append(pipe.recv())
            process.join()
        return found

    def wait_for(self, key):
        """Wait until a rank of the default group has set a key."""
        self.store.wait([f"0//cpu//{key}"], PATIENCE)


def _late(store, rank, size, kind):
    if rank == size - 1:
        store.wait([f"missed/{r}" for r in range(size - 1)], PATIENCE)
    return _tries(store, rank, size, kind, 3)


@pytest.mark.parametrize("kind", [*BACKENDS, "file"])
def test_late(kind, tmp_path):
    """A rank that starts after the others have timed out meets them in one of their next two tries."""
    ranks = Ranks(3, str(tmp_path / "store") if kind == "file" else None)
    for rank in range(3):
        ranks.come(_late, rank, "chorus" if kind == "file" else kind)
    got = ranks.results()
    assert all(isinstance(failed, int) for failed in got), got


def _interrupted(store, rank, size):
    if rank == 1:
        store.wait(["interrupted"], PATIENCE)
        return _tries(store, rank, size, "chorus", 3)
    try:
        _start(store, rank, size, timeout=PATIENCE)
    except KeyboardInterrupt:
        store.set("interrupted", "")
    return _tries(store, rank, size, "chorus", 3)


def test_interrupted():
    """Ctrl-C ends a start, and the next one succeeds."""
    ranks = Ranks(2)
    waiting = ranks.come(_interrupted, 0)
    ranks.wait_for("chorus/default_pg/2/0/0")
    os.kill(waiting.pid, signal.SIGINT)
    ranks.come(_interrupted, 1)
    assert ranks.results() == [0, 0]


def _patient(store, rank, size):
    _start(store, rank, size, timeout=PATIENCE)
    return 0


def test_replaced():
    """A process replaces one that was killed while it waited, and the others don't notice."""
    ranks = Ranks(3)
    ranks.come(_patient, 0)
    doomed = ranks.come(_patient, 1)
    ranks.wait_for("chorus/default_pg/3/0/1")
    doomed.kill()
    doomed.join()
    ranks.come(_patient, 1)
    ranks.wait_for("chorus/default_pg/3/1/1")
    ranks.come(_patient, 2)
    assert ranks.results() == [0, 0, 0]


def _crossed(store, rank, size):
    dist.init_process_group("chorus", store=store, rank=rank, world_size=size, timeout=PATIENCE)
    mine = [0, 3] if rank in (0, 3) else [1, 2]
    try:
        group = dist.new_group(mine)
        x = torch.full((4,), 2.0**rank)
        dist.all_reduce(x, group=group)
        assert x[0] == sum(2.0**r for r in mine)
        outcome = "paired"
    except chorus.MismatchError as error:
        assert "ranks 0, 3 of the job" in str(error) and "ranks 1-2 of the job" in str(error), error
        outcome = "crossed"
    return outcome


def test_crossed_groups():
    """Ranks that call new_group with their own members alone get these, or an error with both lists."""
    for _ in range(2):
        ranks = Ranks(4)
        for rank in range(4):
            ranks.come(_crossed, rank)
        got = ranks.results()
        assert set(got) <= {"paired", "crossed"} and got[0] == got[3] and got[1] == got[2] or "crossed" in got, got
