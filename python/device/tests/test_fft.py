"""Fourier transforms by a library, on GPUs that are stand-ins with a stand-in for cuFFT."""

import os
import pathlib
import subprocess
import sys

import pytest
from children import path_with

PROGRAM = """
import os, types
import torch, chorus_device

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "1"  # for the stand-in, which loads its emulated devices itself

import fft_cases
chorus_device.plug("sim", driver="cuda", module=types.ModuleType("sim"))
n = fft_cases.compare("sim", (3, 4)) + fft_cases.compare("sim", (4, 5)) + fft_cases.compare("sim", (1, 2))
calls = {k: c for k, c in chorus_device.operators().items() if k.startswith("aten::_fft") and not k.endswith(".out")}
# Forms with a given tensor need a kernel that copies, and the stand-in compiles none.
print(n > 100, sum(c.native for c in calls.values()) > 100, sum(c.fallback for c in calls.values()))
print(chorus_device.kernels()["transformed"] > 100)
"""


@pytest.mark.long
def test_cufft(standin_library):
    env = dict(os.environ, CHORUS_LIBRARY=str(standin_library), TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    env["PYTHONPATH"] = path_with(pathlib.Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=240, env=env)
    assert done.stdout.splitlines() == ["True True 0", "True"], done.stdout + done.stderr
