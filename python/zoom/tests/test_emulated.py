"""Programs on emulated GPUs, docs/emulated-gpu.md, that are late, fail or are lost, or of which there are two."""

import contextlib
import os
import subprocess
import sys

import pytest
import torch
from test_distributed import BEGIN, REPLICATED


@pytest.fixture(autouse=True)
def _emulated():
    if not torch.zoom.is_available() or not torch.zoom.get_device_name(0).startswith("Emulated GPU"):
        pytest.skip("left out: the device isn't an emulated GPU")


@contextlib.contextmanager
def started(program, *args, **env):
    """The process of a program, which is ended if the test fails before."""
    command = [sys.executable, "-c", "import torch\n" + program, *map(str, args)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**os.environ, **env}, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def run(program, **env):
    """A program's text on both of its outputs."""
    with started(program, **env) as process:
        out, err = process.communicate(timeout=200)
    assert process.returncode == 0, out + err
    return out, err


LATE = """
x, y = (torch.zeros(24 << 18, device="zoom") for _ in range(2))
for _ in range(10):
    x[:1] += 1
    y[:1] += 1
x = y = None
assert not torch.zoom.current_stream().query()
z = torch.empty(52 << 18, device="zoom")  # of 64 MiB: only without both
z[:1] = 7
assert z[0].item() == 7
try:
    torch.empty(60 << 18, device="zoom")
except torch.OutOfMemoryError as e:
    print(e)
"""


def test_memory_is_out_only_when_there_is_none():
    """Freed memory comes back when its stream, which is seconds behind, has done its work."""
    out, _ = run(LATE, EMULATED_GPU_MEMORY=str(64 << 20), EMULATED_GPU_DELAY="150000")
    assert out.startswith("zoom out of memory. Tried to allocate 60.00 MiB."), out


BROKEN = """
x = torch.zeros(4, device="zoom")
torch.zoom.synchronize()

def work():
    for _ in range(9):
        x.add_(1)
    torch.zoom.synchronize()

for what in (work, x.cpu, lambda: torch.ones(1 << 22, device="zoom").cpu()):
    try:
        what()
    except RuntimeError as e:
        print(e)
    else:
        print("no error")
"""


@pytest.mark.parametrize(
    ("injected", "error", "said"),
    [
        ({"EMULATED_GPU_FAIL_AT": "5"}, "unspecified launch failure", " fails, as EMULATED_GPU_FAIL_AT says"),
        ({"EMULATED_GPU_LOST_AFTER": "5"}, "unknown error", " is lost before "),
    ],
)
def test_a_kernel_that_fails_ends_the_device(injected, error, said):
    """The next wait has the error, or a launch before it, and so has all that comes after."""
    out, err = run(BROKEN, **injected)
    lines = out.splitlines()
    assert len(lines) == 3 and all(error in line for line in lines), out
    assert said in err and "chorus_" in err, err


MANY = """
streams = [torch.zoom.Stream() for _ in range(12)]
assert len({s.native_handle for s in streams}) > 8
got = []
for k, s in enumerate(streams):
    with s:
        got.append(torch.linalg.eigvalsh(torch.diag(torch.arange(3.0, device="zoom") + k)).add_(1))
for k, values in enumerate(got):
    streams[k].synchronize()
    assert torch.allclose(values.cpu(), torch.arange(3.0) + k + 1), (k, values)
print(torch.zoom.fallback_counts())
"""


def test_the_host_computes_on_more_streams_than_there_are_queues():
    """No stream is held while its tensors are copied: another one, in the same queue of the hardware, may copy them."""
    out, _ = run(MANY, EMULATED_GPU_DELAY="10000")
    assert "eig" in out, out


PEERS = """
assert torch.zoom.device_count() == 2 and torch.zoom.can_device_access_peer(0, 1)
x = torch.arange(1 << 18, device="zoom:0")
y = x.to("zoom:1", non_blocking=True)
z = (y * 2).to("zoom:0", non_blocking=True)  # each waits for the other device's stream
assert y.device.index == 1 and torch.equal(z.cpu(), torch.arange(0, 1 << 19, 2))
with torch.zoom.device(1):
    event = torch.zoom.Event()
    y += 1
    event.record()
torch.zoom.current_stream(0).wait_event(event)
x.copy_(y)
assert torch.equal(x.cpu(), torch.arange(1, (1 << 18) + 1))
try:
    x + y
except RuntimeError as e:
    print(e)
"""


def test_two_devices():
    out, _ = run(PEERS, EMULATED_GPU_DEVICES="2", EMULATED_GPU_DELAY="100000")
    assert "zoom:0" in out and "zoom:1" in out, out


def test_two_ranks_with_a_device_each(tmp_path):
    program = BEGIN + "torch.zoom.set_device(rank)\n" + REPLICATED + "assert x.device.index == rank\n"
    with contextlib.ExitStack() as both:
        store = tmp_path / "store"
        ranks = [both.enter_context(started(program, r, store, EMULATED_GPU_DEVICES="2")) for r in range(2)]
        for r in ranks:
            out, err = r.communicate(timeout=280)
            assert r.returncode == 0 and out == "equal\n", out + err


FAR = """
x = torch.empty(3 << 30, dtype=torch.uint8, device="zoom")
far = x.as_strided((2, 2), (1610612736, 1610612735))  # each stride is within 31 bits, and their sum isn't
far.copy_(torch.tensor([[1, 2], [3, 4]]))
assert x[-1].item() == 4
for f in (lambda x: x.sum(1), lambda x: x.argmax(1), lambda x: x.cumsum(1), lambda x: x + x, lambda x: x[[1, 0]]):
    assert torch.equal(f(far).cpu(), f(far.cpu()).cpu())
"""


def test_offsets_whose_sum_exceeds_31_bits():
    run(FAR, EMULATED_GPU_MEMORY=str(4 << 30))
