"""Streams that others make, as PyTorch makes CUDA's: the device stands in for one of those."""

import contextlib
import ctypes
import threading
import time
import weakref

import pytest
import torch
import torch.distributed as dist
from chorus_device._device import handle_of
from slow import busy, held

from chorus import _lib, _streams
from chorus._devices import place_of

D = torch.device("accinte", 0)


def native(device):
    """The driver's handle of the current stream; 0 for the default one, as in CUDA."""
    stream = torch.accelerator.current_stream(device)
    if stream == torch.accinte.default_stream(device):
        return 0
    handle = ctypes.c_uint64()
    assert _lib.library.chorus_stream_native(handle_of(stream), ctypes.byref(handle)) == 0
    return handle.value


@contextlib.contextmanager
def unknown_to_the_library():
    """The library's current stream is another one, as with devices whose streams PyTorch makes."""
    other, before = ctypes.c_uint64(), handle_of(torch.accelerator.current_stream(D))
    assert _lib.library.chorus_stream_create(place_of(D), 0, ctypes.byref(other)) == 0
    assert _lib.library.chorus_stream_set_current(other.value) == 0
    try:
        yield
    finally:
        assert _lib.library.chorus_stream_set_current(before) == 0
        _lib.library.chorus_stream_release(other.value)


@pytest.fixture
def foreign(monkeypatch):
    monkeypatch.setitem(_streams.natives, "accinte", native)
    yield
    _streams._beside.cache_clear()


@pytest.fixture
def own():
    """A group of the library's own backend, which doesn't serve GPUs' tensors."""
    dist.init_process_group("chorus", store=dist.HashStore(), rank=0, world_size=1)
    dist.all_reduce(torch.ones(4, device=D))  # binds the group to the device
    yield
    dist.destroy_process_group()


@pytest.fixture
def group(own, foreign):
    yield


def test_one_stream_stands_in_for_the_default_one(foreign):
    """It's the same at every call, on every thread, and not one of PyTorch's pool, as the program's streams are."""
    pool = {torch.Stream(D).stream_id for _ in range(64)}
    met = set()

    def call():
        with _streams.current(D):
            met.add(torch.accelerator.current_stream(D).stream_id)

    for _ in range(3):
        call()
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert len(met) == 1 and not met & pool


def test_work_of_the_default_stream_comes_before_and_after(foreign):
    x = torch.zeros(4, device=D)
    with busy(D, 0.05):
        x += 1
        with _streams.current(D):
            y = x * 2
        y += 1
    assert y.tolist() == [3] * 4


@pytest.mark.parametrize("side", [False, True])
@pytest.mark.parametrize("barrier", [dist.barrier, lambda: dist.barrier(async_op=True).wait(), dist.monitored_barrier])
def test_a_barrier_waits_for_the_current_stream(group, barrier, side):
    if barrier is dist.monitored_barrier:
        barrier = dist.group.WORLD.monitored_barrier
    with torch.Stream(D) if side else torch.accinte.stream(None), busy(D, 0.2):
        event = torch.accelerator.current_stream(D).record_event()
        with unknown_to_the_library():
            barrier()
        assert event.query()


def released(gone):
    """Wait until a storage is released, by a thread that sees the end of its operation."""
    deadline = time.monotonic() + 20
    while gone() is not None and time.monotonic() < deadline:
        time.sleep(0.005)
    assert gone() is None


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("side", [False, True])
def test_tensors_are_released_when_their_stream_waits(group, side, other):
    """Tensors are released when the stream waits, as with ProcessGroupNCCL, not when the host sees the end: then the
    stream's next work can reuse their memory."""
    with torch.Stream(D) if side else torch.accinte.stream(None), held(D):
        x = torch.ones(4, device=D)
        gone = weakref.ref(x.untyped_storage())
        work = dist.all_reduce(x, async_op=True)
        if other:  # a stream for which the memory isn't recorded
            with torch.Stream(D):
                work.wait()
        else:
            work.wait()
        assert not work.is_completed()
        del x, work
        assert (gone() is None) != other
    released(gone)


def test_tensors_without_a_waiter_are_released_when_the_operation_is_done(group):
    """Also after other operations on its communicator; and there is no waiting thread for each operation."""
    with held(D):
        x, y = torch.ones(4, device=D), torch.ones(4, device=D)
        gone = weakref.ref(x.untyped_storage())
        works = [dist.all_reduce(x, async_op=True), dist.all_reduce(y, async_op=True)]
        works[1].wait()
        del x, works
        assert gone() is not None
        names = [t.name for t in threading.enumerate()]
        assert "chorus-holding" in names and f"chorus-{dist.group.WORLD.comm.name}" not in names
    released(gone)
