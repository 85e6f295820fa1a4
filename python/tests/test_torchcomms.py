"""chorus.torchcomms beside Gloo: every operation, sync and async, on worlds of 1 to 4 ranks."""

import concurrent.futures
import copy
import ctypes
import datetime
import gc
import os
import queue
import re
import subprocess
import time
import warnings
import weakref

import numpy
import pytest
import torch
import torch.distributed as dist
from table import data, same, total

import chorus
from chorus import _lib, torchcomms
from chorus.bench.port import free_port

CPU = torch.device("cpu")
SUM = torchcomms.ReduceOp.SUM
_names = iter(range(10**6))


def join(peers, name=None, **options):
    store = dist.PrefixStore("tests", dist.TCPStore("127.0.0.1", peers.port, peers.size, False))
    options = {"rank": peers.rank, "world_size": peers.size, **options}
    return torchcomms.new_comm("gloo", CPU, name or f"test{next(_names)}", store=store, **options)


def both(comm, issue):
    """A call's results, synchronous and asynchronous."""
    results = []
    for async_op in (False, True):
        outs, call = issue()
        work = call(async_op)
        if async_op:
            work.wait()
        assert work.is_completed() and work.status() is torchcomms.WorkStatus.COMPLETED
        results.append(outs)
    comm.barrier(False)
    return results


def check(comm, issue, want):
    for outs in both(comm, issue):
        assert all(same(a, b) for a, b in zip(outs, want, strict=True)), (outs, want)


def _collectives(peers, dtype):
    comm, r, n = join(peers), peers.rank, peers.size
    for count in (0, 4, 1024):
        mine = data(r, dtype, count)
        every = [data(p, dtype, count) for p in range(n)]
        blocks = [[data(p, dtype, count, salt=b) for b in range(n)] for p in range(n)]
        whole = torch.cat(blocks[r]).reshape(n, count)
        uneven = [data(p, dtype, count + p) for p in range(n)]

        def out(k=count):
            return torch.zeros(k, dtype=dtype)

        def in_place(call):
            x = mine.clone()
            return lambda: ([x.copy_(mine)], lambda a: call(x, a))

        root = n - 1
        check(comm, in_place(lambda x, a: comm.broadcast(x, root, a)), [every[root]])
        check(comm, in_place(lambda x, a: comm.all_reduce(x, SUM, a)), [total(every)])
        check(comm, in_place(lambda x, a: comm.reduce(x, root, SUM, a)), [total(every) if r == root else mine])

        def outputs(k, call, sizes=None):
            def issue():
                outs = [out(s) for s in sizes] if sizes else [out() for _ in range(k)]
                return outs, lambda a: call(outs, a)

            return issue

        check(comm, outputs(n, lambda o, a: comm.all_gather(o, mine, a)), every)
        check(comm, outputs(n, lambda o, a: comm.all_gather_v(o, uneven[r], a), [count + p for p in range(n)]), uneven)
        check(comm, outputs(0, lambda o, a: comm.all_gather_single(o[0], mine, a), [n * count]), [torch.cat(every)])
        part = total([blocks[p][r] for p in range(n)])
        check(comm, outputs(1, lambda o, a: comm.reduce_scatter(o[0], blocks[r], SUM, a)), [part])
        check(comm, outputs(1, lambda o, a: comm.reduce_scatter_single(o[0], whole.reshape(-1), SUM, a)), [part])
        vary = [[data(p, dtype, count + b, salt=b) for b in range(n)] for p in range(n)]
        check(comm, outputs(0, lambda o, a: comm.reduce_scatter_v(o[0], vary[r], SUM, a), [count + r]),
              [total([vary[p][r] for p in range(n)])])  # fmt: skip
        check(comm, outputs(n, lambda o, a: comm.all_to_all(o, blocks[r], a)), [blocks[p][r] for p in range(n)])
        check(comm, outputs(0, lambda o, a: comm.all_to_all_single(o[0], whole.reshape(-1), a), [n * count]),
              [torch.cat([blocks[p][r] for p in range(n)])])  # fmt: skip
        check(
            comm,
            outputs(1, lambda o, a: comm.scatter(o[0], blocks[r] if r == root else [], root, a)),
            [blocks[root][r]],
        )
        want = every if r == root else [out() for _ in range(n)]
        check(comm, outputs(n, lambda o, a: comm.gather(o, mine, root, a)), want)
        want = torch.cat(every) if r == root else out(n * count)
        check(comm, outputs(0, lambda o, a: comm.gather_single(o[0], mine, root, a), [n * count]), [want])
        assert same(mine, data(r, dtype, count)) and same(whole, torch.cat(blocks[r]).reshape(n, count)), (
            "an input was written"
        )
    comm.finalize()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int16, torch.uint8], ids=str)
