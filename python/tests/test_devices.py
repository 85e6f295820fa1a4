"""Devices, their tensors, streams, events and graphs, and communicators on them."""

import datetime
import gc
import os
import signal
import threading
import weakref

import numpy
import pytest
import torch

import chorus
from chorus import accelerator
from chorus._device import _calls, _captured
from chorus.torchcomms import ReduceOp, new_comm

DTYPES = [torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]


@pytest.fixture(autouse=True)
def _nothing_is_left():
    yield
    accelerator.synchronize("accinte:0")
    accelerator.synchronize("accinte:1")
    gc.collect()  # what failed holds its frames
    assert not _calls and not _captured
    assert accelerator.current_device_index() == 0


def test_names_are_those_of_torch():
    assert set(torch.accelerator.__all__) <= set(accelerator.__all__)
    pairs = [(chorus.Stream, torch.Stream), (chorus.Event, torch.Event)]
    if hasattr(torch.accelerator, "Graph"):  # since 2.9
        pairs.append((accelerator.Graph, torch.accelerator.Graph))
    for ours, theirs in pairs:
        names = {n for n in dir(theirs) if not n.startswith("_")}
        missing = names - set(dir(ours)) - {"native_handle"}  # there is none of a vendor's
        assert missing <= {"device", "stream_id", "device_type", "priority"}, missing


def test_device():
    assert accelerator.current_accelerator() == chorus.device("accinte")
    assert accelerator.is_available() and accelerator.device_count() == 2
    assert chorus.device("accinte:1") == chorus.device("accinte", 1) != chorus.device("accinte")
    assert chorus.device("accinte").index is None
    assert repr(chorus.device("accinte:1")) == "device(type='accinte', index=1)" and str(chorus.device("accinte")) == "accinte"
    for bad in (("accinte:2",), ("accinte:x",), ("nonesuch",), ("accinte:1", 1), ("accinte", -1)):
        with pytest.raises(chorus.InvalidArgumentError):
            chorus.device(*bad)
    free, total = accelerator.get_memory_info("accinte:1")
    assert 0 < free <= total
    assert torch.float32 in accelerator.get_device_capability()["supported_dtypes"]


def test_current_device():
    with accelerator.device_index(1):
        assert accelerator.current_device_index() == 1
        assert accelerator.empty(3).device.index == 1
        with accelerator.device_index(None):
            assert accelerator.current_device_index() == 1
        seen = []
        thread = threading.Thread(target=lambda: seen.append(accelerator.current_device_index()))
        thread.start()
        thread.join()
        assert seen == [0]  # it's the thread's
    accelerator.set_device_index(1)
    accelerator.set_device_index(-1)
    assert accelerator.current_device_index() == 1
    accelerator.set_device_index("accinte:0")
    with pytest.raises(chorus.InvalidArgumentError, match="out of range"):
        accelerator.set_device_index(2)
    with pytest.raises(chorus.InvalidArgumentError, match="cpu:0 is no device of the accelerator, accinte"):
        accelerator.set_device_index("cpu")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copies(dtype):
    x = torch.arange(24).reshape(2, 3, 4).to(dtype)
    y = accelerator.from_torch(x, "accinte:0")
    assert y.dtype is dtype and y.shape == (2, 3, 4) and y.nbytes == x.nbytes and not y.is_cpu
    assert torch.equal(y.cpu(), x)
    z = y.to("accinte:1")
    assert z.device == chorus.device("accinte:1") and torch.equal(z.cpu(), x) and torch.equal(z.to("accinte:0").cpu(), x)
    assert torch.equal(y[1].cpu(), x[1]) and torch.equal(y.view(-1, 4)[2:5].cpu(), x.view(-1, 4)[2:5])
    assert torch.equal(y.clone().fill_(1).cpu(), torch.ones_like(x))
    assert torch.equal(y.copy_(x.permute(0, 2, 1).contiguous().permute(0, 2, 1)).cpu(), x)  # strided
    assert y.copy_to(torch.empty(4, 3, 2, dtype=torch.float64 if not dtype.is_complex else dtype).permute(2, 1, 0)).sum() == x.sum()


