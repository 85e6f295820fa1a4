"""Devices whose memory the process can't touch, as that of most GPUs: OpenCL's without shared memory."""

import pytest
from test_zoom import run

pytestmark = pytest.mark.long

BUFFERS = {"CHORUS_OPENCL_SHARED_MEMORY": "false"}


def lines(program):
    done = run(program, **BUFFERS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_indexes():
    """Operators with indexes are the device's, and nothing goes through the host but the words of their errors."""
    said = lines("""
        import torch
        import torch.nn.functional as F
        x = torch.arange(10.0, device="zoom")
        good, bad = (torch.tensor(list, device="zoom") for list in ([1, 3], [1, 30]))
        x[good] = 7
        print(torch.zoom.get_device_properties(0).host_access, x.gather(0, good).tolist(), x[good].sum().item())
        weight = torch.randn(5000, 64, device="zoom", requires_grad=True)
        logits = torch.randn(2, 5000, device="zoom", requires_grad=True)
        (F.embedding(good, weight).sum() + F.cross_entropy(logits, good)).backward()
        print(torch.zoom.fallback_counts(), torch.zoom.memory.staged_bytes() < 1 << 19)
        waits = {"item": lambda t: t.sum().item(), "cpu": lambda t: t.cpu(), "to": lambda t: t.to("cpu", torch.int8),
                 "device": lambda t: torch.zoom.synchronize(),
                 "stream": lambda t: torch.zoom.current_stream().synchronize()}
        for name, wait in waits.items():
            read = x[bad]
            try:
                wait(read)
            except IndexError as error:
                print(name, str(error).split(" on ")[0])
            wait(read)
    """)  # fmt: skip
    assert said[:2] == ["False [7.0, 7.0] 14.0", "{} True"]
    waits = ("item", "cpu", "to", "device", "stream")
    assert said[2:] == [f"{wait} index out of range in aten::index" for wait in waits]


def test_fallback_on_busy_streams():
    """An operator without a kernel holds no stream, and copies back only what it has written."""
    said = lines("""
        import torch
        streams = [torch.zoom.Stream() for _ in range(12)]
        results = []
        for s in streams:
            with s:
                results.append(torch.linalg.eigvals(torch.eye(3, device="zoom")).real)
        torch.zoom.synchronize()
        print({tuple(r.tolist()) for r in results}, *torch.zoom.fallback_counts())
    """)  # fmt: skip
    assert said == ["{(1.0, 1.0, 1.0)} aten::_linalg_eigvals"]