def test_collectives(world, dtype):
    world.run(_collectives, dtype)


def _equal_to_gloo(peers):
    comm = join(peers)
    torch.manual_seed(peers.rank)
    for dtype in (torch.int32, torch.int64, torch.uint8):
        for name in ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"):
            x = torch.randint(0, 100, (1000,), dtype=dtype)
            y = x.clone()
            comm.all_reduce(x, getattr(torchcomms.ReduceOp, name), False)
            dist.all_reduce(y, getattr(dist.ReduceOp, name), peers.gloo)
            assert same(x, y), (dtype, name)
    x = torch.full((3,), float(peers.rank))
    comm.all_reduce(x, torchcomms.ReduceOp.AVG)
    assert x.tolist() == [(peers.size - 1) / 2] * 3
    whole = sum(range(1, peers.size + 1))
    for factor in (0.5, 2, torch.tensor(0.5), torch.tensor([2.0])):
        x = torch.full((5,), float(peers.rank + 1))
        comm.all_reduce(x, torchcomms.ReduceOp.PREMUL_SUM(factor), False)
        assert x.tolist() == [whole * float(factor)] * 5
    x = torch.ones(3)
    comm.all_reduce(
        x, torchcomms.ReduceOp.PREMUL_SUM(torch.complex(torch.zeros(()), torch.ones(())).conj().imag), False
    )
    assert x.tolist() == [-float(peers.size)] * 3  # a view with the negative bit
    for call in (
        lambda: comm.all_reduce(
            torch.ones(2), torchcomms.ReduceOp.PREMUL_SUM(torch.ones(1, dtype=torch.float64)), False
        ),
        lambda: comm.all_reduce(torch.ones(2, dtype=torch.int32), torchcomms.ReduceOp.PREMUL_SUM(2.0), False),
        lambda: comm.all_reduce(torch.ones(2), torchcomms.ReduceOp.BAND, False),
    ):
        with pytest.raises(chorus.InvalidArgumentError):
            call()
    with pytest.raises(TypeError):
        comm.all_reduce(torch.ones(2), dist.ReduceOp.SUM, False)
    x = torch.arange(24.0).reshape(4, 6) * (peers.rank + 1)
    comm.all_reduce(x.t()[1:3], SUM, False)  # not contiguous
    y = torch.arange(24.0).reshape(4, 6) * (peers.rank + 1)
    dist.all_reduce(z := y.t()[1:3].contiguous(), group=peers.gloo)
    y.t()[1:3] = z
    assert torch.equal(x, y)
    comm.finalize()


def test_reductions_equal_gloos(world):
    world.run(_equal_to_gloo)


def _uneven(peers):
    """Splits in rows, which may leave out rows; the results are those of Gloo with all of them."""
    comm, r, n = join(peers), peers.rank, peers.size
    ins = [(r + s) % 3 for s in range(n)]
    outs = [(p + r) % 3 for p in range(n)]
    x = data(r, torch.float32, 4 * sum(ins)).reshape(-1, 4)
    want = torch.zeros(sum(outs), 4)
    dist.all_to_all_single(want, x, outs, ins, group=peers.gloo)
    for async_op in (False, True):
        got = torch.full((sum(outs) + 2, 4), 7.0)
        comm.all_to_all_v_single(got, torch.cat([x, torch.ones(3, 4)]), outs, ins, async_op).wait()
        assert same(got[: sum(outs)], want) and (got[sum(outs) :] == 7).all()
    with pytest.raises(chorus.InvalidArgumentError, match="fit"):
        comm.all_to_all_v_single(want, x, [100] * n, ins, False)
    with pytest.raises(chorus.InvalidArgumentError, match="splits"):
        comm.all_to_all_v_single(want, x, outs + [0], ins, False)
    with pytest.raises(TypeError):
        comm.all_to_all_v_single(torch.ones(8), torch.ones(8), [0.5] * n, [0.5] * n, False)
    comm.finalize()


def test_uneven_splits(world):
    world.run(_uneven)


