import datetime
import os
import signal
import sys
import threading
import time

import pytest
import torch
import torch.distributed as dist
from table import data, same, total
from worlds import LONG, context, free_port

import chorus
from chorus._comm import Communicator
from chorus._devices import served
from chorus._store import opened


def _sum(peers, group, ranks, n=9):
    x = data(peers.rank, torch.float32, n)
    dist.all_reduce(x, group=group)
    assert same(x, total([data(r, torch.float32, n) for r in ranks]))


def _new_group(peers):
    evens, odds = [list(range(i, peers.size, 2)) for i in (0, 1)]
    groups = [dist.new_group(ranks) for ranks in (evens, odds) if ranks]
    mine, ranks = (groups[0], evens) if peers.rank % 2 == 0 else (groups[1], odds)
    _sum(peers, mine, ranks)
    assert dist.get_backend(mine) == "chorus" and dist.get_process_group_ranks(mine) == ranks
    assert dist.get_group_rank(mine, peers.rank) == ranks.index(peers.rank)
    dist.broadcast(torch.ones(1), src=ranks[-1], group=mine)
    dist.barrier(mine)
    dist.destroy_process_group(mine)
    again = dist.new_group(backend="chorus", timeout=datetime.timedelta(seconds=30), group_desc="again")
    assert again.group_desc == "again" and again.name() == "chorus"
    _sum(peers, again, range(peers.size))
    dist.destroy_process_group(again)
    tcp = dist.new_group(pg_options={"fabric": "tcp"})
    _sum(peers, tcp, range(peers.size))
    dist.destroy_process_group(tcp)
    _sum(peers, None, range(peers.size))


def test_new_group(world):
    world.run(_new_group)


def _split(peers):
    half = (peers.size + 1) // 2
    ranks = list(range(half)) if peers.rank < half else list(range(half, peers.size))[::-1]
    part = chorus.split_group(ranks)
    _sum(peers, part, ranks)
    assert dist.get_group_rank(part, peers.rank) == ranks.index(peers.rank)
    assert dist.get_process_group_ranks(part) == sorted(ranks) or dist.get_process_group_ranks(part) == ranks
    if peers.rank == 0:
        with pytest.raises(TypeError):
            chorus.split_group([0, 0.5])
    again = chorus.split_group(ranks)
    assert again.group_name != part.group_name
    names = [None] * len(ranks)
    dist.all_gather_object(names, again.group_name, group=again)
    assert set(names) == {again.group_name}, "a refused split on one rank leaves the names alike"
    _sum(peers, again, ranks)
    dist.destroy_process_group(again)
    dist.destroy_process_group(part)
    none = chorus.split_group([0], group_name="alone")
    assert (none is None) == (peers.rank != 0)
    if none is not None:
        _sum(peers, none, [0])
        dist.destroy_process_group(none)


def test_split(world):
    world.run(_split)


def _mesh(peers):
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("row", "column"))
    row, column = peers.rank // 2, peers.rank % 2
    _sum(peers, mesh.get_group("column"), [2 * row, 2 * row + 1])
    _sum(peers, mesh.get_group("row"), [column, column + 2])
    assert mesh["column"].get_local_rank() == column
    flat = mesh._flatten("all")
    _sum(peers, flat.get_group(), range(4))


def test_mesh():
    from worlds import world_of

    world_of(4).run(_mesh)


@pytest.mark.parametrize("backend", ["cpu:chorus,cuda:gloo", "cuda:gloo,cpu:chorus", "cpu:chorus", "CHORUS"])
def test_backend_strings(pair, backend):
    pair.run(_string, backend)


def _string(peers, backend):
    """One group, several devices: each device has its backend. Gloo stands for NCCL, as there is no GPU here."""
    group = dist.new_group(backend=backend)
    _sum(peers, group, range(peers.size))
    devices = {d.type for d in group._device_types}
    assert devices == {"cpu", *(["cuda"] if "cuda" in backend else []), *(served() if ":" not in backend else [])}
    if "cuda" in backend:
        other = group._get_backend(torch.device("cuda"))
        assert other.name() == "gloo"
        x = torch.ones(4) * (peers.rank + 1)
        other.allreduce([x]).wait()
        assert x.tolist() == [3.0] * 4
    dist.destroy_process_group(group)


