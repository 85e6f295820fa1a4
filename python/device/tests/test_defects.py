"""Known defects of other implementations of such devices: a test for each that it's absent here."""

import threading
import warnings

import pytest
import torch
from chorus_device._device import handle_of
from slow import busy, held

D = "accinte"


# ---- the driver ----


def test_a_wait_is_for_the_record_before_it():
    """Recording an event again, while its first record is pending, changes nothing for waiters of the first."""
    first, second, waiter = (torch.Stream(D) for _ in range(3))
    event = torch.Event(D)
    with first:
        event.record(first)
    first.synchronize()
    waiter.wait_event(event)  # for the first record
    with second, held(D):
        event.record(second)
        with waiter:
            x = torch.ones(4, device=D) + 1
        waiter.synchronize()  # doesn't wait for the second record
        assert not event.query()
    assert x.tolist() == [2, 2, 2, 2]


def test_dropped_streams_do_their_work():
    x = torch.zeros(1, device=D)
    torch.accinte.synchronize()
    for _ in range(200):
        s = torch.Stream(D)
        s.wait_stream(torch.accinte.current_stream())
        with s:
            x.add_(1)
        torch.accinte.current_stream().wait_stream(s)
        del s
    assert x.item() == 200


def test_errors_of_work_are_not_lost():
    from chorus import _lib

    stream = torch.Stream(D)

    @_lib.TASK_FN
    def fails(*_):
        return 77

    assert _lib.library.chorus_stream_task(handle_of(stream), b"bad", None, 0, fails, _lib.OVER_FN(), None) == 0
    with stream:
        y = torch.ones(1 << 12).pin_memory().to(D, non_blocking=True)  # not in the profile
    with pytest.raises(RuntimeError, match="bad failed.*77"):
        stream.synchronize()
    assert "77" in torch.accinte.clear_error(stream)
    with stream:
        y.fill_(3)
    stream.synchronize()
    assert y.eq(3).all()


def test_copies_keep_to_their_allocation():
    from chorus import _lib

    host = torch.zeros(1 << 20)
    x = torch.zeros(16, device=D)
    stream = handle_of(torch.accinte.current_stream())
    for to, source in ((x.data_ptr(), host.data_ptr()), (host.data_ptr(), x.data_ptr())):
        status = _lib.library.chorus_stream_copy(stream, to, source, 1 << 30)
        assert status == _lib.Status.INVALID_ARGUMENT
    with pytest.raises(RuntimeError, match="out of bounds"):
        torch.empty(0, device=D).set_(x.untyped_storage(), 0, (100,)).storage_offset()
        torch.as_strided(x, (1 << 20,), (1,))


def test_synchronize_is_for_the_device_that_it_names():
    with torch.accinte.device(1), held("accinte:1"):
        torch.accinte.synchronize(0)
        assert not torch.accelerator.current_stream("accinte:1").query()
    with torch.accinte.device(1), busy("accinte:1", 0.05):
        torch.accinte.synchronize(1)
        assert torch.accelerator.current_stream("accinte:1").query()


def test_running_work_is_not_idle():
    """query is false until running work is done, also if nothing is queued after it."""
    with busy(D, 30) as over:
        assert over.begun.wait(20)
        assert not torch.accelerator.current_stream().query()
        over.set()
    assert torch.accelerator.current_stream().query()


def test_streams_that_are_none():
    for id in (1 << 40 | 3, 1 << 20, -1):
        with pytest.raises(RuntimeError):
            torch.Stream(stream_id=id, device_index=0, device_type=20).synchronize()


def test_times_of_events_without_timing():
    a, b = torch.Event(D), torch.Event(D, enable_timing=True)
    a.record()
    b.record()
    for x, y in ((a, b), (b, a)):
        with pytest.raises((RuntimeError, ValueError), match="enable_timing"):
            x.elapsed_time(y)


def test_memory_stays_out_of_reach():
    """The host can't access memory even after engines have used it often: a driver that counts may lose count."""
    import subprocess
    import sys

    program = """
        import ctypes, torch
        x = torch.ones(4, device="accinte")
        for _ in range(100):
            (x + 1).cpu(), x.view(2, 2).t().contiguous(), x.tolist()
        print("about to read", flush=True)
        ctypes.string_at(x.data_ptr(), 16)
        print("read")
    """
    import textwrap

    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=240)
    assert done.stdout == "about to read\n" and done.returncode != 0