def _messages(peers):
    comm, r, n = join(peers), peers.rank, peers.size
    right, left = (r + 1) % n, (r - 1) % n
    out = torch.zeros(100)
    work = comm.recv(out, left, True)
    comm.send(data(r, torch.float32, 100), right, True).wait()
    work.wait()
    assert same(out, data(left, torch.float32, 100))
    for async_op in (False, True):
        batch = comm.batch_op_create()
        outs = [torch.zeros(1 << 16) for _ in range(n)]
        for p in range(n):
            batch.send(torch.full((1 << 16,), float(10 * r + p)), p)
        for p in range(n):
            batch.recv(outs[p], p)
        assert len(batch.ops) == 2 * n and batch.ops[0].type is torchcomms.P2POpType.SEND
        work = batch.issue(async_op, torchcomms.BatchP2POptions(timeout=datetime.timedelta(seconds=30)))
        work.wait()
        assert [int(o[-1]) for o in outs] == [10 * p + r for p in range(n)]
    with pytest.raises(RuntimeError, match="no operations"):
        comm.batch_op_create().issue(False)
    batch = comm.batch_op_create()
    batch.ops.append(torchcomms.P2POp("send", out, r))
    with pytest.raises(TypeError, match="P2POpType, not 'send'"):
        batch.issue(False)
    with pytest.raises(TypeError, match="expected a tensor, not list"):
        comm.all_to_all_single([1], [1], False)
    with pytest.raises(TypeError):
        comm.split([0.5])
    for bad in (-1, n):
        with pytest.raises(RuntimeError, match=rf"must be in range \[0, {n}\), but got {bad}"):
            comm.recv(out, bad, False)
        with pytest.raises(RuntimeError, match="in range"):
            comm.broadcast(out, bad, False)
    comm.finalize()


def test_messages(world):
    world.run(_messages)


def _split(peers):
    comm, r, n = join(peers), peers.rank, peers.size
    backwards = comm.split(list(reversed(range(n))), "backwards")
    assert backwards.get_rank() == n - 1 - r and backwards.get_name() == "backwards"
    assert backwards.get_ranks() == list(reversed(range(n)))
    mine = [p for p in range(n) if p % 2 == r % 2]  # disjoint groups in one call
    half = comm.split(mine, f"half{r % 2}", timeout=datetime.timedelta(seconds=20))
    assert half.get_size() == len(mine) and half.get_options().timeout.seconds == 20
    x = torch.tensor([1.0])
    half.all_reduce(x, SUM, False)
    assert x.item() == len(mine)
    none = comm.split([0] if r == 0 else [], "alone")
    assert (none is None) == (r != 0)
    nested = half.split(list(range(half.get_size())))
    for c in [nested, half, backwards] + ([none] if none else []):
        c.barrier(False)
        c.finalize()
    twice = "twice" if n > 1 else "2 ranks; there can be 1 at most"
    for bad, words in (([r, n], "rank"), ([r, r], twice)):
        with pytest.raises(chorus.InvalidArgumentError, match=words):
            comm.split(bad, "bad")
    if n > 1:
        with pytest.raises(chorus.InvalidArgumentError):
            comm.split([(r + 1) % n], "bad")
    comm.barrier(False)
    comm.finalize()
    with pytest.raises(RuntimeError):
        comm.finalize()
    with pytest.raises(chorus.FinalizedError):
        comm.barrier(False)


def test_split(world):
    world.run(_split)


def test_split_of_ranks_too_large_for_c():
    comm = torchcomms.new_comm("native", CPU, rank=0, world_size=1)
    for ranks in ([2**32], [-(2**32)], [2**31]):
        with pytest.raises(chorus.InvalidArgumentError, match=r"each rank must be in range \[0, 1\)"):
            comm.split(ranks)
    comm.finalize()


def _persistent(peers):
    comm, r, n = join(peers), peers.rank, peers.size
    out = torch.zeros(n * 8)
    handle = comm.all_gather_p_init(out)
    for step in range(5):
        comm.all_gather_p_exec(handle, torch.full((8,), float(10 * step + r)), step % 2 == 0).wait()
        assert out.tolist() == [10.0 * step + p for p in range(n) for _ in range(8)]
    comm.all_gather_p_free(handle)
    with pytest.raises(chorus.InvalidArgumentError, match=f"rank {r} of .*freed"):
        comm.all_gather_p_exec(handle, out, False)
    if n > 1:
        with pytest.raises(chorus.InvalidArgumentError, match=rf"comm_size \({n}\)") as caught:
            comm.all_gather_p_init(torch.zeros(n + 1))
        assert caught.value.reporter == r and caught.value.op == "all_gather_p_init"
    comm.finalize()


def test_persistent_all_gather(world):
    world.run(_persistent)


