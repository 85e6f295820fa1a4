"""PyTorch's database of operators at zeros of both signs, infinity, NaN and numbers at the ends of their types."""

import subprocess
import sys

import pytest
from chorus_device.devtests.state import read
from worlds import longest

PARTS = 12


@longest
@pytest.mark.long
@pytest.mark.parametrize("part", range(1, PARTS + 1))
def test_extremes(part, tmp_path):
    command = [sys.executable, "-m", "chorus_device.devtests", "zoom", "--programs", "test_extremes", "--jobs", "2"]
    command += ["-k", "*_float32", "--shard", f"{part}/{PARTS}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=3600)
    _, records, _ = read(tmp_path / "zoom_tests.jsonl")
    bad = [name for name, r in records.items() if r["status"] not in ("ok", "skip")]
    log = (tmp_path / "zoom_test_errors.log").read_text() if bad else ""
    assert done.returncode == 0 and not bad and len(records) > 20, f"{bad}\n{log}\n{done.stderr}"
