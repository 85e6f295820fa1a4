import os
import signal
import threading

import pytest
import torch
from slow import busy, held

D = torch.device("accinte:0")


def test_current_stream():
    default = torch.accinte.current_stream()
    assert default.stream_id == 0 and default.device == D
    s = torch.Stream(device="accinte:1")
    assert s.device == torch.device("accinte:1") and s != default
    with s:
        assert torch.accelerator.current_stream() == s and torch.accinte.current_device() == 1
        seen = []
        thread = threading.Thread(target=lambda: seen.append(torch.accinte.current_stream(1).stream_id))
        thread.start()
        thread.join()
        assert seen == [0]
    assert torch.accelerator.current_stream() == default
    with pytest.raises(ZeroDivisionError):
        with s:
            1 / 0
    assert torch.accelerator.current_stream() == default and torch.accinte.current_device() == 0
    copy = torch.Stream(stream_id=s.stream_id, device_index=s.device_index, device_type=s.device_type)
    assert copy == s and "device_type=accinte, device_index=1" in repr(s)
    torch.accelerator.set_stream(s)
    assert torch.accinte.current_device() == 1
    torch.accelerator.set_stream(default)


def test_priorities():
    least, most = torch.Stream(D, priority=0), torch.Stream(D, priority=-1)
    assert least != most
    for odd in (5, -7):
        torch.Stream(D, priority=odd)


def test_the_most_urgent():
    least, most = torch.accinte.Stream.priority_range()
    assert least == 0 > most and torch.accinte.Stream(priority=most).query()


def test_pool_of_streams():
    """The pool has a fixed number of streams, which are then reused."""
    ids = [torch.Stream(D).stream_id for _ in range(64)]
    assert len(set(ids)) == 32 and ids[:32] == ids[32:]


def test_events():
    e = torch.Event(device=D)
    assert e.query() and e.event_id == 0
    e.synchronize()
    e.record()
    assert e.device == D and e.event_id != 0
    e.synchronize()
    assert e.query()
    start, end = torch.Event(device=D, enable_timing=True), torch.Event(device=D, enable_timing=True)
    with pytest.raises((ValueError, RuntimeError), match="must be recorded before"):
        start.elapsed_time(end)
    start.record()
    torch.ones(1000, device=D).sin_()
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) > 0
    with pytest.raises((ValueError, RuntimeError), match="enable_timing=True"):
        e.elapsed_time(end)
    with pytest.raises(RuntimeError, match="does not match recording stream's device"):
        e.record(torch.Stream("accinte:1"))


def test_streams_wait_for_each_other():
    a, b = torch.Stream(D), torch.Stream("accinte:1")
    with a:
        x = torch.ones(100_000, device=D)
        e = a.record_event()
    b.wait_event(e)
    b.wait_stream(a)
    a.synchronize()
    b.synchronize()
    assert a.query() and b.query() and x.sum().item() == 100_000
    torch.accelerator.synchronize()


def test_the_module_has_what_programs_for_cuda_use():
    a = torch.accinte
    s, d = a.Stream(), a.default_stream()
    assert isinstance(s, torch.Stream) and a.current_stream() == d != s
    with a.stream(s):
        assert a.current_stream() == s
        begin, end = a.Event(enable_timing=True), a.Event(enable_timing=True)
        begin.record()
        x = torch.ones(1000, device=D) * 2
        end.record()
    with a.stream(None):
        assert a.current_stream() == d
    end.synchronize()
    assert begin.elapsed_time(end) >= 0 and x.sum().item() == 2000
    assert a.Stream(device="accinte:1", priority=-1).device_index == 1
    with a.StreamContext(a.Stream(device=1)):
        assert a.current_device() == 1
    assert a.current_device() == 0


@pytest.mark.skipif(not hasattr(torch.Stream, "native_handle"), reason="PyTorch has no native_handle")
def test_an_external_stream():
    """Enqueued work runs in the order of that stream."""
    theirs = torch.Stream(D)
    mine = torch.accinte.ExternalStream(theirs.native_handle, device=D)
    assert mine != theirs and mine.native_handle == theirs.native_handle and mine.device == D
    x = torch.zeros(1000, device=D)
    torch.accinte.synchronize()
    with theirs, held(D):
        x += 1
        assert not theirs.query() and not mine.query()
        with mine:
            assert torch.accinte.current_stream() == mine
            x *= 3
            with pytest.raises(RuntimeError, match="current stream can't be abandoned"):
                mine.abandon()
            e = torch.Event(device=D)
            e.record()
        assert not e.query()
    mine.synchronize()
    assert theirs.query() and e.query() and x.sum().item() == 3000
    again = torch.Stream(stream_id=mine.stream_id, device_index=0, device_type=mine.device_type)
    assert again == mine and again.native_handle == theirs.native_handle
    mine.abandon()
    assert theirs.query()
    with pytest.raises(TypeError):
        torch.accinte.ExternalStream(None)


def test_training_on_a_busy_stream():
    """The host is ahead of the stream by whole steps. Memory that it frees isn't reused by work that runs earlier."""
    from training import batch, model

    found = []
    for d in ("cpu", D):
        module = model().to(d)
        optimizer = torch.optim.Adam(module.parameters())
        data = [tuple(t.to(d) for t in batch(0, step)) for step in range(4)]
        with busy(D, 0.2):
            for x, y in data:
                torch.nn.functional.mse_loss(module(x), y).backward()
                optimizer.step()
                optimizer.zero_grad()
        found.append([p.detach().cpu() for p in module.parameters()])
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


def test_streams_of_missing_devices():
    for ask in (torch.accinte.default_stream, torch.accinte.current_stream, torch.accinte.Stream):
        with pytest.raises(RuntimeError, match="device index is out of range"):
            ask(2)


WAITS = {
    "synchronize": lambda x, event: torch.accinte.synchronize(),
    "accelerator": lambda x, event: torch.accelerator.synchronize(),
    "cpu": lambda x, event: x.cpu(),
    "item": lambda x, event: x.sum().item(),
    "nonzero": lambda x, event: x.nonzero(),
    "stream": lambda x, event: torch.accinte.current_stream().synchronize(),
    "event": lambda x, event: event.synchronize(),
}


@pytest.mark.parametrize("name", WAITS)
def test_an_interrupt_ends_a_wait(name):
    x, event = torch.ones(2, device=D), torch.Event(D)
    with held(D):
        event.record()
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                WAITS[name](x, event)
        finally:
            timer.join()
        assert not torch.accinte.current_stream().query()  # the work is still running
    assert x.tolist() == [1, 1]