def _windows(peers, shared):
    comm, r, n = join(peers), peers.rank, peers.size
    allocate = comm.get_mem_allocator().zeros if shared else torch.zeros
    for dtype in (torch.float32, torch.int16):
        mine = allocate(16, dtype=dtype)
        window = comm.new_window(mine)
        assert window.get_tensor() is mine and window.get_size() == 16 * mine.element_size()
        assert window.dtype == dtype and window.shape == [16] and window.device == CPU
        right, left = (r + 1) % n, (r - 1) % n
        for step in range(10):
            window.put(torch.full((4,), step + r, dtype=dtype), right, 4 * (step % 4), step % 2 == 0).wait()
            window.signal(right, step % 2 == 1).wait()
            window.wait_signal(left, step % 3 == 0).wait()
            at = 4 * (step % 4)
            assert mine[at : at + 4].tolist() == [step + left] * 4
            comm.barrier(False)
        got = torch.zeros(4, dtype=dtype)
        window.get(got, right, 4)
        assert got.tolist() == [9 + r] * 4
        comm.barrier(False)
        window.accumulate(torch.ones(4, dtype=dtype), 0, 4, SUM)
        window.fence()
        comm.barrier(False)
        if r == 0:
            assert mine[4:8].tolist() == [9 + (n - 1) + n] * 4
        assert window.get_attr(r).access_type is torchcomms.TorchCommWinAccessType.WIN_ACCESS_TYPE_UNIFIED
        if shared:
            theirs = window.map_remote_tensor(right)
            assert theirs.shape == mine.shape and theirs.dtype == dtype
            theirs[0] = 50 + r
            comm.barrier(False)
            assert mine[0].item() == 50 + left
            del theirs
        assert copy.copy(window) is window and copy.copy(window._window) is copy.deepcopy(window._window)
        memo = {}
        twin, again = copy.deepcopy([window, window], memo)
        assert twin is again is memo[id(window)] and twin is not window
        assert twin.get_tensor() is not mine and same(twin.get_tensor(), mine)
        twin.tensor_deregister()
        for call, words in (
            (lambda: window.put(torch.zeros(4, dtype=dtype), right, 13), "exceeds the window size"),
            (lambda: window.put(torch.zeros(4, dtype=torch.float64), right, 0), "float64"),
            (lambda: window.put(torch.zeros(8, dtype=dtype)[::2], right, 0), "contiguous"),
            (lambda: window.signal(n), "range"),
            (lambda: window.tensor_register(mine), "already"),
        ):
            with pytest.raises(chorus.InvalidArgumentError, match=words):
                call()
        with pytest.raises(chorus.TimeoutError):
            window.wait_signal(left, False, timeout=datetime.timedelta(milliseconds=20))
        window.tensor_deregister()
        assert window.get_tensor() is None
        with pytest.raises(chorus.InvalidArgumentError, match="no tensor"):
            window.signal(right)
    comm.finalize()


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "ordinary"])
def test_windows(world, shared):
    world.run(_windows, shared)


def test_windows_take_plain_memory_alone(monkeypatch):
    comm = torchcomms.new_comm("gloo", CPU, "plain", rank=0, world_size=1)
    x = torch.complex(torch.zeros(4), torch.ones(4))
    window = comm.new_window(x.clone())
    real = torch.zeros(4)
    for call in (lambda: window.put(x.conj(), 0, 0), lambda: window.get(x.conj(), 0, 0),
                 lambda: comm.new_window(x.conj()),
                 lambda: comm.new_window(x.conj().imag.view(4)), lambda: comm.new_window(real[::2])):  # fmt: skip
        with pytest.raises(chorus.InvalidArgumentError, match="contiguous, and no view that conjugates or negates"):
            call()
    for call in (lambda: window.put([1.0], 0, 0), lambda: comm.new_window(numpy.ones(4))):
        with pytest.raises(TypeError, match="expected a tensor, not"):
            call()
    with pytest.raises(TypeError, match="ReduceOp of torchcomms"):
        window.accumulate(x, 0, 0, dist.ReduceOp.SUM)
    for mine in (x, comm.get_mem_allocator().zeros(4).fill_(3)):
        # A copy is complete before the others can write there.
        register = torchcomms.TorchCommWindow.tensor_register
        full = []

        def registered(window, tensor, mine=mine, full=full, register=register):
            full.append(torch.equal(tensor, mine))
            register(window, tensor)

        window = comm.new_window(mine)
        monkeypatch.setattr(torchcomms.TorchCommWindow, "tensor_register", registered)
        copy.deepcopy(window)
        monkeypatch.undo()
        assert full == [True]
    comm.finalize()