def _without_gpus(peers):
    assert "chorus._gpu_group" not in sys.modules and not dist.group.WORLD._parts()
    group = dist.new_group(backend="cpu:chorus,cuda:chorus")
    assert group._device_types == [torch.device("cpu")] and not group._parts()
    _sum(peers, group, range(peers.size))
    dist.destroy_process_group(group)
    with pytest.raises(chorus.UnsupportedError, match="a group of cuda:chorus serves no device: there are only cpu"):
        dist.new_group(backend="cuda:chorus")
    assert "chorus._gpu_group" not in sys.modules


@pytest.mark.skipif("cuda" in served(), reason="there is a GPU")
def test_without_gpus(pair):
    """A group has no part for missing GPUs; a group for GPUs alone is refused."""
    pair.run(_without_gpus)


def _facts(peers):
    group = dist.group.WORLD
    assert isinstance(group, chorus.ProcessGroup) and isinstance(group, dist.ProcessGroup)
    assert dist.get_backend() == "chorus" and dist.is_initialized()
    assert group.rank() == peers.rank and group.size() == peers.size
    assert dist.get_backend_config() == ",".join(f"{device}:chorus" for device in ("cpu", *served()))
    assert group.get_group_store().num_keys() > 0
    group.set_timeout(datetime.timedelta(seconds=60))
    before = group._get_sequence_number_for_group()
    dist.barrier()
    assert group._get_sequence_number_for_group() == before + 1
    assert chorus.failure() is None
    ours = group._get_backend(torch.device("cpu"))
    assert ours.supports_splitting and ours.supports_coalescing


def test_facts(world):
    world.run(_facts)


def _what_it_has_not(peers):
    group = dist.group.WORLD
    calls = {
        "new_window": (torch.ones(3),),
        "register_pre_hook": (1, print),
        "register_post_hook": (1, print),
        "register_abort_hook": (1, print),
        "reconfigure": (None,),
        "get_reconfigure_handle": (),
    }
    for name, args in calls.items():
        with pytest.raises(chorus.UnsupportedError, match=f"a process group has no {name}: .*chorus.torchcomms"):
            getattr(group, name)(*args)


def test_what_it_has_not(pair):
    pair.run(_what_it_has_not)


def _concurrent(peers):
    """Groups don't delay each other, and threads of one process may use several at a time."""
    import threading

    groups = [dist.new_group() for _ in range(3)]
    errors = []

    def train(group):
        try:
            for _ in range(50):
                _sum(peers, group, range(peers.size), 100)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=train, args=(g,)) for g in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    for group in groups:
        dist.destroy_process_group(group)


def test_concurrent(world):
    world.run(_concurrent)


class _Dying(dist.Store):
    """A store whose server is killed at one of this rank's calls."""

    def __init__(self, store, server, at):
        super().__init__()
        self.inner, self.server, self.left = store, server, at

    def _next(self):
        self.left -= 1
        if self.left == 0:
            os.kill(self.server, signal.SIGKILL)
            while True:  # its sockets are closed a moment later
                self.inner.check(["x"])
        return self.inner

    def set(self, key, value):
        return self._next().set(key, value)

    def get(self, key):
        return self._next().get(key)

    def add(self, key, n):
        return self._next().add(key, n)

    def check(self, keys):
        return self._next().check(keys)

    def wait(self, keys, *timeout):
        return self._next().wait(keys, *timeout)


def _serve_store(port, seconds):
    store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    time.sleep(seconds)
    del store


def _without_store(peers, port, server, step):
    """Make a group whose store ends at a step of the last rank; return whether that failed."""
    store = dist.TCPStore("127.0.0.1", port, wait_for_workers=False, timeout=datetime.timedelta(seconds=60))
    dist.barrier()  # all have connected
    mine = _Dying(store, server, step if peers.rank == peers.size - 1 else 0)
    try:
        comm = Communicator.create(peers.rank, peers.size, mine, name="orphan", timeout_ns=30_000_000_000)
    except chorus.PeerLostError as error:
        comm, result = None, (error.peer, str(error))
    dist.barrier()  # else the end of this rank's reaches the other one while it makes its own
    if comm is None:
        return result
    comm.abort("the test is over")
    return None


