"""The programs of python/zoom/examples, and ``python -m torch_zoom``."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
from worlds import sample

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"


def output(*command, **env):
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, timeout=600, env={**os.environ, **env}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_smoke_test():
    assert re.search(r"^tensor\(.*device='zoom:0'\)\n.+ True True\n$", output(EXAMPLES / "smoke_test.py"), re.S)


@pytest.mark.long
def test_dot():
    assert output(EXAMPLES / "dot.py") == "tensor(1024., device='zoom:0')\ntensor(0., device='zoom:0')\nTrue\n"


@pytest.mark.long
def test_linear():
    said = output(EXAMPLES / "linear.py")
    first, last = map(float, re.search(r"loss (\S+), then (\S+)\n$", said).groups())
    assert said.startswith("zoom:0 tensor([") and last < first / 2, said


@pytest.mark.long
def test_report():
    """The report has the devices, and the fallbacks by operator."""
    said = output("-m", "torch_zoom", EXAMPLES / "llama3.py", "--steps", "2")
    assert "step 1: loss " in said, said
    assert re.search(r"^zoom:0 +\S.*, by (OpenCL|CUDA|HIP) \S+, [\d.]+ GiB$", said, re.M), said
    calls, operators = map(int, re.search(r"^fallbacks +(\d+) calls of (\d+) operators", said, re.M).groups())
    rows = re.findall(r"^ {11} +(\d+) (aten::\S+)$", said, re.M)
    assert len(rows) == operators and sum(int(n) for n, _ in rows) == calls, said


@pytest.mark.long
@pytest.mark.anywhere
def test_report_without_a_device():
    done = subprocess.run(
        [sys.executable, "-m", "torch_zoom"], capture_output=True, text=True, timeout=240,
        env={**os.environ, "CHORUS_ZOOM_DRIVER": "opencl", "CHORUS_OPENCL_LIBRARY": "/nonesuch.so"},
    )  # fmt: skip
    assert done.returncode == 1 and "torch.device('zoom') can't be used: " in done.stderr and not done.stdout


@pytest.mark.long
def test_llama3():
    """The losses are those of the CPU, but for rounding, and it has learned its text."""
    losses = {}
    for device in ("cpu", "zoom"):
        said = output(EXAMPLES / "llama3.py", "--device", device)
        losses[device] = [float(x) for x in re.findall(r"loss (\S+)$", said, re.M)]
        assert said.endswith("\nA kernel is written once, and compiled for the device on which it runs. \n"), said
    assert losses["zoom"] == pytest.approx(losses["cpu"], rel=1e-2)


@pytest.mark.long
@pytest.mark.parametrize("name", sample(["resnet", "transformer"], "transformer"))
def test_training(name):
    """The loss of each step is the CPU's within 1e-3 of it, it falls, and a step uses no kernel of the CPU."""
    losses = {}
    for device in ("cpu", "zoom"):
        said = output(EXAMPLES / f"{name}.py", "--device", device)
        losses[device] = [float(x) for x in re.findall(r"loss (\S+)$", said, re.M)]
    assert losses["zoom"] == pytest.approx(losses["cpu"], rel=1e-3, abs=1e-4)
    assert losses["zoom"][-1] < losses["zoom"][0] / 4
    assert re.search(r"^fallbacks of step \d+: 0 *$", said, re.M), said