def _dropped(peers):
    """The others can still write to a window that a rank has dropped."""
    comm = join(peers)
    mine = torch.zeros(1 << 20)
    window = comm.new_window(mine)
    held = weakref.ref(mine)
    del mine
    if peers.rank == 0:
        del window
    gc.collect()
    assert held() is not None
    if peers.rank == 1:
        window.put(torch.ones(1 << 20), 0, 0)
        window.fence()
    comm.barrier(False)
    if peers.rank == 0:
        assert held().eq(1).all()
    comm.finalize()
    window = None
    gc.collect()
    assert held() is None
    comm = join(peers)
    mine = torch.zeros(4)
    held, window = weakref.ref(mine), comm.new_window(mine)
    del mine
    window.tensor_deregister()
    assert held() is None
    comm.finalize()


def test_dropped_windows(pair):
    pair.run(_dropped)


def _hooks(peers):
    comm, seen, done = join(peers), [], []
    before = comm.register_pre_hook(lambda op, op_id, args: seen.append((op, op_id, args)))
    after = comm.register_post_hook(lambda op_id, args: done.append((op_id, args)))
    x = torch.ones(2)
    comm.all_reduce(x, SUM, True).wait()
    batch = comm.batch_op_create()
    batch.send(x, peers.rank)
    batch.recv(torch.zeros(2), peers.rank)
    batch.issue(False)
    comm.all_to_all_v_single(x.clone(), x, [0] * peers.size, [0] * peers.size, False)
    window = comm.new_window()
    comm.split([])
    child = comm.split(list(range(peers.size)), "child")
    op = torchcomms.OpName
    calls = [op.all_reduce, op.batch_op_issue, op.all_to_all_v_single, op.new_window, op.split, op.split]
    assert [s[0] for s in seen] == calls
    assert [s[1] for s in seen] == list(range(seen[0][1], seen[0][1] + 6))
    assert seen[0][2].tensor is x and seen[0][2].async_op and seen[0][2].op is SUM
    assert type(seen[0][2]).__name__ == "AllReducePreHookArgs" and seen[-1][2].ranks == list(range(peers.size))
    assert [d[0] for d in done] == [s[1] for s in seen if s is not seen[4]]  # no group, no post-hook
    assert done[0][1].work.is_completed() and done[3][1].window is window and done[4][1].comm is child
    child.finalize()
    after.remove()
    after.remove()

    def refuse(op, op_id, args):
        raise ValueError("no")

    refusal = comm.register_pre_hook(refuse)
    with pytest.raises(ValueError, match="no"):
        comm.barrier(False)
    refusal.remove()
    comm.barrier(False)
    assert len(done) == 5
    comm.finalize()
    assert seen[-1][:2] == (op.finalize, 2**64 - 1)
    before.remove()


def test_hooks(world):
    world.run(_hooks)