def test_store_dies_while_a_group_is_made(pair):
    """The store dies at each step of one rank: every rank names the lost one at once, or has the group."""
    for step in range(1, 30) if LONG else (1, 2, 3, 6):
        port = free_port()
        server = context.Process(target=_serve_store, args=(port, 100), daemon=True)
        server.start()
        try:
            results = pair.run(_without_store, port, server.pid, step)
        finally:
            server.kill()
            server.join()
        if results == [None, None]:
            break  # the store gets fewer calls than that
        for result in filter(None, results):
            assert result[0] == 0 and "rank 0 of the world is lost: the store" in result[1], (step, results)
    assert step > 5


class _Gone(dist.Store):
    """A store whose server is gone."""

    def check(self, keys):
        raise ConnectionResetError("gone")


def _lost_with_the_store(_):
    for store, rank in (_Gone(), 0), (dist.HashStore(), 1):
        for lost in chorus.PeerLostError("rank 1 is lost", peer=1), chorus.AbortedError("rank 1 gave up", by=1):
            with pytest.raises(type(lost) if rank else chorus.PeerLostError) as caught, opened(store):
                raise lost
            assert (caught.value.by if type(caught.value) is chorus.AbortedError else caught.value.peer) == rank


def test_lost_with_the_store(pair):
    """A rank that no longer needs the store loses a rank that still does. Both report that the store is gone."""
    pair.run(_lost_with_the_store)


class _Leaves(dist.HashStore):
    """A store whose server ends when the ranks report that they have found each other."""

    def add(self, key, n):
        if key.endswith("/ready"):
            raise ConnectionResetError("gone")
        return super().add(key, n)


def _made_without_the_store(_):
    store, made = _Leaves(), {}

    def make(rank):
        made[rank] = Communicator.create(rank, 2, store, name="without", timeout_ns=30 * 10**9)

    other = threading.Thread(target=make, args=(1,))
    other.start()
    make(0)
    other.join()
    for comm in made.values():
        assert comm.size == 2
    other = threading.Thread(target=made[1].finalize)
    other.start()
    made[0].finalize()
    other.join()


def test_made_without_the_store(pair):
    """The rank that serves the store may end as soon as it has its group: the others have found each other."""
    pair.run(_made_without_the_store)


def _hints(_):
    for hints, words in [
        ({"speed": "more"}, 'unknown hint "speed"; known are fabric, '),
        ({"fabric": "nonesuch"}, 'unknown fabric "nonesuch"; have '),
        ({"fabric.nonesuch": "1"}, 'option fabric.nonesuch="1": unknown; known are addr, '),
        ({"fabric": "tcp", "fabric.buffer": "x"}, 'option fabric.buffer="x"'),
        ({"algorithm": "nonesuch"}, 'algorithm="nonesuch": want one of '),
        ({"chunk_bytes": "-1"}, 'chunk_bytes="-1"'),
    ]:
        with pytest.raises(chorus.InvalidArgumentError) as caught:
            Communicator.create(0, 1, dist.HashStore(), name="hinted", hints=hints)
        assert words in str(caught.value)
    with pytest.raises(chorus.InvalidArgumentError) as caught:
        dist.new_group(pg_options={"fabric": "nonesuch"})
    assert 'opening fabric "nonesuch" (hint fabric): ' in str(caught.value)
    assert str(caught.value).endswith(" (pg_options={'fabric': 'nonesuch'})")


def test_unknown_hints(pair):
    pair.run(_hints)


def _leaves_no_keys(peers):
    """A destroyed group leaves one key in the store: the count of groups made under its name."""
    store = dist.TCPStore("127.0.0.1", peers.port, peers.size, False)
    dist.barrier()
    before = set(store.list_keys())
    dist.barrier()
    group = dist.new_group(list(range(peers.size)))
    dist.all_reduce(torch.ones(3), group=group)
    dist.destroy_process_group(group)
    dist.barrier()
    left = [key for key in set(store.list_keys()) - before if "chorus" in key]
    assert len(left) == 1 and left[0].endswith("/held"), left


@pytest.mark.skipif(not hasattr(dist.TCPStore, "list_keys"), reason="this PyTorch's store doesn't tell its keys")
def test_leaves_no_keys(pair):
    pair.run(_leaves_no_keys)
