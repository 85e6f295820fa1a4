"""Communicators and groups that go on without a killed rank, and with newcomers."""

import os
import signal
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from breaking import until_left
from worlds import TIMEOUT, context, free_port

import chorus
import chorus.torchcomms as torchcomms
from chorus.torchcomms import ReduceOp

PATIENCE = timedelta(seconds=TIMEOUT)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def _serve(target, rank, size, port, pipe):
    torch.set_num_threads(1)
    try:
        target(rank, size, port, pipe)
        pipe.send(None)
    except BaseException as e:
        pipe.send(repr(e))
        raise


def run(target, size, dies, serving=False, by=signal.SIGKILL):
    """Run a process for each rank. Those that die must end by a signal, all others with status 0. If rank 0 is serving,
    it reports its port, which the others get."""
    port = free_port()
    server = dist.TCPStore("127.0.0.1", port, None, True, timeout=PATIENCE, wait_for_workers=False)
    processes, pipes = [], []
    for rank in range(size):
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(target, rank, size, port, theirs), daemon=True)
        process.start()
        theirs.close()
        processes.append(process)
        pipes.append(ours)
    if serving:
        assert pipes[0].poll(2 * TIMEOUT)
        at = pipes[0].recv()
        for pipe in pipes[1:]:
            pipe.send(at)
    for rank, (process, pipe) in enumerate(zip(processes, pipes)):
        if rank in dies:
            process.join(2 * TIMEOUT)
            assert process.exitcode == -by, f"rank {rank}"
            continue
        assert pipe.poll(2 * TIMEOUT), f"rank {rank} gave no answer"
        try:
            assert pipe.recv() is None, f"rank {rank}"
        except EOFError:
            raise AssertionError(f"rank {rank} died") from None
        process.join(TIMEOUT)
        assert process.exitcode == 0
    del server


def store_at(port):
    return dist.TCPStore("127.0.0.1", port, None, False, timeout=PATIENCE)


def sums(comm):
    x = torch.full((1000,), float(comm.get_rank() + 1))
    comm.all_reduce(x, ReduceOp.SUM, False)
    n = comm.get_size()
    assert x[0].item() == n * (n + 1) / 2


def until_broken(comm):
    x = torch.ones(10)
    with pytest.raises(chorus.PeerLostError):
        while True:
            comm.all_reduce(x, ReduceOp.SUM, False)
    assert comm.is_aborted()


def survive(rank, size, port, pipe):
    """Rank 1 dies, the others exchange handles over a store of their own, and a newcomer takes part."""
    store = store_at(port)
    if rank == size - 1:  # the newcomer
        comm = torchcomms.new_comm("native", "cpu", name="w", enable_reconfigure=True, timeout=PATIENCE)
        assert (comm.get_rank(), comm.get_size()) == (-1, 0)
    else:
        comm = torchcomms.new_comm(
            "native", "cpu", name="w", store=store, rank=rank, world_size=size - 1, timeout=PATIENCE
        )
        sums(comm)
        until_left(1, rank, size - 1, store)
        if rank == 1:
            die()
        assert comm.is_abort_supported()
        until_broken(comm)
    store.set(f"handle{rank}", comm.get_init_handle())
    members = [size - 1, *(r for r in range(size - 1) if r != 1)]
    handles = [store.get(f"handle{r}").decode() for r in members]
    broken = []
    comm.register_abort_hook(lambda: broken.append(1))
    work = comm.reconfigure(7, handles, timeout=PATIENCE)
    assert work.is_completed()
    assert (comm.get_rank(), comm.get_size()) == (members.index(rank), size - 1)
    assert not comm.is_aborted()
    sums(comm)
    store.set(f"again{rank}", comm.get_init_handle())
    comm.reconfigure(8, {store.get(f"again{r}").decode() for r in members}, timeout=PATIENCE)
    assert comm.get_rank() == members.index(rank)
    sums(comm)
    with pytest.raises(chorus.InvalidArgumentError, match="fresh"):
        comm.reconfigure(8, handles)
    with pytest.raises(chorus.InvalidArgumentError, match="no handle"):
        comm.reconfigure(9, ["nonsense"])
    comm.abort()
    until = time.monotonic() + TIMEOUT
    while len(broken) < 1 and time.monotonic() < until:  # the hook stays, for the new communicator
        time.sleep(0.01)
    assert broken
    comm.finalize()