def _settings(peers):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        comm = join(peers, "settings", timeout=datetime.timedelta(seconds=30), hints={
            "torchcomm::ncclx::high_priority_stream": "yes", "persistent_store": "true", "max_event_pool_size": "10",
            "chunk_bytes": "65536", "nonsense": "1"})  # fmt: skip
    assert [str(w.message) for w in caught] == ["chorus: unknown hint 'nonsense' is ignored"]
    options = comm.get_options()
    assert options.is_high_priority_stream and options.high_priority_stream and options.timeout.seconds == 30
    assert not options.abort_process_on_timeout_or_error and options.hints["chunk_bytes"] == "65536"
    assert (comm.get_rank(), comm.get_size(), comm.get_name()) == (peers.rank, peers.size, "settings")
    assert comm.get_device() == CPU and comm.get_backend() == "gloo" and comm.get_backend_version() == chorus.version()
    memo = {}
    assert copy.copy(comm) is comm and copy.deepcopy(comm, memo) is comm and memo[id(comm)] is comm
    comm.set_timeout(torchcomms.Timeout(seconds=10))
    assert comm.get_options().timeout.seconds == 10
    comm.set_hints({"algorithm": "ring"} if peers.size > 1 else {})
    x = torch.ones(10)
    comm.all_reduce(x, SUM, False, hints={"chunk_bytes": "4096"}, timeout=datetime.timedelta(seconds=5))
    assert x[0].item() == peers.size
    with pytest.raises(chorus.Error):
        comm.all_reduce(x, SUM, False, hints={"algorithm": "no such"})
    with pytest.raises(RuntimeError, match="want 1"):
        join(peers, hints={"lazy": "perhaps"})
    with pytest.raises(ValueError, match="max_event_pool_size='many'"):
        join(peers, hints={"max_event_pool_size": "many"})
    with pytest.raises(chorus.InvalidArgumentError, match="hostname='no.such.host.invalid'"):
        join(peers, hints={"hostname": "no.such.host.invalid"})
    with pytest.raises(RuntimeError, match="lazy=True: want 1"):
        join(peers, hints={"lazy": True})
    for call in (lambda h: join(peers, hints=h), lambda h: comm.all_reduce(x, SUM, False, hints=h)):
        with pytest.raises(TypeError, match="chunk_bytes=65536: the values of hints are strings, not int"):
            call({"chunk_bytes": 65536})
    with pytest.raises(chorus.UnsupportedError):
        comm.get_device_transport()
    for call in (
        lambda: comm.barrier(False, timeout=5),
        lambda: comm.set_timeout(5.0),
        lambda: comm.barrier(True).wait(5),
    ):
        with pytest.raises(TypeError, match="a timeout is a datetime.timedelta, not"):
            call()
    y = comm.get_mem_allocator().empty(8)
    assert chorus.is_shared(y)
    with comm.get_mem_allocator():
        assert chorus.is_shared(torch.ones(3))
    for tensor in (y, torch.ones(8)):
        comm.tensor_register(tensor)
        comm.tensor_deregister(tensor)
    with pytest.raises(chorus.InvalidArgumentError):
        comm.tensor_deregister(y)
    with pytest.raises(RuntimeError, match="No allocator factory"):
        torchcomms.get_mem_allocator("nccl")
    with pytest.warns(DeprecationWarning):
        assert comm.unsafe_get_backend() is comm.get_backend_impl()
    comm.finalize()
    again = join(peers, "settings")  # the same name on the same store, later
    again.barrier(False)
    again.finalize()


def test_settings(world):
    world.run(_settings)


def _failures(peers):
    comm, r = join(peers), peers.rank
    broken = []
    comm.register_abort_hook(lambda: broken.append(r))
    assert comm.is_abort_supported() and not comm.is_aborted()
    dist.barrier(peers.gloo)  # before rank 0 aborts it
    if r == 0:
        work = comm.barrier(True)
        with pytest.raises(chorus.TimeoutError):  # the timeout of this wait, not the operation's
            work.wait(datetime.timedelta(milliseconds=10))
        assert work.status() is torchcomms.WorkStatus.INPROGRESS and work.exception() is None
        comm.abort()
        with pytest.raises(chorus.AbortedError):
            work.wait()
        assert work.status() is torchcomms.WorkStatus.ERROR and isinstance(work.exception(), chorus.AbortedError)
    else:
        with pytest.raises(chorus.AbortedError) as caught:
            comm.recv(torch.zeros(1), 0, False)
        assert caught.value.by == 0
    assert comm.is_aborted()
    with pytest.raises(chorus.AbortedError):
        comm.barrier(False)
    while not broken:  # it's called from a thread of its own
        os.sched_yield()
    comm.finalize()
    comm = join(peers)
    dist.barrier(peers.gloo)
    if r == 0:
        with pytest.raises(chorus.TimeoutError) as caught:
            comm.barrier(False, timeout=datetime.timedelta(milliseconds=200))
        assert caught.value.missing_ranks == (1,)
    dist.barrier(peers.gloo)
    comm.finalize()


def test_failures(pair):
    pair.run(_failures)


def test_abort_hooks():
    """Every hook is called once and then dropped, also one added after the break, and even if others raise."""
    comm = torchcomms.new_comm("gloo", CPU, "hooked", rank=0, world_size=1)
    called = queue.SimpleQueue()
    comm.register_abort_hook(lambda: 1 / 0)
    comm.register_abort_hook(lambda: called.put("before"))
    comm.register_abort_hook(lambda: called.put("removed")).remove()
    assert not comm.is_aborted()
    comm.abort()
    assert called.get(timeout=30) == "before"
    comm.register_abort_hook(lambda: called.put("after"))
    assert called.get(timeout=30) == "after"
    assert comm.is_aborted()
    comm.finalize()
    assert comm.is_aborted() and called.empty()

    comm = torchcomms.new_comm("gloo", CPU, "hooked", rank=0, world_size=1)
    comm.register_abort_hook(lambda held=comm: held.get_name())
    comm.finalize()
    assert not comm.is_aborted()  # it ended without an error
    ended = weakref.ref(comm)
    del comm
    gc.collect()
    assert ended() is None


