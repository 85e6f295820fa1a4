"""torch.profiler, and the driver's own profile, by the device's times."""

import json

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
pytestmark = pytest.mark.skipif(VERSION < (2, 13), reason="the profiler takes no events from a device outside")

D = "zoom"
BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
DEVICE = torch.autograd.DeviceType.PrivateUse1


def test_kernels_copies_and_the_operators_that_issued_them(tmp_path):
    x = torch.linspace(0, 1, 1 << 16).to(D)
    torch.zoom.synchronize()
    stream = torch.Stream(D)
    with profile(activities=BOTH, record_shapes=True) as p:
        with stream:
            y = x.sin()
            host = y.cpu()
        torch.zoom.synchronize()
    torch.testing.assert_close(host, torch.linspace(0, 1, 1 << 16).sin())
    asked = {e.name: [k.name for k in e.kernels] for e in p.events() if e.kernels}
    assert asked["aten::sin"], asked
    averages = {e.key: e for e in p.key_averages()}
    assert averages["aten::sin"].device_time_total > 0 and "ZOOM total" in p.key_averages().table()
    assert [1 << 16] in [shape for e in p.events() if e.name == "aten::sin" for shape in e.input_shapes]
    p.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    (kernel,) = (e for e in events if e.get("cat") == "kernel" and e["name"] in asked["aten::sin"])
    assert kernel["args"]["stream"] == stream.stream_id and kernel["dur"] > 0
    (call,) = (e for e in events if e.get("cat") == "privateuse1_runtime"
               and e["args"]["correlation"] == kernel["args"]["correlation"])
    assert kernel["ts"] + kernel["dur"] >= call["ts"], "the kernel ended before it was enqueued"


def test_own_profile(tmp_path):
    x = torch.ones(1 << 12, device=D)
    torch.zoom.synchronize()
    with torch.zoom.profiler.profile(tmp_path / "trace.json"), torch.zoom.profiler.emit_ranges():
        x.mul_(2)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert any(e.get("cat") == "kernel" for e in events)
    assert any(e["name"].startswith("aten::mul_") for e in events)


def test_no_work_is_lost_between_profiles():
    x = torch.zeros(64, device=D)
    for _ in range(3):
        with profile(activities=BOTH):
            x += 1
        x += 1
    assert x.tolist() == [6.0] * 64
