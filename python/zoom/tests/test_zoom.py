"""torch.device("zoom"): the device, and what programs do with it."""

import copy
import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import torch
import torch.nn.functional as F
from worlds import longest

D = "zoom"


def run(program, **env):
    env = {**os.environ, **env}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=240, env=env
    )


def test_devices():
    assert torch.zoom.is_available() and torch.zoom.device_count() >= 1
    assert torch.accelerator.current_accelerator() == torch.device("zoom")
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=D)
    assert x.is_zoom and x.device == torch.device("zoom:0") and (x + 2).tolist() == [[3, 4], [5, 6]]
    assert x.type() == "torch.zoom.FloatTensor" and torch.zoom.get_device_name()
    free, total = torch.zoom.mem_get_info()
    assert 0 < free <= total


@pytest.mark.anywhere
def test_without_a_device():
    """Nothing is said before the device is used. Then the error has every driver's reason."""
    done = run("""
        import torch
        assert "libchorus" not in open("/proc/self/maps").read()  # an import loads nothing
        print(torch.zoom.is_available(), torch.zoom.device_count(), torch.accelerator.is_available())
        print(torch.manual_seed(1).initial_seed(), torch.ones(2).sum().item())
        for use in (lambda: torch.ones(1, device="zoom"), torch.zoom.current_stream, torch.zoom.init):
            try:
                use()
            except RuntimeError as error:
                print(str(error).splitlines()[0])
    """, CHORUS_ZOOM_DRIVER="", CHORUS_OPENCL_LIBRARY="/nonesuch/libOpenCL.so")  # fmt: skip
    lines = done.stdout.splitlines()
    if lines and lines[0].startswith("True"):
        pytest.skip("left out: this machine has a GPU")
    assert lines[:2] == ["False 0 False", "1 2.0"] and len(lines) == 5 and not done.stderr, done.stdout + done.stderr
    for line in lines[2:]:
        assert line.startswith("torch.device('zoom') can't be used: there is no device; hip: "), line
        assert "; cuda: " in line and "; opencl: " in line and "/nonesuch/libOpenCL.so" in line, line


@pytest.mark.long
@pytest.mark.anywhere
def test_driver_that_is_none():
    done = run("""
        import torch
        print(torch.zoom.is_available())
        torch.zoom.current_device()
    """, CHORUS_ZOOM_DRIVER="vulkan")  # fmt: skip
    assert done.stdout == "False\n"
    assert done.stderr.endswith("CHORUS_ZOOM_DRIVER is 'vulkan', and can be hip, cuda, opencl\n"), done.stderr


@pytest.mark.long
def test_first_driver_that_has_a_device():
    done = run("""
        import torch
        from chorus._devices import drivers
        print(drivers["zoom"] in ("hip", "cuda", "opencl"))  # not known before the first use
        x = torch.ones(3, device="zoom") + 1
        print(x.tolist(), torch.zoom.get_device_name() != "")
    """, CHORUS_ZOOM_DRIVER="")  # fmt: skip
    assert done.stdout == "False\n[2.0, 2.0, 2.0] True\n", done.stdout + done.stderr


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        # A bias before a batch norm would have rounding errors as its gradient.
        torch.nn.Conv2d(1, 4, 3, padding=1, bias=False), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
        torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 10),
    )  # fmt: skip


def train(model, device, steps=4):
    """Losses of a few steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    images, labels = torch.arange(8 * 64.0).sin().reshape(8, 1, 8, 8).to(device), (torch.arange(8) % 10).to(device)
    losses = []
    for _ in range(steps):
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def test_it_trains():
    model = network()
    other = copy.deepcopy(model).to(D)
    wanted, got = train(model, "cpu"), train(other, D)
    assert got == pytest.approx(wanted, rel=1e-4) and got[-1] < got[0]
    for (name, a), b in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(b.cpu(), a, rtol=1e-3, atol=1e-4, msg=name)


def test_streams_and_events():
    first, second = torch.zoom.Stream(), torch.zoom.Stream()
    begun, done = (torch.zoom.Event(enable_timing=True) for _ in range(2))
    x = torch.zeros(1 << 16, device=D)
    first.wait_stream(torch.zoom.current_stream())
    with torch.zoom.stream(first):
        begun.record()
        for _ in range(10):
            x += 1
        done.record()
    second.wait_event(done)
    with second:
        y = x * 2
    torch.zoom.current_stream().wait_stream(second)
    assert (y == 20).all().item()
    done.synchronize()
    assert done.query() and begun.elapsed_time(done) >= 0
    assert first != second and torch.zoom.current_stream() == torch.zoom.default_stream()


def test_graph():
    x = torch.ones(1000, device=D)
    graph = torch.zoom.Graph()
    with torch.zoom.graph(graph):
        y = x * 2 + 1
    assert y.shape == x.shape
    for value in (1.0, 5.0):
        x.fill_(value)
        graph.replay()
        assert (y == value * 2 + 1).all().item()
    assert not torch.zoom.is_current_stream_capturing()


def test_pinned_memory():
    host = torch.arange(1 << 16, dtype=torch.float32).pin_memory()
    assert host.is_pinned()
    x = host.to(D, non_blocking=True)
    back = torch.empty_like(host).pin_memory()
    back.copy_(x + 1, non_blocking=True)
    torch.zoom.synchronize()
    assert torch.equal(back, host + 1)


def test_files(tmp_path):
    model = network().to(D)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    for where in (D, "cpu"):
        got = torch.load(tmp_path / "model.pt", map_location=where)
        assert all(t.device.type == where for t in got.values())
        assert all(torch.equal(t.cpu(), model.state_dict()[k].cpu()) for k, t in got.items())
    assert next(iter(torch.load(tmp_path / "model.pt").values())).is_zoom


@pytest.mark.long
def test_autocast():
    model, x = torch.nn.Linear(8, 8).to(D), torch.rand(4, 8, device=D)
    with torch.autocast(D, dtype=torch.bfloat16):
        y = model(x)
        assert y.dtype == torch.bfloat16 and y.exp().dtype == torch.float32
    scaler = torch.amp.GradScaler(D)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.detach().clone()
    scaler.scale(model(x).square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(before, model.weight)


def test_child_made_by_fork_ends():
    """The child ends as usual, though the device was busy at the fork. Threads that do this work aren't copied."""
    x = torch.ones(300, 300, device=D)
    for _ in range(12):
        y = x @ x
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).exit(3)
    ended, patience = 0, time.monotonic() + 10
    while not ended and time.monotonic() < patience:
        ended, status = os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)
    if not ended:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert ended and os.waitstatus_to_exitcode(status) == 3
    assert y[0, 0].item() == 300


