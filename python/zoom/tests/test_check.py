"""``python -m chorus_device.check zoom``."""

import subprocess
import sys

import pytest


@pytest.mark.long
def test_it_passes():
    command = [sys.executable, "-m", "chorus_device.check", "zoom"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0 and "all that is required is there" in done.stdout, done.stdout + done.stderr
