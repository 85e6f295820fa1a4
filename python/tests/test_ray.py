"""Ray's collective groups over Chorus: actors on the nodes of a local cluster."""

import os
import signal
import sys
import time
from datetime import timedelta

import numpy as np
import pytest
import torch

import chorus

ray = pytest.importorskip("ray", reason="ray is not installed")
from ray.cluster_utils import Cluster  # noqa: E402
from ray.util import collective  # noqa: E402
from ray.util.collective.types import ReduceOp  # noqa: E402

import chorus.ray  # noqa: E402

pytestmark = pytest.mark.long
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers don't find the modules of the tests
NODES = 3
TIMEOUT = timedelta(seconds=60)
PATIENCE = 120


class Actor:
    """A rank, whose methods return what it has got."""

    def __init__(self, rank, size):
        torch.set_num_threads(1)
        self.rank, self.size = rank, size

    def node(self):
        return ray.get_runtime_context().get_node_id()

    def init(self, group, seconds=60):
        chorus.ray.register(timeout=timedelta(seconds=seconds))
        collective.init_collective_group(self.size, self.rank, "chorus", group)

    def values(self, make, count=4):
        return [make(self.rank * 10 + i) for i in range(count)]

    def allreduce(self, make, group, op):
        x = make([self.rank + 1, self.rank + 2])
        collective.allreduce(x, group, op)
        return list(map(float, x))

    def reduce(self, make, group, root):
        x = make([self.rank + 1, 2])
        collective.reduce(x, root, group)
        return list(map(float, x))

    def allgather(self, make, group):
        out = [make([0, 0]) for _ in range(self.size)]
        collective.allgather(out, make([self.rank, self.rank + 0.5]), group)
        return [list(map(float, x)) for x in out]

    def reducescatter(self, make, group):
        given = [make([self.rank + i, i]) for i in range(self.size)]
        out = make([0, 0])
        collective.reducescatter(out, given, group)
        assert [float(x[0]) for x in given] == [self.rank + i for i in range(self.size)]
        return list(map(float, out))

    def broadcast(self, make, group, root):
        x = make([self.rank, 7])
        collective.broadcast(x, root, group)
        return list(map(float, x))

    def exchange(self, make, group):
        """Send to the next rank, receive from the previous one."""
        got = make([0, 0])
        if self.rank == 0:
            collective.send(make([self.rank, 5]), 1, group)
            collective.recv(got, self.size - 1, group)
        else:
            collective.recv(got, self.rank - 1, group)
            collective.send(make([self.rank, 5]), (self.rank + 1) % self.size, group)
        return list(map(float, got))

    def barrier(self, group):
        collective.barrier(group)

    def facts(self, group):
        return collective.get_rank(group), collective.get_collective_group_size(group)

    def destroy(self, group):
        collective.destroy_collective_group(group)

    def refused(self, group):
        """The errors of arguments that no operation takes."""
        read_only = np.ones(2)
        read_only.flags.writeable = False
        found = []
        for call in (
            lambda: collective.allreduce(read_only, group),
            lambda: collective.allgather([np.ones(3)] * self.size, np.ones(2), group),
            lambda: collective.allreduce(np.array(["a"]), group),
        ):
            try:
                call()
            except (chorus.InvalidArgumentError, TypeError) as error:
                found.append(str(error))
        return found

    def read_only(self, group):
        """An array that an operation only reads may be one of the object store."""
        x = np.array([self.rank, 3.0])
        x.flags.writeable = False
        out = [np.zeros(2) for _ in range(self.size)]
        collective.allgather(out, x, group)
        return [float(x[0]) for x in out]

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)


def numpy(values):
    return np.array(values, dtype=np.float64)


def tensor(values):
    return torch.tensor(values, dtype=torch.float32)


def half(values):
    return torch.tensor(values, dtype=torch.bfloat16)


@pytest.fixture(scope="module")
def cluster():
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    for _ in range(NODES - 1):
        cluster.add_node(num_cpus=2)
    ray.init(cluster.address, runtime_env={"worker_process_setup_hook": "chorus.ray.register"}, log_to_driver=False)
    chorus.ray.register()
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def started(size):
    kind = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(Actor)
    return [kind.remote(rank, size) for rank in range(size)]


