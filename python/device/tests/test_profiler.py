"""torch.profiler and torch.autograd.profiler, with the devices' work."""

import collections
import json

import pytest
import torch
from slow import ALWAYS_BUSY
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from versions import since

pytestmark = since(2, 13, "the profiler takes no events from a device outside")

D = "accinte"
BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
DEVICE = torch.autograd.DeviceType.PrivateUse1


def test_kernels_and_the_operators_that_issued_them():
    x = torch.ones(1 << 14, device=D)
    with profile(activities=BOTH) as p:
        x.sin_()
        y = x @ x
        torch.accinte.synchronize()
    events = p.events()
    kernels = [e.name for e in events if e.device_type == DEVICE]
    assert "aten::sin.out" in kernels and "aten::dot" in kernels
    asked = {e.name: [k.name for k in e.kernels] for e in events if e.kernels}
    assert asked["aten::sin"] == ["aten::sin.out"] and asked["aten::dot"] == ["aten::dot"], asked
    averages = {e.key: e for e in p.key_averages()}
    assert averages["aten::sin_"].device_time_total > 0
    table = p.key_averages().table(sort_by="self_device_time_total")
    assert "ACCINTE total" in table and "aten::sin.out" in table
    assert y.item() != 0


def test_memory():
    with profile(profile_memory=True) as p:
        x = torch.empty(1 << 18, device=D)
        del x
    table = p.key_averages()
    (empty,) = (row for row in table if row.key == "aten::empty")
    assert empty.self_device_memory_usage == 1 << 20 and "ACCINTE Mem" in table.table()
    (freed,) = (row for row in table if row.key == "[memory]")
    assert freed.self_device_memory_usage == -(1 << 20)


def test_streams_and_devices_of_a_trace(tmp_path):
    torch.ones(1, device="accinte:1").add_(1)
    stream = torch.Stream(D)
    pinned = torch.ones(1 << 16).pin_memory()
    with profile(activities=BOTH, record_shapes=True) as p:
        with record_function("mine"), stream:
            x = pinned.to(D, non_blocking=True)
            x.cos_()
        torch.ones(3, device="accinte:1").exp_()
        for i in range(2):
            torch.accinte.synchronize(i)
    p.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    by = collections.defaultdict(list)
    for e in events:
        by[e.get("cat")].append(e)
    (copy,) = by["gpu_memcpy"]
    assert copy["args"]["stream"] == stream.stream_id and copy["args"]["bytes"] == pinned.nbytes and copy["dur"] > 0
    where = {e["name"]: (e["args"]["device"], e["args"]["stream"]) for e in by["kernel"]}
    assert where["aten::cos.out"] == (0, stream.stream_id) and where["aten::exp.out"] == (1, 0)
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert f"stream {stream.stream_id}" in named[(0, stream.stream_id)]
    # An arrow from each call of the host to its work on the device.
    calls = {e["args"]["correlation"] for e in by["privateuse1_runtime"]}
    assert {e["args"]["correlation"] for e in by["kernel"] + by["gpu_memcpy"]} <= calls
    assert len([e for e in by["ac2g"] if e["ph"] == "s"]) == len([e for e in by["ac2g"] if e["ph"] == "f"]) >= 3
    assert any(e["name"] == "mine" for e in by["user_annotation"])


def test_work_of_a_busy_stream():
    from slow import busy

    x = torch.ones(64, 64, device=D)
    with profile(activities=BOTH) as p, busy(D, 0.05):
        x.exp()
    kernels = [e.name for e in p.events() if e.device_type == DEVICE]
    assert {"slow", "aten::exp"} <= {k.split(".")[0] for k in kernels}, kernels


def test_one_after_another():
    """Profiles, schedules, and one without the device's activities between them."""
    x = torch.ones(10, device=D)
    for activities, there in ((BOTH, True), ([ProfilerActivity.CPU], False), (BOTH, True)):
        with profile(activities=activities) as p:
            x.add_(1)
            torch.accinte.synchronize()
        assert any(e.device_type == DEVICE for e in p.events()) is there
    seen = []
    with profile(
        activities=BOTH,
        schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
        on_trace_ready=lambda p: seen.append(p.events()),
    ) as p:
        for _ in range(8):
            x.add_(1)
            torch.accinte.synchronize()
            p.step()
    assert [sum(e.device_type == DEVICE for e in events) for events in seen] == [2, 2]
    with pytest.raises(ZeroDivisionError), profile(activities=BOTH):
        x.add_(1 / 0)
    with profile(activities=BOTH) as p:
        x.add_(1)
        torch.accinte.synchronize()
    assert any(e.device_type == DEVICE for e in p.events())


def test_training():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to(D)
    steps = torch.optim.SGD(model.parameters(), lr=0.1)
    with profile(activities=BOTH, with_stack=True, profile_memory=True) as p:
        model(torch.randn(4, 8, device=D)).sum().backward()
        steps.step()
        torch.accinte.synchronize()
    names = {e.key for e in p.key_averages()}
    assert {"aten::linear", "aten::threshold_backward"} <= names
    assert sum(e.device_type == DEVICE for e in p.events()) > 5


def test_events_around_operators():
    """The older profiler, which records an event before and after each operator."""
    x = torch.ones(1000, device=D)
    with torch.autograd.profiler.profile(use_device=D, use_kineto=False) as p:
        x.cos_()
        torch.ones(2, device="accinte:1").sin()
    averages = {e.key: e for e in p.key_averages()}
    assert averages["aten::cos_"].device_time_total > 0
    assert "Self ACCINTE" in p.key_averages().table()


def test_ranges_in_the_devices_own_profile(tmp_path):
    """ProfilerState.PRIVATEUSE1: an operator is a range beside the device's work, also in backward passes."""
    profiler = torch.accinte.profiler
    path = tmp_path / "trace.json"
    x = torch.ones(3, 4, device=D, requires_grad=True)
    with profiler.profile(path):
        x.detach().cos()  # a range of its own, not nested
        with profiler.emit_ranges(record_shapes=True), record_function("mine"):
            assert torch.autograd._profiler_enabled()
            (x * x).exp().sum().backward()
            with pytest.raises(RuntimeError, match="already enabled"), profiler.emit_ranges():
                pass
    events = json.loads(path.read_text())["traceEvents"]
    ranges = [e for e in events if e.get("cat") == "user"]
    names = [e["name"].split(",")[0] for e in ranges]
    assert {"mine", "aten::mul", "aten::exp", "ExpBackward0"} <= set(names) and "aten::cos" not in names
    (mul,) = (e for e in ranges if e["name"].startswith("aten::mul, seq"))
    assert mul["name"].endswith("sizes = [[3, 4], [3, 4]]")
    (mine,) = (e for e in ranges if e["name"].startswith("mine"))
    exp = next(e for e in ranges if e["name"].startswith("aten::exp"))
    kernel = next(e for e in events if e.get("cat") == "kernel" and e["name"].startswith("aten::exp"))
    for inner, outer in ((exp, mine), (exp if ALWAYS_BUSY else kernel, exp)):  # a busy stream runs the kernel later
        assert outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 1
    # Nothing is emitted or recorded afterwards.
    x.detach().sin()
    with profiler.emit_ranges(enabled=False):
        assert not torch.autograd._profiler_enabled()
    with pytest.raises(RuntimeError, match="no profile"):
        torch.accinte.profiler.c().write_profile(str(path))
