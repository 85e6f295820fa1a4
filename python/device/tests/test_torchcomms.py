"""chorus.torchcomms on tensors of devices, between processes: results are those of CPU tensors in the same
communicator."""

import copy
import datetime
import gc
import os
import time
import weakref

import pytest
import torch
import torch.distributed as dist
from slow import busy, held
from torch.autograd import profiler
from worlds import World

import chorus
from chorus import torchcomms
from chorus.torchcomms import ReduceOp, device_mesh, distwrap, hooks, objcol
from chorus.torchcomms.functional import collectives

N = 1 << 18  # elements of a tensor that is too large for a stage
SUM = ReduceOp.SUM
DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8]
_names = iter(range(10**6))


def _device(rank):
    return torch.device("accinte", rank % torch.accinte.device_count())


def join(peers, device=None, **options):
    store = dist.PrefixStore("devices", dist.TCPStore("127.0.0.1", peers.port, peers.size, False))
    where = _device(peers.rank) if device is None else device
    return torchcomms.new_comm("chorus", where, f"devices{next(_names)}", store=store, rank=peers.rank,
        world_size=peers.size, **options)  # fmt: skip


def warm(device):
    """Make PyTorch load its Meta kernels, which it does at the first use."""
    x = torch.zeros(3, device=device)
    with busy(device, 0.01):
        x += 1
        x * 10 + 1


def _values(rank, shape, dtype, which):
    generator = torch.Generator().manual_seed(10 * rank + which)
    if not dtype.is_floating_point:
        return torch.randint(0, 4, shape, generator=generator).to(dtype)
    return torch.randn(shape, generator=generator).to(dtype)


def _of_one(call):
    def run(comm, values, n, me, how):
        x = values(0, (3, 5))
        return call(comm, x, how), [x]

    return run


def _of_two(call, outs, ins):
    def run(comm, values, n, me, how):
        out, x = values(1, (outs(n), 5)), values(0, (ins(n), 5))
        return call(comm, out, x, how), [out]

    return run


def _lists(call, outs, ins):
    """``call(comm, outputs, inputs, how)`` on tensors with the numbers of rows in ``outs`` and ``ins``."""

    def run(comm, values, n, me, how):
        out = [values(9, (rows, 3)) for rows in outs(n, me)]
        return call(comm, out, [values(i, (rows, 3)) for i, rows in enumerate(ins(n, me))], how), out

    return run