def each(actors, method, *args):
    return ray.get([getattr(a, method).remote(*args) for a in actors], timeout=PATIENCE)


@pytest.fixture(scope="module")
def actors(cluster):
    actors = started(NODES)
    assert len(set(each(actors, "node"))) > 1
    collective.create_collective_group(actors, NODES, list(range(NODES)), "chorus", "declared")
    yield actors
    for actor in actors:
        ray.kill(actor)


@pytest.mark.parametrize("make", [numpy, tensor, half])
def test_operations(actors, make):
    n, group = NODES, "declared"
    assert each(actors, "allreduce", make, group, ReduceOp.SUM) == [[6, 9]] * n
    assert each(actors, "allreduce", make, group, ReduceOp.PRODUCT) == [[6, 24]] * n
    assert each(actors, "allreduce", make, group, ReduceOp.MIN) == [[1, 2]] * n
    assert each(actors, "allreduce", make, group, ReduceOp.MAX) == [[3, 4]] * n
    assert each(actors, "reduce", make, group, 1) == [[1, 2], [6, 6], [3, 2]]
    assert each(actors, "allgather", make, group) == [[[r, r + 0.5] for r in range(n)]] * n
    assert each(actors, "reducescatter", make, group) == [[3 + n * r, n * r] for r in range(n)]
    assert each(actors, "broadcast", make, group, 2) == [[2, 7]] * n
    assert each(actors, "exchange", make, group) == [[(r - 1) % n, 5] for r in range(n)]
    each(actors, "barrier", group)
    assert each(actors, "facts", group) == [(r, n) for r in range(n)]


def test_refused(actors):
    for found in each(actors, "refused", "declared"):
        assert len(found) == 3
        assert "allreduce: the array is read-only" in found[0]
        assert "all_gather" in found[1]
    assert each(actors, "read_only", "declared") == [[0, 1, 2]] * NODES
    assert each(actors, "allreduce", numpy, "declared", ReduceOp.SUM) == [[6, 9]] * NODES


def test_a_group_again_under_the_same_name(actors):
    for _ in range(2):
        each(actors, "init", "again")
        assert each(actors, "allreduce", tensor, "again", ReduceOp.SUM) == [[6, 9]] * NODES
        each(actors, "destroy", "again")


def test_a_killed_actor_is_named(cluster):
    actors = started(NODES)
    each(actors, "init", "mortal")
    each(actors, "barrier", "mortal")
    begun = time.monotonic()
    waiting = [actors[r].allreduce.remote(tensor, "mortal", ReduceOp.SUM) for r in (0, 2)]
    ray.kill(actors[1])
    for work in waiting:
        with pytest.raises(chorus.PeerLostError, match="rank 1 is lost") as caught:
            ray.get(work, timeout=PATIENCE)
        assert caught.value.cause.missing_ranks == (1,)
    assert time.monotonic() - begun < TIMEOUT.total_seconds()
    # A new actor takes the place of the lost one, in a new group of the same name.
    rest = [actors[0], actors[2]]
    each(rest, "destroy", "mortal")
    again = ray.remote(num_cpus=1)(Actor).remote(1, NODES)
    actors[1] = again
    each(actors, "init", "mortal")
    assert each(actors, "allreduce", tensor, "mortal", ReduceOp.SUM) == [[6, 9]] * NODES
    for actor in actors:
        ray.kill(actor)


def test_an_actor_that_does_not_come_is_named(cluster):
    actors = started(2)
    with pytest.raises(chorus.TimeoutError, match="rank 0 is missing after 2 s") as caught:
        ray.get(actors[1].init.remote("alone", 2), timeout=PATIENCE)
    assert caught.value.cause.missing_ranks == (0,)
    with pytest.raises(chorus.Error) as caught:
        ray.get(actors[0].init.remote("alone", 2), timeout=PATIENCE)
    assert caught.value.cause.missing_ranks == (1,)
    each(actors, "init", "alone", 60)  # what the two attempts have left behind doesn't matter
    each(actors, "barrier", "alone")
    for actor in actors:
        ray.kill(actor)