def test_types():
    op = torchcomms.ReduceOp
    assert op.SUM.type is torchcomms.RedOpType.SUM and op.PREMUL_SUM(2).type is torchcomms.RedOpType.PREMUL_SUM
    assert op.PREMUL_SUM(2) == op.PREMUL_SUM(2.0) != op.PREMUL_SUM(3) and op.SUM != op.AVG
    assert {op.SUM, op.SUM, op.PREMUL_SUM(1)} == {op.SUM, op.PREMUL_SUM(1.0)}
    with pytest.raises(AttributeError):
        op.SUM.type = 1
    with pytest.raises(RuntimeError, match="factor"):
        op(torchcomms.RedOpType.PREMUL_SUM)
    for make in (op.PREMUL_SUM, lambda factor: op(torchcomms.RedOpType.PREMUL_SUM, factor)):
        with pytest.raises(TypeError, match="not str"):
            make("2")
        with pytest.raises(RuntimeError, match="2 elements"):
            make(torch.ones(2))
    assert torchcomms.CommOptions(store=1) == torchcomms.CommOptions(store=2)
    for name in torchcomms.__all__:
        assert getattr(torchcomms, name).__doc__, name


def test_backends(monkeypatch):
    assert {"native", "gloo", "fake"} <= set(torchcomms.built_backends())
    for name, words in (("nccl", "libnccl"), ("ncclx", "NCCLX"), ("rccl", "librccl")):
        assert not torchcomms.is_backend_built(name)
        with pytest.raises(RuntimeError, match=words):
            torchcomms.new_comm(name, torch.device("cuda"), "x")
    with pytest.raises(ModuleNotFoundError, match="no backend 'nothing'"):
        torchcomms.new_comm("nothing", CPU, "x")
    with pytest.raises(chorus.UnsupportedError, match="not for cuda"):
        torchcomms.new_comm("gloo", torch.device("cuda"), "x")

    class Mine(torchcomms.TorchCommBackend):
        def get_rank(self):
            return 0

        def get_size(self):
            return 1

        def all_reduce(self, tensor, op, async_op):
            tensor += 1

        def barrier(self, async_op, **options):
            self.options = options

        def broadcast(self, tensor, root, async_op):
            self.future = concurrent.futures.Future()
            return Handle(self.future)

    class Handle:
        """A handle of another library."""

        def __init__(self, future):
            self.wait, self.is_completed, self.exception = future.result, future.done, future.exception

    torchcomms.register_backend("mine", Mine)
    torchcomms.register_backend("mine", torchcomms.TorchCommBackend)  # ignored
    with pytest.raises(chorus.InvalidArgumentError, match="'mine' finds its own rank"):
        torchcomms.new_comm("mine", CPU, rank=0, world_size=1)
    comm = torchcomms.new_comm("mine", CPU, "x")
    x = torch.zeros(2)
    assert comm.all_reduce(x, SUM, True).is_completed() and x.tolist() == [1, 1]
    comm.barrier(False, timeout=datetime.timedelta(seconds=1))
    assert comm.get_backend_impl().options == {"timeout": datetime.timedelta(seconds=1)}
    status = torchcomms.WorkStatus
    for error, want in (
        (None, status.COMPLETED),
        (ValueError("no"), status.ERROR),
        (chorus.TimeoutError("late"), status.TIMEDOUT),
    ):
        work = comm.broadcast(x, 0, True)
        assert work.status() is status.INPROGRESS and not work.is_completed() and work.exception() is None
        future = comm.get_backend_impl().future
        future.set_result(None) if error is None else future.set_exception(error)
        assert work.status() is want and work.is_completed() and work.exception() is error  # without a wait
        if error is None:
            work.wait()
        else:
            with pytest.raises(type(error)):
                work.wait()
        assert work.status() is want
    for call in (lambda: comm.scatter(x, [x], 0, False), comm.abort, comm.new_window):
        with pytest.raises(RuntimeError, match="not implemented for communicator"):
            call()
    comm.finalize()


