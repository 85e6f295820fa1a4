"""The process that compiles kernels for OpenCL."""

import json
import os
import subprocess
import sys

from chorus import _libpath

COMMAND = [sys.executable, "-m", "chorus.opencl_compiler"]
ALONE = [sys.executable, "-I", "-S", os.path.join(os.path.dirname(_libpath.__file__), "opencl_compiler.py")]


def test_requests_are_answered():
    """It ends when there are no more."""
    requests, answers = os.pipe(), os.pipe()
    pipes = f'exec 3<&{requests[0]} 4>&{answers[1]}; exec "$@"'
    process = subprocess.Popen(
        ["bash", "-c", pipes, "bash", *ALONE, _libpath.library()], env={**os.environ, "CHORUS_OPENCL_COMPILE": "1"},
        pass_fds=(requests[0], answers[1]),
    )  # fmt: skip
    os.close(requests[0])
    os.close(answers[1])
    with os.fdopen(answers[0]) as said, os.fdopen(requests[1], "w") as asked:
        assert json.loads(said.readline())["Step"] == "ready"
        for _ in range(2):
            asked.write(json.dumps({"Library": "/nowhere/libOpenCL.so", "Options": "", "Source": ""}) + "\n")
            asked.flush()
            assert "/nowhere/libOpenCL.so" in json.loads(said.readline())["Error"]
    assert process.wait(60) == 0


def test_without_a_request(tmp_path):
    done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "CHORUS_OPENCL_COMPILER" in done.stderr