def _uneven(comm, values, n, me, how):
    """Rank r sends s + 1 rows to rank s; an extra row stays unchanged on both sides."""
    out, x = values(1, (n * (me + 1) + 1, 2)), values(0, (n * (n + 1) // 2 + 1, 2))
    return comm.all_to_all_v_single(out, x, [me + 1] * n, list(range(1, n + 1)), how), [out]


def _strided(comm, values, n, me, how):
    whole = values(9, (5, 2 * n))
    out = list(whole.split(2, 1))
    return comm.all_gather(out, values(0, (4, 5)).t()[:, 1:3], how), [whole]


def _persistent(comm, values, n, me, how):
    out = values(1, (2 * n, 5))
    handle = comm.all_gather_p_init(out)
    work = comm.all_gather_p_exec(handle, values(0, (2, 5)), how)
    comm.all_gather_p_free(handle)
    return work, [out]


def _ring(comm, values, n, me, how):
    batch, out = comm.batch_op_create(), values(1, (7, 5))
    batch.send(values(0, (7, 5)), (me + 1) % n)
    batch.recv(out, (me - 1) % n)
    return batch.issue(how), [out]


def _message(comm, values, n, me, how):
    """A message from each even rank to an odd one."""
    out = values(0, (7, 5)).t()
    work = comm.send(out, me + 1, how) if me % 2 == 0 else comm.recv(out, me - 1, how)
    return work, [out]


def _ones(n, me):
    return [2] * n


def _one(n, me):
    return [2]


CALLS = {
    "all_reduce": _of_one(lambda c, x, a: c.all_reduce(x, SUM, a)),
    "all_reduce avg": _of_one(lambda c, x, a: c.all_reduce(x, ReduceOp.AVG, a)),
    "all_reduce of a transposed tensor": _of_one(lambda c, x, a: c.all_reduce(x.t(), ReduceOp.MAX, a)),
    "all_reduce premul_sum": _of_one(
        lambda c, x, a: c.all_reduce(x, ReduceOp.PREMUL_SUM(torch.ones(1, dtype=x.dtype, device=x.device) * 2), a)
    ),
    "broadcast": _of_one(lambda c, x, a: c.broadcast(x, 1, a)),
    "reduce": _of_one(lambda c, x, a: c.reduce(x, 1, SUM, a)),
    "all_gather_single": _of_two(lambda c, o, i, a: c.all_gather_single(o, i, a), lambda n: 3 * n, lambda n: 3),
    "gather_single": _of_two(lambda c, o, i, a: c.gather_single(o, i, 1, a), lambda n: 3 * n, lambda n: 3),
    "reduce_scatter_single": _of_two(
        lambda c, o, i, a: c.reduce_scatter_single(o, i, SUM, a), lambda n: 3, lambda n: 3 * n
    ),
    "all_to_all_single": _of_two(lambda c, o, i, a: c.all_to_all_single(o, i, a), lambda n: 2 * n, lambda n: 2 * n),
    "all_to_all_v_single": _uneven,
    "all_gather": _lists(lambda c, o, i, a: c.all_gather(o, i[0], a), _ones, _one),
    "all_gather into slices": _strided,
    "all_gather_v": _lists(
        lambda c, o, i, a: c.all_gather_v(o, i[0], a), lambda n, me: range(1, n + 1), lambda n, me: [me + 1]
    ),
    "all_gather_p": _persistent,
    "reduce_scatter": _lists(lambda c, o, i, a: c.reduce_scatter(o[0], i, SUM, a), _one, _ones),
    "reduce_scatter_v": _lists(
        lambda c, o, i, a: c.reduce_scatter_v(o[0], i, SUM, a), lambda n, me: [me + 1], lambda n, me: range(1, n + 1)
    ),
    "all_to_all": _lists(lambda c, o, i, a: c.all_to_all(o, i, a), _ones, _ones),
    "gather": _lists(lambda c, o, i, a: c.gather(o, i[0], 0, a), _ones, _one),
    "scatter": _lists(lambda c, o, i, a: c.scatter(o[0], i, 1, a), _one, _ones),
    "batch": _ring,
    "message": _message,
}


def _as_on_the_cpu(peers):
    comm = join(peers)
    for name, call in CALLS.items():
        for dtype in DTYPES:
            if not dtype.is_floating_point and name in ("all_reduce avg", "all_reduce premul_sum"):
                continue
            for how in (False, True):
                found = []
                for where in (torch.device("cpu"), comm.get_device()):
                    work, outs = call(
                        comm,
                        lambda which, shape, where=where: _values(peers.rank, shape, dtype, which).to(where),
                        peers.size,
                        peers.rank,
                        how,
                    )
                    work.wait()
                    assert all(t.device == where for t in outs)
                    found.append([t.cpu() for t in outs])
                    assert not how or work.wait_blocking() is None and work.status() is torchcomms.WorkStatus.COMPLETED
                for a, b in zip(*found, strict=True):
                    assert torch.equal(a, b), (name, dtype, how, a, b)
    comm.finalize()


def test_as_on_the_cpu(pair):
    """Every operation, synchronous and asynchronous."""
    pair.run(_as_on_the_cpu)


def _order(peers):
    """An operation runs after a slow kernel, and before later work; the host waits for neither."""
    comm = join(peers, is_high_priority_stream=True)
    d = comm.get_device()
    assert comm.get_options().is_high_priority_stream
    x, y = torch.zeros(N, device=d), torch.zeros(5, device=d)
    warm(d)
    with held(d):
        x += peers.rank + 1
        comm.all_reduce(x, SUM)
        x *= 2
        work = comm.all_reduce(x, SUM, True)
        comm.barrier()
        batch = comm.batch_op_create()
        batch.send(x[:5], 1 - peers.rank)
        batch.recv(y, 1 - peers.rank)
        sent = batch.issue(True)
        assert (
            not work.is_completed() and work.status() is torchcomms.WorkStatus.INPROGRESS and work.exception() is None
        )
        side = torch.Stream(d)
        with side:
            work.wait()
            z = x + 1
        for w in (work, sent, comm.barrier(True)):
            w.wait()
        with pytest.raises(chorus.TimeoutError, match="the operation goes on"):
            work.wait_blocking(datetime.timedelta(milliseconds=1))
        assert not torch.accinte.current_stream(d).query() and not side.query()
    side.synchronize()
    assert z.cpu()[7] == 13
    work.wait_blocking()
    assert work.is_completed()
    comm.finalize()


def test_in_the_order_of_streams(pair):
    pair.run(_order)


def _without_staging(peers):
    comm = join(peers)
    native = comm.get_backend_impl().comm
    d, n = comm.get_device(), peers.size
    x, out = torch.full((N,), peers.rank + 1.0, device=d), torch.empty(N * n, device=d)
    parts = [torch.empty(N, device=d) for _ in range(n)]
    window = comm.new_window(out)
    before = native.info()
    comm.all_reduce(x, SUM)
    comm.all_gather_single(out, x)
    comm.all_gather(parts, x)
    comm.reduce_scatter_single(x, out, SUM)
    comm.reduce_scatter(x, parts, SUM)
    comm.broadcast(x, 0)
    comm.all_to_all_single(torch.empty_like(x), x)
    window.put(x, 1 - peers.rank, 0)
    window.get(x, 1 - peers.rank, 0)
    torch.accinte.synchronize(d)
    after = native.info()
    assert after.mapped - before.mapped == 9 and after.staged == before.staged
    window.tensor_deregister()
    comm.finalize()


def test_nothing_is_staged_through_the_host(pair):
    """Devices of two processes reduce and write in place in each other's memory, windows included."""
    pair.run(_without_staging)


def _windows(peers):
    comm = join(peers)
    d, me, n = comm.get_device(), peers.rank, peers.size
    warm(d)
    right, left = (me + 1) % n, (me - 1) % n
    with pytest.raises(chorus.UnsupportedError, match="Get copies"):
        (w := comm.new_window(torch.zeros(3, device=d))).map_remote_tensor(right)
    w.tensor_deregister()
    mine, data = torch.zeros(100, device=d), torch.full((50,), me + 1.0, device=d)
    window = comm.new_window(mine)
    assert window.device == d and window.get_size() == 400 and window.get_tensor() is mine
    assert window.get_attr(right).access_type is torchcomms.TorchCommWinAccessType.WIN_ACCESS_TYPE_SEPARATE
    comm.barrier()  # the stream of each rank has set its window to zero
    with held(d):  # nothing runs before the stream gets there, and the host doesn't wait
        window.put(data, right, 25)
        window.signal(right)
        window.wait_signal(left)
        assert not torch.accinte.current_stream(d).query()
    got = mine.cpu()
    assert got[25:75].eq(left + 1).all() and got[:25].eq(0).all() and got[75:].eq(0).all()
    comm.barrier()  # each rank has looked
    # Asynchronous: a wait for a signal delays no other operation, and streams wait for the work.
    with held(d):
        signaled = window.wait_signal(left, True, slot=3)
        put = window.put(data * 10, right, 0, True)
        told = window.signal(right, True, slot=3)
        assert not signaled.is_completed() and put.status() is torchcomms.WorkStatus.INPROGRESS
        for work in (signaled, put, told):
            work.wait()
        kept = mine + 0
        assert not torch.accinte.current_stream(d).query()
    assert kept.cpu()[:50].eq(10 * (left + 1)).all()
    back = torch.zeros(50, device=d)
    work = window.get(back, right, 0, True)
    work.wait_blocking()
    assert work.is_completed() and back.cpu().eq(10 * (me + 1)).all()
    window.fence(True).wait()
    comm.barrier(False)
    for _ in range(3):
        window.accumulate(torch.ones(2, device=d), 0, 98, SUM, True).wait()
    window.fence()
    comm.barrier(False)
    window.get(back[:2], 0, 98)
    assert back[:2].tolist() == [3 * n] * 2
    window.put(data[:0], right, 0, True).wait()
    for bad, wants in (
        (lambda: window.put(torch.ones(3), right, 0), "on cpu; the window is torch.float32 on accinte"),
        (lambda: window.put(torch.ones(3, device=_device(me + 1)), right, 0), "Expected tensor on accinte"),
        (lambda: window.put(data, right, 60), "exceeds"),
        (lambda: window.put(data[::2], right, 0), "contiguous"),
        (lambda: comm.new_window(torch.ones(3, device=_device(me + 1))), "Expected tensor on accinte"),
    ):
        with pytest.raises(chorus.InvalidArgumentError, match=wants):
            bad()
    other = copy.deepcopy(window)
    assert other.device == d and torch.equal(other.get_tensor(), mine)
    other.tensor_deregister()
    window.tensor_deregister()
    # An operation on CPU tensors, in the same communicator: done when it returns.
    window = comm.new_window(torch.zeros(8))
    window.put(torch.full((4,), me + 1.0), right, 0)
    window.signal(right)
    window.wait_signal(left)
    assert window.device.type == "cpu" and window.get_tensor()[:4].eq(left + 1).all()
    window.put(torch.full((4,), me + 5.0), right, 4, True).wait()
    window.tensor_deregister()
    comm.finalize()


def test_windows(pair):
    pair.run(_windows)


def _memory(peers):
    """Tensors are dropped while operations on a busy stream use them: their memory isn't reused before the end."""
    comm = join(peers)
    d = comm.get_device()
    with busy(d, 0.2):
        for i in range(8):
            x = torch.full((N,), float(i), device=d)
            work, held = comm.all_reduce(x, SUM, True), x[:1] if i == 7 else None
            del x
            with torch.Stream(d):
                torch.full((N,), -1.0, device=d)
    work.wait()
    assert held.item() == 14
    del work, held
    gc.collect()
    torch.accinte.synchronize(d)
    before = torch.accinte.memory_allocated(d)
    for _ in range(20):
        comm.all_reduce(torch.ones(N, device=d), SUM, True)
    torch.accinte.synchronize(d)
    comm.barrier(True).wait_blocking()
    assert torch.accinte.memory_allocated(d) == before, "operations without a waiter keep memory"
    allocator = comm.get_mem_allocator()
    assert allocator.empty(2, 3).device == allocator.zeros(3, dtype=torch.int8).device == d
    with allocator:
        assert torch.zeros(3).device == torch.tensor([1.0]).device == d
    assert torch.zeros(3).is_cpu and allocator.zeros(3).cpu().eq(0).all()
    x = allocator.zeros(N)
    comm.tensor_register(x)
    comm.all_reduce(x, SUM)
    comm.tensor_deregister(x)
    kept = weakref.ref(comm.get_backend_impl().comm)
    comm.finalize()
    del comm
    gc.collect()
    assert kept() is None


def test_memory(pair):
    pair.run(_memory)


def _parts(peers):
    comm = join(peers)
    d, n = comm.get_device(), peers.size
    part, alone = comm.split([1, 0]), comm.split([peers.rank])
    assert part.get_device() == alone.get_device() == d and part.get_rank() == 1 - peers.rank
    for c, want in ((part, n), (alone, 1), (comm, n)):
        x = torch.ones(1000, device=d)
        c.all_reduce(x, SUM)
        assert x.cpu().eq(want).all()
    host = torch.ones(4)
    comm.all_reduce(host, SUM)  # on a CPU tensor, in order with the others
    assert host.eq(n).all()
    for bad in (
        lambda: comm.all_reduce(torch.ones(3, device=_device(peers.rank + 1)), SUM),
        lambda: comm.all_gather_single(torch.zeros(n), torch.ones(1, device=d)),
        lambda: comm.all_gather_single(torch.zeros(n, device=d), torch.ones(1)),
        lambda: comm.all_gather([torch.zeros(1) for _ in range(n)], torch.ones(1, device=d)),
        lambda: comm.all_to_all([torch.zeros(1, device=d)] * n, [torch.ones(1)] * n),
        lambda: comm.reduce_scatter(torch.zeros(1), [torch.ones(1, device=d)] * n, SUM),
    ):
        with pytest.raises(
            chorus.InvalidArgumentError, match="is on accinte:|another on accinte:|found tensor on accinte:"
        ):
            bad()
    with pytest.raises(TypeError, match="expected a tensor, not list"):
        comm.all_reduce([1.0], SUM)
    batch = comm.batch_op_create()
    batch.send(torch.ones(1), 1 - peers.rank)
    batch.recv(torch.ones(1, device=d), 1 - peers.rank)
    with pytest.raises(chorus.InvalidArgumentError, match="some on the host"):
        batch.issue()
    # The same processes, in a new world.
    handles = [None] * n
    dist.all_gather_object(handles, comm.get_init_handle())
    comm.reconfigure(7000 + next(_names), handles)
    x = torch.ones(1000, device=d)
    comm.all_reduce(x, SUM, True).wait()
    assert x.cpu().eq(n).all()
    for c in (part, alone, comm):
        c.finalize()
    host = join(peers, torch.device("cpu"))
    with pytest.raises(chorus.InvalidArgumentError, match="Expected tensor on cpu but found tensor on accinte:"):
        host.all_reduce(x, SUM)
    host.finalize()
    # Without an index the rank decides, not the current device.
    comm = join(peers, "accinte")
    assert comm.get_device() == _device(peers.rank)
    comm.finalize()


def _newcomers(peers):
    """All ranks begin without a world, on the device of their rank."""
    os.environ.update(RANK=str(peers.rank), WORLD_SIZE=str(peers.size))
    try:
        comm = torchcomms.new_comm("gloo", torch.device("accinte"), "newcomers", enable_reconfigure=True)
    finally:
        del os.environ["RANK"], os.environ["WORLD_SIZE"]
    d = comm.get_device()
    assert d == _device(peers.rank)
    x = torch.ones(8, device=d)
    for early in (
        lambda: comm.all_reduce(x, SUM),
        lambda: comm.all_to_all_single(torch.zeros(8, device=d), x),
        lambda: comm.all_gather_single(torch.zeros(8, device=d), x),
    ):
        with pytest.raises(chorus.InvalidArgumentError, match="no world yet"):
            early()
    handles = [None] * peers.size
    dist.all_gather_object(handles, comm.get_init_handle())
    comm.reconfigure(6000, handles)
    comm.all_reduce(x, SUM)
    assert x.cpu().eq(peers.size).all()
    comm.finalize()


def test_newcomers(pair):
    pair.run(_newcomers)


def test_splits_and_refusals(pair):
    pair.run(_parts)


def _modules(peers):
    """The modules on top of communicators, with tensors of devices."""
    comm = join(peers)
    d, n, me = comm.get_device(), peers.size, peers.rank
    assert objcol.broadcast_object_list(comm, names := [f"rank {me}"], 1) is None and names == ["rank 1"]
    seen = []
    told = [comm.register_pre_hook(lambda op, number, args: seen.append(op)), hooks.NanCheckHook()]
    told[1].register_with_comm(comm)
    x = torch.full((6,), me + 1.0, device=d)
    comm.all_reduce(x, SUM)
    assert len(seen) == 1 and x.cpu().eq(3).all()
    with pytest.raises(RuntimeError, match="(?i)nan"):
        comm.all_reduce(torch.full((3,), torch.nan, device=d), SUM)
    told[0].remove()
    for how in (False, True):
        y = collectives.all_reduce(x, SUM, comm, how)
        z = collectives.all_gather_single(x, comm, how) + 0
        assert (y + 0).cpu().eq(6).all() and z.device == d and z.cpu().eq(3).all() and len(z) == 6 * n
    w = torch.full((2 * n,), me + 1.0, device=d, requires_grad=True)
    collectives.reduce_scatter_single(w * 2, SUM, comm).sum().backward()
    assert w.grad.device == d and w.grad.cpu().eq(2).all()
    torch.accinte.synchronize(d)
    warm(d)
    # The group's first tensor on a device binds its communicator to that device.
    group = dist.new_group(list(range(n)))
    of = distwrap.get_comm(group)
    assert of.get_device().type == "cpu"
    host = torch.ones(4)
    of.all_reduce(host, SUM)
    of.all_reduce(x := torch.ones(4, device=d), SUM)
    with busy(d, 0.2):
        begin = time.monotonic()
        of.all_reduce(x, SUM, True)
        of.barrier()  # the host waits for it
        assert time.monotonic() - begin > 0.15
    assert host.eq(n).all() and x.cpu().eq(n * n).all()
    window = of.new_window(torch.zeros(2, device=d))
    window.put(x[:2], 1 - me, 0, True).wait_blocking()
    window.tensor_deregister()
    dist.destroy_process_group(group)
    mesh = device_mesh.init_device_mesh((comm,), ("ranks",), comm)
    assert mesh.device_type == "accinte"
    dist.all_reduce(x, group=mesh.get_group())
    assert x.cpu().eq(n**3).all()
    with profiler.profile() as profile:
        comm.all_reduce(x, SUM, True).wait_blocking()
    assert any(e.name == "chorus:issue:all_reduce" for e in profile.function_events)
    comm.finalize()


def test_modules(pair):
    pair.run(_modules)


def _differ(peers):
    comm = join(peers, timeout=datetime.timedelta(seconds=20))
    d = comm.get_device()
    work = comm.all_reduce(torch.ones(N + peers.rank, device=d), SUM, True)
    while not work.is_completed():
        time.sleep(0.01)
    assert isinstance(work.exception(), chorus.MismatchError) and work.status() is torchcomms.WorkStatus.ERROR
    side = torch.Stream(d)
    with side, pytest.raises(chorus.MismatchError):
        work.wait()
        side.synchronize()
    with pytest.raises(chorus.MismatchError):
        work.wait_blocking()
    assert comm.is_aborted()
    with pytest.raises(chorus.MismatchError):
        comm.all_reduce(torch.ones(1, device=d), SUM)
    return os.getpid()


def test_failures_are_the_streams():
    world = World(2)  # a separate one, as its streams keep the error
    try:
        world.run(_differ)
    finally:
        world.kill()