def test_rank_and_size_of_the_environment(monkeypatch):
    from chorus.torchcomms._launcher import query_ranksize

    names = """TORCHCOMM_RANK TORCHCOMM_SIZE OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE PALS_RANKID
        PALS_SIZE RANK WORLD_SIZE"""
    for name in names.split():
        monkeypatch.delenv(name, raising=False)
    assert query_ranksize() == (-1, 0)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert query_ranksize() == (3, 8)
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "4")
    assert query_ranksize() == (1, 4)
    monkeypatch.setenv("TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD", "torchrun")
    assert query_ranksize() == (3, 8)
    monkeypatch.setenv("TORCHCOMM_RANK", "0")
    monkeypatch.setenv("TORCHCOMM_SIZE", "2")
    assert query_ranksize() == (0, 2)
    monkeypatch.setenv("TORCHCOMM_SIZE", "two")
    with pytest.raises(RuntimeError, match="TORCHCOMM_SIZE='two'"):
        query_ranksize()
    monkeypatch.setenv("TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD", "magic")
    with pytest.raises(RuntimeError, match="magic"):
        query_ranksize()


def test_window_structs_are_the_headers(tmp_path):
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    structs = {"chorus_window_op": _lib.WindowOp, "chorus_window_peer": _lib.WindowPeer}
    lines = [f'printf("%zu\\n", sizeof({name}));' for name in structs]
    lines += [f'printf("%zu\\n", offsetof({name}, {field}));' for name, s in structs.items() for field, _ in s._fields_]
    source = tmp_path / "layout.c"
    headers = f'#include "{root}/capi/chorus.h"\n#include <stddef.h>\n#include <stdio.h>\n'
    source.write_text(headers + f"int main(void) {{ {' '.join(lines)} }}")
    subprocess.run(["cc", "-o", tmp_path / "layout", source], check=True)
    theirs = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout.split()
    ours = [ctypes.sizeof(s) for s in structs.values()]
    ours += [getattr(s, field).offset for s in structs.values() for field, _ in s._fields_]
    assert [int(x) for x in theirs] == ours and re.match(r"\d", theirs[0])


def test_file_store_timeout(tmp_path):
    """The missing rank is named, with any type of exception from the store."""
    store = dist.FileStore(str(tmp_path / "store"), 2)
    with pytest.raises(chorus.TimeoutError) as caught:
        torchcomms.new_comm(
            "chorus", CPU, "alone", timeout=datetime.timedelta(seconds=0.3), store=store, rank=0, world_size=2
        )
    assert caught.value.missing_ranks == (1,)


@pytest.mark.parametrize("rank", [0, 1])
def test_no_other_rank_comes(rank, monkeypatch):
    """The environment's timeout bounds the rendezvous, too, and its error names the missing ranks."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    monkeypatch.setenv("TORCHCOMM_TIMEOUT_SECONDS", "1")
    began = time.monotonic()
    with pytest.raises(chorus.TimeoutError) as caught:
        torchcomms.new_comm("gloo", CPU, "nobody", rank=rank, world_size=2)
    assert caught.value.missing_ranks == (1 - rank,) and time.monotonic() - began < 30
    monkeypatch.setenv("MASTER_PORT", "none")
    with pytest.raises(RuntimeError, match="MASTER_PORT='none'"):
        torchcomms.new_comm("gloo", CPU, "nobody", rank=rank, world_size=2)


def test_options_of_the_environment(monkeypatch):
    class Told(torchcomms.TorchCommBackend):
        def init(self, device, name, options):
            self.options = options

        def get_size(self):
            return 1

    torchcomms.register_backend("told", Told)
    monkeypatch.setenv("TORCHCOMM_TIMEOUT_SECONDS", "1.5")
    monkeypatch.setenv("TORCHCOMM_ABORT_ON_ERROR", "Yes")
    for name, place in (("told", {}), ("gloo", {"rank": 0, "world_size": 1})):
        comm = torchcomms.new_comm(name, CPU, "told", **place)
        assert comm.get_options().timeout == datetime.timedelta(seconds=1.5)
        assert comm.get_options().abort_process_on_timeout_or_error
        comm.finalize()
    for name, bad in (
        ("TORCHCOMM_TIMEOUT_SECONDS", "10s"),
        ("TORCHCOMM_TIMEOUT_SECONDS", "inf"),
        ("TORCHCOMM_ABORT_ON_ERROR", "maybe"),
    ):
        with monkeypatch.context() as m:
            m.setenv(name, bad)
            with pytest.raises(RuntimeError, match=f"{name}='{bad}'"):
                torchcomms.new_comm("told", CPU, "told")


def test_fake_needs_no_other_rank():
    comm = torchcomms.new_comm("fake", CPU, "alone", rank=3, world_size=1024)
    comm.all_reduce(torch.ones(3), SUM, False)
    assert comm.get_rank() == 3 and comm.get_size() == 1024
    comm.finalize()