def test_copies_of_two_devices_run_at_once():
    """A copy of one device doesn't wait for another's."""
    with torch.accinte.device(1), held("accinte:1"):
        x = torch.ones(1 << 16).pin_memory().to("accinte:0", non_blocking=True)
        torch.accinte.synchronize(0)
        assert not torch.accelerator.current_stream("accinte:1").query()
    assert x.eq(1).all()


# ---- the runtime ----


def test_memory_is_cached_and_goes_back():
    x = torch.empty(3 << 20, device=D)
    at = x.data_ptr()
    del x
    assert torch.accinte.memory_reserved() > torch.accinte.memory_allocated()
    x = torch.empty(3 << 20, device=D)
    assert x.data_ptr() == at
    del x
    torch.accinte.empty_cache()
    assert torch.accinte.memory_reserved() < 4 << 20


def test_memory_waits_for_the_streams_that_use_it():
    """record_stream: freed memory is not reused before the other stream is done with it."""
    s = torch.Stream(D)
    x = torch.ones(1 << 20, device=D)
    torch.accinte.synchronize()
    with s, held(D):
        y = x + 1
        x.record_stream(s)
        at = x.data_ptr()
        del x
        other = torch.zeros(1 << 20, device=D)
        assert other.data_ptr() != at
    assert y.eq(2).all()


def test_pinned_memory_waits_for_its_copies():
    s = torch.Stream(D)
    h = torch.ones(1 << 18).pin_memory()
    with s, held(D):
        x = h.to(D, non_blocking=True)
        at = h.data_ptr()
        del h
        again = torch.zeros(1 << 18).pin_memory()
        assert again.data_ptr() != at
    assert x.eq(1).all()


def test_an_event_belongs_to_a_device():
    event = torch.Event(D)
    event.record(torch.Stream("accinte:0"))
    with pytest.raises(RuntimeError, match="Event device 0 does not match recording stream's device 1"):
        event.record(torch.Stream("accinte:1"))


def test_two_events_must_be_recorded():
    a, b = (torch.Event(D, enable_timing=True) for _ in range(2))
    with pytest.raises((RuntimeError, ValueError), match="recorded"):
        a.elapsed_time(b)


def test_a_devices_numbers_are_its_generators():
    for i in range(2):
        g = torch.Generator(device=f"accinte:{i}").manual_seed(5)
        x = torch.rand(4, device=f"accinte:{i}", generator=g)
        before = torch.accinte.get_rng_state(i)
        assert torch.equal(x.cpu(), torch.rand(4, generator=torch.Generator().manual_seed(5)))
        torch.rand(4, device=f"accinte:{i}", generator=g)
        assert torch.equal(torch.accinte.get_rng_state(i), before)  # the default generator is separate
    with pytest.raises(RuntimeError, match="Expected a 'accinte:0' generator device but found 'accinte:1'"):
        torch.rand(4, device="accinte:0", generator=torch.Generator(device="accinte:1"))


def test_a_thread_has_streams_and_a_device_of_its_own():
    seen = {}

    def look():
        seen.update(stream=torch.accelerator.current_stream().stream_id, device=torch.accinte.current_device())

    with torch.accinte.device(1), torch.Stream("accinte:1"):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert seen == {"stream": 0, "device": 0}


def test_functions_of_the_current_device_warn_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.accinte.set_device(0)
        torch.accelerator.set_device_index(-1)
        assert torch.accelerator.current_device_index() == 0 and torch.accinte.device_count() == 2


def test_attention_has_results():
    """Attention returns results, not uninitialized memory."""
    q = torch.randn(1, 2, 4, 8)
    x = q.to(D)
    got = torch.nn.functional.scaled_dot_product_attention(x, x, x)
    assert torch.allclose(got.cpu(), torch.nn.functional.scaled_dot_product_attention(q, q, q), atol=1e-6)


def test_abs_takes_what_the_cpu_takes():
    for dtype in (torch.float64, torch.int8, torch.bfloat16):
        h = torch.tensor([-2, 0, 3]).to(dtype)
        assert torch.equal(h.to(D).abs().cpu(), h.abs())


def test_the_devices_operators_run_on_the_cpu_as_well():
    assert torch.ops.accinte.custom_abs(torch.tensor([-1.0])).item() == 2
