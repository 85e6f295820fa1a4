"""Types of chorus_device, torch_accinte and torch_zoom."""

import pathlib
import subprocess
import sys

import pytest
import torch

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.long
def test_types():
    pytest.importorskip("mypy")
    if torch.__version__ < "2.13":
        pytest.skip("PyTorch's stubs change; the packages are checked with those of the version that CI has")
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