def test_reconfigure():
    run(survive, 4, {1})


def abort_process(rank, size, port, pipe):
    """Rank 0 waits for a message that never comes, and rank 1 for rank 0."""
    comm = torchcomms.new_comm("native", "cpu", name="w", store=store_at(port), rank=rank, world_size=size,
                               timeout=PATIENCE, abort_process_on_timeout_or_error=True)  # fmt: skip
    assert comm.get_options().abort_process_on_timeout_or_error
    with pytest.raises(chorus.InvalidArgumentError):  # this error aborts nothing
        comm.broadcast(torch.ones(3), size, False)
    sums(comm)
    if rank == 0:
        comm.recv(torch.ones(3), 1, False, timeout=timedelta(milliseconds=50))
    sums(comm)


def test_abort_process():
    run(abort_process, 2, {0, 1}, by=signal.SIGABRT)


def shrink_and_grow(rank, size, port, pipe):
    """Rank 0 dies; only the newcomer's handle is exchanged."""
    store = store_at(port)
    if rank == size - 1:
        comm = torchcomms.new_comm("native", "cpu", enable_reconfigure=True, timeout=PATIENCE)
        store.set("newcomer", comm.get_init_handle())
    else:
        comm = torchcomms.new_comm(
            "native", "cpu", name="w", store=store, rank=rank, world_size=size - 1, timeout=PATIENCE
        )
        sums(comm)
        until_left(0, rank, size - 1, store)
        if rank == 0:
            die()
        until_broken(comm)
        comm.regroup(timeout=PATIENCE)
        assert (comm.get_rank(), comm.get_size()) == (rank - 1, size - 2)
        sums(comm)
    comm.regroup(newcomers=[store.get("newcomer").decode()] if rank == 1 else [], timeout=PATIENCE)
    assert (comm.get_rank(), comm.get_size()) == (rank - 1, size - 1)
    sums(comm)
    comm.finalize()


def test_regroup():
    run(shrink_and_grow, 4, {0})


def shrink(rank, size, port, pipe):
    """torch.distributed: rank 0, which serves the store, dies in an all-reduce."""
    del port
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, size, True, timeout=PATIENCE, wait_for_workers=False)
        pipe.send(store.port)
    else:
        store = dist.TCPStore("127.0.0.1", pipe.recv(), size, False, timeout=PATIENCE)
    dist.init_process_group("chorus", store=store, rank=rank, world_size=size, timeout=PATIENCE)
    x = torch.ones(1000)
    dist.all_reduce(x)
    until_left(0)
    if rank == 0:
        die()
    with pytest.raises(chorus.PeerLostError) as lost:
        while True:
            dist.all_reduce(x)
    assert lost.value.peer == 0
    flags = dist.distributed_c10d.SHRINK_ABORT if rank == 1 else dist.distributed_c10d.SHRINK_DEFAULT
    group = dist.shrink_group([0], shrink_flags=flags)
    assert group is dist.group.WORLD
    assert (dist.get_rank(), dist.get_world_size()) == (rank - 1, size - 1)
    x = torch.full((1000,), float(rank))
    dist.all_reduce(x)
    assert x[0].item() == sum(range(1, size))
    # And a part of it, in which no rank has died.
    if rank != size - 1:
        smaller = dist.shrink_group([size - 2])
        y = torch.ones(3)
        dist.all_reduce(y, group=smaller)
        assert y[0].item() == size - 2
    dist.destroy_process_group()


@pytest.mark.skipif(not hasattr(dist, "shrink_group"), reason="this PyTorch has no shrink_group")
def test_shrink_group():
    run(shrink, 4, {0}, serving=True)
