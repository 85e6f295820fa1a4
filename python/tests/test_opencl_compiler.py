"""The process that compiles kernels for OpenCL."""

import json
import os
import subprocess
import sys

COMMAND = [sys.executable, "-m", "chorus.opencl_compiler"]


def test_a_request_is_answered(tmp_path):
    request = tmp_path / "request"
    request.write_text(json.dumps({"Library": "/nowhere/libOpenCL.so", "Options": "", "Source": ""}))
    environment = {**os.environ, "CHORUS_OPENCL_COMPILE": str(request)}
    done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "/nowhere/libOpenCL.so" in json.loads((tmp_path / "request.answer").read_text())["Error"]


def test_without_a_request(tmp_path):
    done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "CHORUS_OPENCL_COMPILER" in done.stderr
