"""Kernels of torch.device("zoom"): in graphs, in random programs, and in PyTorch's tests."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from chorus_device._device import c
from chorus_device.devtests.state import read
from worlds import longest

D = "zoom"


@pytest.fixture(scope="module", autouse=True)
def _compiles():
    assert (torch.ones(1, device=D) + 1).item() == 2
    counts = c().kernel_counts(0)
    if counts["refused"] or not counts["launched"]:
        pytest.skip("left out: the device compiles no kernels")


def by_cpu():
    return {name: host for name, (_, host) in c().operator_calls().items() if host}


WIDE = """
import torch
x = torch.empty(2, 1610612736, dtype=torch.uint8, device="zoom")  # its pages are made when they are written
x[:, -3:] = 7
x[1, 0] = 1
print((x.sum(1) - x[:, :-3].sum(1)).tolist())
"""


@pytest.mark.long
@pytest.mark.skipif(os.environ["CHORUS_ZOOM_DRIVER"] != "opencl", reason="left out: it reads 3 GiB without a value")
def test_rows_that_lie_far_from_each_other():
    """The place of a row and that in the row fit 31 bits each, and their sum does not."""
    r = subprocess.run([sys.executable, "-c", WIDE], capture_output=True, text=True)  # a wrong place ends the process
    assert (r.returncode, r.stdout) == (0, "[21, 21]\n"), r.stderr


def test_values_that_are_read():
    """item() copies an element to the host, and runs no kernel of the CPU."""
    x = torch.tensor([3, 0, 5], device=D)
    for kind in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e5m2):
        got, want = x.to(kind)[2].item(), torch.tensor(5).to(kind).item()
        assert got == want and type(got) is type(want)
    assert torch.tensor([1 + 2j], device=D).conj().item() == 1 - 2j
    assert by_cpu().get("aten::_local_scalar_dense") is None
    with pytest.raises(IndexError, match="index out of range in aten::index_select on zoom:0.*CHORUS_DEVICE_BLOCKING"):
        x.index_select(0, torch.tensor([7], device=D)).item()


def test_graph():
    """A graph of kernels computes the same as the CPU, each time with the values that its inputs have then."""

    def step(x, w, bias, at):
        h = F.gelu(torch.addmm(bias, x, w))
        h = torch.softmax(F.layer_norm(h, h.shape[-1:]), -1)
        x.mul_(0.5).add_(h.index_select(1, at))
        return h.sum(0), h.amax(1), torch.cat([x, h], 1)

    host = [torch.linspace(-1, 1, 12).reshape(4, 3), torch.linspace(-2, 2, 15).reshape(3, 5), torch.arange(5.0)]
    host.append(torch.tensor([4, 0, 2]))
    there = [t.to(D) for t in host]
    step(*(t.clone() for t in there))  # compiles the kernels
    before = by_cpu()
    graph = torch.zoom.Graph()
    with torch.zoom.graph(graph):
        got = step(*there)
    assert by_cpu() == before  # all are kernels
    for k in range(3):
        there[1].fill_(k - 1.5)
        host[1].fill_(k - 1.5)
        graph.replay()
        for a, b in zip((*got, there[0]), (*step(*host), host[0]), strict=True):
            torch.testing.assert_close(a.cpu(), b)


def test_graph_of_a_training_step():
    """The losses of a step that is replayed are the CPU's."""

    def network(device):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to(device)
        return model, torch.linspace(-1, 1, 24).reshape(4, 6).to(device)

    def step(model, x):
        loss = model(x).square().mean()
        for p, grad in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True):
            p.detach().sub_(grad, alpha=0.1)
        return loss.detach()

    model, x = network("cpu")
    wanted = [step(model, x).item() for _ in range(5)]
    model, x = network(D)
    stream = torch.Stream(D)
    with stream:
        got = [step(model, x).item()]
    graph = torch.zoom.Graph()
    with torch.zoom.graph(graph, stream=stream):
        loss = step(model, x)
    for _ in range(4):
        graph.replay()
        got.append(loss.item())
    assert got == pytest.approx(wanted, rel=1e-4) and got[-1] < got[0]


@pytest.mark.long
@pytest.mark.parametrize(
    "how",
    [
        pytest.param(["--programs", "6"], id="plain", marks=longest),
        pytest.param(["--programs", "3", "--steps", "50", "--pressure", "--memory", "64"], id="under pressure"),
    ],
)  # fmt: skip
def test_programs(how):
    seed = os.environ.get("CHORUS_TEST_SEED", "1")
    command = [sys.executable, "-m", "chorus_device.programs", D, "--rounded", "--seed", seed, *how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_logs_of_a_missing_operator(tmp_path):
    """They have that operator alone, with its count, although the device has a kernel for it."""
    command = [sys.executable, "-m", "chorus_device.devtests", D, "--programs", "test_ops", "--jobs", "1"]
    for of in ("sinh_", "cosh_*float32"):
        command += ["-k", f"*TestCommonPRIVATEUSEONE.test_compare_cpu_{of}*"]
    for without in ([], ["--without", "sinh"]):
        done = subprocess.run([*command, *without], cwd=tmp_path, capture_output=True, text=True, timeout=900)
        _, records, _ = read(tmp_path / "zoom_tests.jsonl")
        bad = [name for name, r in records.items() if r["status"] != "ok"]
        log = (tmp_path / "zoom_unimplemented_operators.log").read_text()
        if not without:
            assert done.returncode == 0 and not bad and len(records) > 10, done.stdout + done.stderr
            assert log == "\nTotal unimplemented operator failures: 0\n"
            continue
        assert done.returncode == 1 and all("_sinh_" in name for name in bad) and len(bad) > 8, bad
        n = (tmp_path / "test.log").read_text().count("Could not run 'aten::sinh' with arguments from the 'zoom'")
        assert log == f"{n}\tsinh\n\nTotal unimplemented operator failures: {n}\n" and n >= len(bad), log