def test_zeros_and_empties():
    assert accelerator.zeros(0, 3).cpu().shape == (0, 3)
    assert accelerator.full((), 2.5).item() == 2.5
    assert accelerator.zeros((2, 2), dtype=torch.int8).tolist() == [[0, 0], [0, 0]]
    assert [c.shape for c in accelerator.empty(7, 2).chunk(3)] == [(3, 2), (3, 2), (1, 2)]
    assert [c.shape for c in accelerator.empty(0, 2).chunk(3)] == [c.shape for c in torch.empty(0, 2).chunk(3)]
    for make in (accelerator.empty, accelerator.empty_pinned, chorus.empty):
        with pytest.raises(chorus.InvalidArgumentError, match="negative"):
            make(2, -1)
        with pytest.raises(TypeError):
            make(2.5)
    for elements, shape in ((6, (-2, -3)), (0, (-1, -1)), (6, (-1, 4))):
        with pytest.raises(chorus.InvalidArgumentError):
            accelerator.empty(elements).view(shape)
    with pytest.raises(chorus.InvalidArgumentError, match="at least"):
        accelerator.empty(4).chunk(0)
    with pytest.raises(chorus.InvalidArgumentError):
        accelerator.empty(4).copy_(torch.ones(5))
    for call in (accelerator.empty(4).copy_, accelerator.empty(4).copy_to):
        for bad, where in ((torch.empty(4, device="meta"), "on meta"), (torch.ones(4).to_sparse(), "sparse_coo")):
            with pytest.raises(chorus.InvalidArgumentError, match=f"copy_.*{where}.*dense one on the CPU"):
                call(bad)
        with pytest.raises(TypeError, match="expected a tensor, not ndarray"):
            call(numpy.ones(4))
    with pytest.raises(chorus.InvalidArgumentError):
        accelerator.empty(4).view(3)
    with pytest.raises(torch.OutOfMemoryError):
        accelerator.empty(1 << 40)


def test_pinned_copies_do_not_wait():
    pinned = accelerator.empty_pinned(1000).fill_(3)
    gate = threading.Event()
    with chorus.Stream("accinte:0") as s:
        x = accelerator.zeros(1000)
        s.launch(gate.wait)
        x.copy_(pinned, non_blocking=True)
        back = x.copy_to(accelerator.empty_pinned(1000).zero_(), non_blocking=True)
        assert not s.query()
        gate.set()
        s.synchronize()
        assert back.eq(3).all()


def test_interrupted_copies():
    """Of a copy that Ctrl-C didn't let wait the memory stays."""
    gate = threading.Event()
    with chorus.Stream("accinte:0") as s:
        x = accelerator.full((1000,), 3.0)
        s.launch(gate.wait)
        to = torch.zeros(1000)
        held = weakref.ref(to)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            x.copy_to(to)
        del to
        gc.collect()
        assert not s.query() and held().eq(0).all()
        gate.set()
        s.synchronize()
        gc.collect()
        assert held() is None


def test_pinned_memory_is_kept():
    accelerator.empty_host_cache()
    at = accelerator.empty_pinned(5000).data_ptr()
    assert accelerator.empty_pinned(8000, dtype=torch.uint8).data_ptr() != 0
    again = accelerator.empty_pinned(4200)
    assert again.data_ptr() == at  # of the same power of two
    del again
    accelerator.empty_host_cache()


def test_memory_figures():
    accelerator.empty_cache()
    before = accelerator.memory_allocated()
    accelerator.reset_peak_memory_stats()
    x = accelerator.empty(1 << 20)
    assert accelerator.memory_allocated() == before + (4 << 20) <= accelerator.memory_reserved()
    del x
    assert accelerator.memory_allocated() == before
    assert accelerator.max_memory_allocated() == before + (4 << 20) <= accelerator.max_memory_reserved()
    stats = accelerator.memory_stats(0)
    assert stats["allocation.all.freed"] > 0 and list(stats) == sorted(stats)
    accelerator.reset_accumulated_memory_stats()
    assert accelerator.memory_stats()["allocation.all.freed"] == 0
    accelerator.empty_cache()
    accelerator.empty_host_cache()


