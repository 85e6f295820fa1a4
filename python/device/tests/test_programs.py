"""Random programs, on the device and on the CPU. `python -m chorus_device.programs accinte` runs a hundred."""

import os
import subprocess
import sys

import pytest
import torch
from chorus_device import programs
from slow import busy
from versions import since

D = "accinte"


@since(2, 13, "a stream can't be current twice")
@pytest.mark.parametrize(
    "how, memory",
    [
        (["--programs", "4", "--steps", "60"], {}),
        (["--programs", "2", "--steps", "40", "--pressure"],
         {"CHORUS_ACCINTE_MEMORY": "64MiB", "PYTORCH_ALLOC_CONF": "large_segment_size_mb:11"}),
    ],
    ids=["plain", "under pressure"],
)  # fmt: skip
def test_programs(how, memory):
    seed = os.environ.get("CHORUS_TEST_SEED", "1")
    done = subprocess.run(
        [sys.executable, "-m", "chorus_device.programs", D, "--seed", seed, *how],
        env={**os.environ, **memory}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_difference_is_reported(monkeypatch):
    sin = torch.sin
    monkeypatch.setattr(torch, "sin", lambda x: sin(x) + (x.device.type == D))
    told = [programs.differ(seed, 40, D, pressure=False) for seed in range(3)]
    assert any("torch.float" in t and "make" in t for t in told), told


def test_numbers_of_python_have_no_type_of_their_own():
    """Also if a busy stream computes with them later."""
    h = torch.rand(35, 2, 7)
    x = h.to(D)
    with busy(D, 0.05):
        got = x.sum() * 1e-3
    assert torch.equal(got.cpu(), h.sum() * 1e-3)
