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
    mark = f"{os.fstat(requests[0]).st_ino}:{os.fstat(answers[1]).st_ino}:"
    pipes = f'exec 3<&{requests[0]} 4>&{answers[1]}; exec "$@"'
    process = subprocess.Popen(
        ["bash", "-c", pipes, "bash", *ALONE, _libpath.library()], env={**os.environ, "CHORUS_OPENCL_COMPILE": mark},
        pass_fds=(requests[0], answers[1]),
    )  # fmt: skip
    os.close(requests[0])
    os.close(answers[1])
    with os.fdopen(answers[0]) as said, os.fdopen(requests[1], "w") as asked:
        assert json.loads(said.readline())["Step"] == "ready"
        for _ in range(2):
            request = {"Device": {"Library": "/nowhere/libOpenCL.so"}, "Options": "", "Source": ""}
            asked.write(json.dumps(request) + "\n")
            asked.flush()
            assert "/nowhere/libOpenCL.so" in json.loads(said.readline())["Error"]
    assert process.wait(60) == 0


def test_without_a_request(tmp_path):
    done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "CHORUS_OPENCL_COMPILER" in done.stderr


def test_its_variable_alone_starts_nothing():
    """A program runs on, and says so."""
    program = f"import ctypes; ctypes.CDLL({_libpath.library()!r}).chorus_version(); print('done')"
    for value in ("1", "0:0:", "/tmp"):
        env = {**os.environ, "CHORUS_OPENCL_COMPILE": value}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=env)
        assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
        assert f'CHORUS_OPENCL_COMPILE="{value}" in the environment is ignored' in done.stderr