# On a busy stream too, the error is the operator's and not the stream's.
REFUSED = {
    "a type of a factorization": lambda d: torch.linalg.cholesky(torch.eye(3, dtype=torch.half, device=d)),
    "a type of a loss": lambda d: F.ctc_loss(
        torch.ones(5, 2, 4, dtype=torch.half, device=d), torch.ones(2, 2, dtype=torch.long, device=d), [5, 5], [2, 2]),
    "a type of a function": lambda d: torch.special.airy_ai(torch.ones(3, dtype=torch.complex64, device=d)),
    "sizes of a copy": lambda d: torch.zeros(0, 3, device=d).copy_(torch.zeros(2, 0, 3, device=d)),
    "an index of max_unpool": lambda d: F.max_unpool2d(
        torch.ones(1, 1, 1, 2, device=d), torch.tensor([[[[0, -1]]]], device=d), (1, 2)),
    "a class below -1": lambda d: F.multilabel_margin_loss(
        torch.ones(1, 3, device=d), torch.tensor([[0, -2, 1]], device=d)),
    "a class after the last": lambda d: F.multilabel_margin_loss(
        torch.ones(1, 3, device=d), torch.tensor([[0, -1, 3]], device=d)),
    "offsets of a bag": lambda d: F.embedding_bag(
        torch.tensor([0, 1, 2], device=d), torch.ones(4, 3, device=d), torch.tensor([1, 2], device=d), mode="sum"),
}  # fmt: skip


# The losses of classes take many kernels.
CASES = [pytest.param(what, marks=[pytest.mark.long] if what.startswith("a class") else []) for what in REFUSED]


@pytest.mark.parametrize("what", CASES)
def test_errors_on_a_busy_stream(what):
    with pytest.raises((RuntimeError, IndexError)):
        REFUSED[what]("cpu")
    x = torch.ones(300, 300, device=D)
    for _ in range(12):
        x @ x
    with pytest.raises((RuntimeError, IndexError)) as raised:
        REFUSED[what](D)
        torch.zoom.synchronize()
    kept = "index out of range" in str(raised.value)
    assert kept == (what[:8] in ("an index", "a class ", "offsets ")), raised.value
    torch.zoom.synchronize()


def test_numbers_that_are_sorted():
    for k in (0, 1):
        for device in ("cpu", D):
            values, indices = torch.tensor(7.0, device=device).topk(k)
            assert (values.item(), indices.item()) == (7.0, 0)


def test_masks_of_expanded_tensors():
    got = []
    for device in ("cpu", D):
        x = torch.zeros(1, device=device)
        with pytest.warns(UserWarning, match="masked_fill_ on expanded tensors"):
            x.expand(3).masked_fill_(torch.tensor([False, True, False], device=device), 2)
        got.append(x.item())
    assert got == [2, 2]


def test_errors_of_operators():
    with pytest.raises(RuntimeError, match="must match"):
        torch.ones(2, device=D) + torch.ones(3, device=D)
    with pytest.raises(torch.OutOfMemoryError, match="zoom out of memory"):
        torch.empty(1 << 50, dtype=torch.uint8, device=D)
    # The CPU's kernel says it, or ours.
    with pytest.raises((IndexError, RuntimeError), match="index (7 is out of bounds|out of range)"):
        torch.arange(3, device=D)[torch.tensor([7], device=D)].tolist()


RANK = """
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

rank = int(sys.argv[1])
dist.init_process_group("chorus", store=dist.FileStore(sys.argv[2], 2), rank=rank, world_size=2)

def trained(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).to(device)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        x = (torch.arange(32.0) + 10 * rank + step).sin().reshape(4, 8).to(device)
        model(x).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().cpu() for p in model.parameters()]

for a, b in zip(trained("cpu"), trained("zoom"), strict=True):
    torch.testing.assert_close(a, b)
x = torch.full((1000,), rank + 1.0, device="zoom")
dist.all_reduce(x)
got = [torch.empty_like(x) for _ in range(2)]
dist.all_gather(got, x * (rank + 1))
print(x[0].item(), got[0][0].item(), got[1][0].item())
dist.destroy_process_group()
"""


@longest
@pytest.mark.long
def test_two_processes_train(tmp_path):
    """DistributedDataParallel has the CPU's parameters after each step."""
    program = tmp_path / "rank.py"
    program.write_text(RANK)
    command = [sys.executable, str(program)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    ranks = [subprocess.Popen([*command, str(r), str(tmp_path / "store")], **pipes) for r in range(2)]
    for r in ranks:
        out, err = r.communicate(timeout=240)
        assert r.returncode == 0 and out == "3.0 3.0 6.0\n", out + err