def test_streams():
    default = accelerator.current_stream()
    a, b = chorus.Stream(), chorus.Stream("accinte:1", priority=1)
    assert a != b and a != default and b.device.index == 1 and b.priority == 1
    assert "device_type=accinte, device_index=1" in repr(b)
    with pytest.raises(ZeroDivisionError):
        with a, b:
            assert accelerator.current_stream("accinte:0") == a and accelerator.current_stream() == b
            assert accelerator.current_device_index() == 1
            1 / 0
    assert accelerator.current_stream() == default and accelerator.current_device_index() == 0
    accelerator.set_stream(b)
    assert accelerator.current_device_index() == 1
    accelerator.set_stream(default)
    gate = threading.Event()
    with a:
        x = accelerator.zeros(100)
    a.launch(gate.wait)
    a.launch(lambda t: t.add_(1), x)
    event = a.record_event()
    default.wait_event(event)
    default.launch(lambda t: t.mul_(10), x)
    a.wait_stream(default)
    a.launch(lambda t: t.add_(5), x)
    assert not event.query() and not a.query()
    gate.set()
    a.synchronize()
    assert event.query() and x.cpu().eq(15).all()


def test_failures_of_work():
    def broken(_):
        raise KeyError("broken")

    s = chorus.Stream()
    x = accelerator.zeros(4)
    accelerator.synchronize()
    s.launch(broken, x, name="my kernel")
    s.launch(lambda t: t.add_(1), x)  # left out
    for _ in range(2):
        with pytest.raises(chorus.WorkFailedError, match="my kernel") as caught:
            s.synchronize()
        assert isinstance(caught.value.__cause__, KeyError)
    assert isinstance(s.recover(), chorus.WorkFailedError) and s.recover() is None
    s.synchronize()
    assert x.cpu().eq(0).all()


def test_events():
    e = chorus.Event()
    assert e.query() and e.device is None and e.event_id == 0
    s = chorus.Stream("accinte:1")
    e.record(s)
    assert e.device == s.device and e.event_id != 0
    e.synchronize()
    with pytest.raises(chorus.InvalidArgumentError, match="does not match recording stream's device"):
        e.record(chorus.Stream("accinte:0"))
    with pytest.raises(ValueError, match="enable_timing=True"):
        e.elapsed_time(e)
    start, end = chorus.Event(enable_timing=True), chorus.Event(enable_timing=True)
    with pytest.raises(chorus.InvalidArgumentError, match="must be recorded"):
        start.elapsed_time(end)
    start.record(s)
    s.launch(lambda: None)
    end.record(s)
    end.synchronize()
    assert start.elapsed_time(end) > 0
    with pytest.raises(chorus.InvalidArgumentError):
        chorus.Event(interprocess=True, enable_timing=True)


def test_graphs():
    g = accelerator.Graph()
    x, one = accelerator.zeros(1000), accelerator.full((1000,), 1.0)
    with chorus.Stream() as s:
        s.wait_stream(accelerator.current_stream("accinte:0"))
        with pytest.raises(chorus.InvalidArgumentError):
            g.replay()
        with g:
            assert s.is_capturing()
            s.launch(lambda a, b: a.add_(b), x, one)
        assert x.cpu().eq(0).all()
        for _ in range(5):
            g.replay()
        assert x.cpu().eq(5).all()
        with pytest.raises(chorus.InvalidArgumentError):
            g.capture_begin()
        g.reset()
        with pytest.raises(ZeroDivisionError):
            with g:
                s.launch(lambda a: a.zero_(), x)
                1 / 0
        with g:  # the failed capture left nothing behind
            x.fill_(7)
        g.replay()
        assert x.cpu().eq(7).all()
        g.reset()


def test_captures_at_once():
    """Functions of one graph stay when another one that was captured meanwhile goes."""
    x = accelerator.zeros(4)
    accelerator.synchronize()
    a, b = chorus.Stream("accinte:0"), chorus.Stream("accinte:0")
    first, second = accelerator.Graph(), accelerator.Graph()
    with a:
        first.capture_begin()
    with b, second:
        a.launch(lambda t: t.add_(1), x)
        b.launch(lambda t: t.add_(10), x)
    with a:
        first.capture_end()
        second.reset()
        first.replay()
        assert x.cpu().eq(1).all()
        first.reset()


def test_failures_of_replays():
    def broken(_):
        raise KeyError("broken")

    x, g = accelerator.zeros(4), accelerator.Graph()
    accelerator.synchronize()
    with chorus.Stream("accinte:0") as s, g:
        s.launch(broken, x)
    for _ in range(2):
        with chorus.Stream("accinte:0") as s:  # not the one that was captured
            g.replay()
            with pytest.raises(chorus.WorkFailedError) as caught:
                s.synchronize()
            assert isinstance(caught.value.__cause__, KeyError) and isinstance(s.recover(), chorus.WorkFailedError)
    g.reset()


def test_a_stream_of_several_threads():
    """``with`` puts back what was the thread's own."""
    shared, turns, fine = chorus.Stream("accinte:0"), threading.Barrier(2), []

    def use(late):
        with chorus.Stream("accinte:0") as own:
            for turn in range(2):
                turns.wait()
                with shared:
                    turns.wait()
                    if late == turn:
                        turns.wait()  # the other one is through
                    assert accelerator.current_stream() == shared
                if late != turn:
                    turns.wait()
                fine.append(accelerator.current_stream() == own)

    threads = [threading.Thread(target=use, args=(late,)) for late in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert fine == [True] * 4


def test_graph_pools_and_drawings(tmp_path):
    with chorus.Stream("accinte:0") as s:
        s.wait_stream(accelerator.current_stream("accinte:1"))
        at = []

        def capture(pool=None):
            g = accelerator.Graph(pool=pool)
            with g:
                at.append(accelerator.zeros(1 << 18).data_ptr())  # freed in the capture
                s.launch(lambda: None, name="my kernel")
            return g

        first = capture()
        assert len(first.pool()) == 2 and first.pool() == first.pool()
        second, other = capture(pool=first.pool()), capture()
        assert second.pool() == first.pool() != other.pool()
        assert at[0] == at[1] != at[2]
        path = tmp_path / "graph.dot"
        first.enable_debug_mode()
        first.debug_dump(str(path))
        drawing = path.read_text()
        assert drawing.startswith("digraph") and "my kernel" in drawing and "n0 -> n1" in drawing
        for g in (first, second, other):
            g.replay()
            g.reset()
        with pytest.raises(chorus.InvalidArgumentError):
            first.debug_dump(str(path))
        with pytest.raises(chorus.InvalidArgumentError):
            first.pool()
        with pytest.raises(chorus.InvalidArgumentError):
            capture(pool=(0, 0))


def _other_process(handle, pipe):
    event = chorus.Event.from_ipc_handle("accinte:1", handle)
    assert event.device == chorus.device("accinte:1")
    with pytest.raises(chorus.InvalidArgumentError):
        event.ipc_handle()
    with chorus.Stream("accinte:1") as s:
        event.wait()
        pipe.send((event.query(), s.query()))
        assert pipe.recv() == "released"
        s.synchronize()
        event.record()  # the other side waits for this one now
    pipe.send(event.query())


def test_events_between_processes():
    import multiprocessing

    event, gate = chorus.Event("accinte:0", interprocess=True), threading.Event()
    handle = event.ipc_handle()
    assert isinstance(handle, bytes) and handle == event.ipc_handle() and event.device == chorus.device("accinte:0")
    with pytest.raises(chorus.InvalidArgumentError):
        chorus.Event().ipc_handle()
    with pytest.raises(chorus.InvalidArgumentError):
        chorus.Event.from_ipc_handle("accinte:0", handle)  # its own
    with pytest.raises(chorus.InvalidArgumentError):
        chorus.Event.from_ipc_handle("accinte:0", b"nonsense")
    with chorus.Stream("accinte:0") as s:
        s.launch(gate.wait)
        event.record()
        context = multiprocessing.get_context("spawn")
        pipe, theirs = context.Pipe()
        other = context.Process(target=_other_process, args=(handle, theirs))
        other.start()
        theirs.close()
        try:
            assert pipe.recv() == (False, False)
            gate.set()
            event.synchronize()
            pipe.send("released")
            assert pipe.recv()
            event.wait()
            s.synchronize()
            assert event.query()
        finally:
            gate.set()
            pipe.close()
            other.join()
        assert other.exitcode == 0


def test_host_access():
    x = accelerator.zeros(4)
    with pytest.raises(TypeError, match="Use .cpu"):
        numpy.asarray(x)
    assert x.__dlpack_device__() == (12, 0)
    for use in (torch.from_dlpack, numpy.from_dlpack):
        with pytest.raises((BufferError, RuntimeError), match="chorus|unsupported|device"):
            use(x)
    with pytest.raises(BufferError, match="host code that touches it faults"):
        x.__dlpack__()
    with pytest.raises(BufferError):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    assert torch.from_dlpack(x.__dlpack__(dl_device=(1, 0))).eq(0).all()


def test_dlpack_of_the_host():
    x = accelerator.zeros(6, dtype=torch.int32, device="cpu").view(2, 3)
    t, n = torch.from_dlpack(x), numpy.from_dlpack(x)
    t += 4
    assert x.cpu().eq(4).all() and (n == 4).all()
    t2 = torch.from_dlpack(x[1])
    del x, t
    t2 += 1  # the memory is held
    assert (n[1] == 5).all()
    mine = torch.ones(3)
    back = accelerator.from_dlpack(mine)
    mine += 1
    assert back.cpu().eq(2).all() and back.data_ptr() == mine.data_ptr()
    there = accelerator.from_torch(torch.zeros(3)).copy_(back)
    assert there.cpu().eq(2).all()
    assert accelerator.from_dlpack(there) is there
    with pytest.raises(BufferError):
        accelerator.from_dlpack(mine.expand(2, 3))


def _windows(comm, d, s):
    """Operations on windows are enqueued: nothing runs before the stream gets there."""
    me, n = comm.get_rank(), comm.get_size()
    mine, data = accelerator.zeros(100), accelerator.full((50,), float(me + 1))
    window = comm.new_window(mine)
    assert window.device == d and window.get_size() == 400
    right, left = (me + 1) % n, (me + n - 1) % n
    gate = threading.Event()
    s.launch(gate.wait)
    window.put(data, right, 25)
    window.signal(right)
    window.wait_signal(left)
    assert not s.query()
    gate.set()
    got = mine.cpu()
    assert got[25:75].eq(left + 1).all() and got[:25].eq(0).all() and got[75:].eq(0).all()
    back = accelerator.zeros(50)
    window.get(back, right, 25)
    assert back.cpu().eq(me + 1).all()
    for bad, wants in ((lambda: window.put(torch.ones(3), right, 0), "accinte"), (lambda: window.put(data, right, 60), "exceeds")):
        with pytest.raises(chorus.InvalidArgumentError, match=wants):
            bad()
    with pytest.raises(chorus.UnsupportedError, match="async_op"):
        window.put(data, right, 0, True)
    with pytest.raises(chorus.UnsupportedError):
        window.map_remote_tensor(right)
    comm.barrier(False)
    window.tensor_deregister()
    with pytest.raises(chorus.InvalidArgumentError, match="Expected tensor on accinte"):
        comm.new_window(torch.ones(3))


def _collectives(peers):
    """A rank of a communicator of devices of several processes."""
    from torch.distributed import TCPStore

    import chorus.torchcomms as tc

    store = TCPStore("127.0.0.1", peers.port, is_master=False)
    me, n = peers.rank, peers.size
    d = chorus.device("accinte", me % 2)
    comm = tc.new_comm("chorus", d, name="devices", store=store, rank=me, world_size=n, is_high_priority_stream=True)
    assert comm.get_device() == d
    with chorus.Stream(d) as s:
        x = accelerator.full((1 << 20,), me + 1.0)
        comm.all_reduce(x, ReduceOp.SUM, False)
        assert x.cpu().eq(n * (n + 1) / 2).all()
        # Asynchronous, and nothing waits for it but the stream.
        gate = threading.Event()
        x.fill_(1)
        s.launch(gate.wait)
        work = comm.all_reduce(x, ReduceOp.SUM, True)
        work.wait()
        y = x.clone()
        assert not work.is_completed() and not s.query()
        del x
        gate.set()
        assert y.cpu().eq(n).all()
        work.wait_blocking()
        # Most operations, beside their meaning.
        mine = torch.arange(6.0) + 10 * me
        every = torch.stack([torch.arange(6.0) + 10 * r for r in range(n)])
        out = comm.get_mem_allocator().zeros(n, 6)
        comm.all_gather_single(out, accelerator.from_torch(mine, d), False)
        assert torch.equal(out.cpu(), every)
        parts = [accelerator.zeros(6) for _ in range(n)]
        comm.all_gather(parts, accelerator.from_torch(mine, d), True).wait()
        assert torch.equal(torch.stack([p.cpu() for p in parts]), every)
        part = accelerator.zeros(6)
        comm.reduce_scatter_single(part, accelerator.from_torch(every, d), ReduceOp.SUM, False)
        assert torch.equal(part.cpu(), every[me] * n)
        comm.broadcast(part.copy_(mine), n - 1, False)
        assert torch.equal(part.cpu(), every[n - 1])
        swapped = accelerator.zeros(n, 2)
        comm.all_to_all_single(swapped, accelerator.full((n, 2), me), False)
        assert torch.equal(swapped.cpu(), torch.arange(float(n))[:, None].expand(n, 2))
        scaled = accelerator.full((5,), 1.0)
        comm.all_reduce(scaled, ReduceOp.PREMUL_SUM(torch.tensor(0.5)), False)
        assert scaled.cpu().eq(0.5 * n).all()
        batch = comm.batch_op_create()
        got = accelerator.zeros(3)
        batch.send(accelerator.full((3,), me), (me + 1) % n)
        batch.recv(got, (me - 1) % n)
        batch.issue(True).wait()
        assert got.cpu().eq((me - 1) % n).all()
        host = torch.ones(4)
        comm.all_reduce(host, ReduceOp.SUM, False)  # the host's, in order among them
        assert host.eq(n).all()
        # A graph: two asynchronous operations in it, each waited for.
        parts = [accelerator.full((4,), r) for r in range(n)] if me == 0 else []
        got = accelerator.zeros(4)
        s.synchronize()
        s.launch((scattering := threading.Event()).wait)
        comm.scatter(got, parts, 0, True).wait()
        assert not s.query()  # the stream waits, nobody else
        scattering.set()
        assert got.cpu().eq(me).all()
        got = got[:3]
        a, b = accelerator.zeros(100), accelerator.zeros(100)
        g = accelerator.Graph()
        with g:
            s.launch(lambda t: t.add_(1), a)
            one, two = comm.all_reduce(a, ReduceOp.MAX, True), comm.all_reduce(b, ReduceOp.SUM, True)
            one.wait()
            two.wait()
            s.launch(lambda t, u: t.add_(u), b, a)
        for _ in range(3):
            g.replay()
        want = 0.0
        for i in range(3):
            want = want * n + (i + 1)
        assert b.cpu().eq(want).all() and a.cpu().eq(3).all()
        g.reset()
        with pytest.raises(chorus.InvalidArgumentError, match="accinte"):
            comm.all_reduce(accelerator.zeros(3, device=chorus.device("accinte", 1 - me % 2)), ReduceOp.SUM, False)
        comm.barrier(False)
        _windows(comm, d, s)
        # What fails later is the stream's.
        if me == 0 and n > 1:
            comm.recv(got, (me + 1) % n, False, timeout=datetime.timedelta(milliseconds=20))
            with pytest.raises(chorus.TimeoutError):
                s.synchronize()
            assert isinstance(s.recover(), chorus.TimeoutError)
        comm.barrier(False)
        s.synchronize()
    comm.finalize()
    return None


def test_collectives(world):
    if world.size < 4:
        world.run(_collectives)


def test_host_communicators_refuse_device_memory():
    comm = new_comm("chorus", "cpu", name="host", rank=0, world_size=1)
    with pytest.raises(chorus.InvalidArgumentError, match="Expected tensor on cpu but found tensor on accinte:0"):
        comm.all_reduce(accelerator.zeros(3), ReduceOp.SUM, False)
    x = accelerator.zeros(3, device="cpu")
    comm.all_reduce(x, ReduceOp.SUM, False)
    comm.finalize()
    with pytest.raises(RuntimeError, match="nonesuch"):
        new_comm("chorus", "nonesuch:0", name="host2", rank=0, world_size=1)
