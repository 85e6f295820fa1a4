"""Kernels that a program's user waits for: the line on a terminal, and the run that compiles them before."""

import os
import pty
import re
import subprocess
import sys
import threading

import pytest

from chorus import _libpath

PROGRAM = """
import sys, torch
x = torch.arange(900.0, device="zoom")
for _ in range(2):
    y = torch.softmax((x * 2 + 1).sin(), 0).reshape(30, 30)
    print("sum", (y @ y).sum().item())
sys.exit(len(sys.argv) - 2)
"""


def environment(folder, **env):
    return {**os.environ, "XDG_CACHE_HOME": str(folder), "PYTORCH_KERNEL_CACHE_PATH": str(folder / "kernels"), **env}


def run(program, *options, env):
    """A process that has run a program, and how many kernels it has compiled and read."""
    done = subprocess.run(
        [sys.executable, "-m", "torch_zoom", *options, program, "x"], capture_output=True, text=True, timeout=500,
        env=env,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (counts,) = re.findall(r"kernels +(\d+) compiled, (\d+) read", done.stdout)
    return done, int(counts[0]), int(counts[1])


@pytest.mark.long
def test_warm(tmp_path):
    """The program's output comes once, with the kernels' results, and its kernels are in the cache."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    env = environment(tmp_path)
    done, compiled, read = run(program, "--warm", env=env)
    if compiled + read == 0:
        pytest.skip("left out: no OpenCL library here compiles kernels")
    assert done.stdout.count("sum ") == 2 and done.stderr == "", done
    assert read > compiled, done.stdout
    again, compiled, read = run(program, env=env)
    assert compiled == 0 < read
    assert again.stdout.splitlines()[:2] == done.stdout.splitlines()[:2]


@pytest.mark.long
def test_warm_of_a_program_that_fails(tmp_path):
    """Its first run is named, and the second one's status is the program's."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "torch_zoom", "--warm", program, "x", "y"], capture_output=True, text=True, timeout=500,
        env=environment(tmp_path),
    )  # fmt: skip
    assert done.returncode == 1 and "the first run has ended with status 1" in done.stderr, done


@pytest.mark.long
@pytest.mark.skipif(os.environ["CHORUS_ZOOM_DRIVER"] != "opencl", reason="left out: it holds up OpenCL's compiler")
def test_a_line_on_a_terminal(tmp_path):
    """It comes while the compiler has still not begun, here until it's told to."""
    go, wait = tmp_path / "go", tmp_path / "wait"
    os.mkfifo(go)
    wait.write_text(f'#!/bin/sh\nread -r word < {go}\nexec "$@"\n')
    wait.chmod(0o700)
    command = f"{wait} {sys.executable} -m chorus.opencl_compiler {_libpath.library()}"
    program = "import torch; (torch.arange(9.0, device='zoom') * 2).cpu(); print(torch.zoom.fallback_counts())"
    terminal, stderr = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=stderr, text=True,
        env=environment(tmp_path, CHORUS_OPENCL_COMPILER=command),
    )  # fmt: skip
    os.close(stderr)
    watchdog = threading.Timer(300, process.kill)
    watchdog.start()
    said = b""
    while b"turns this line off)" not in said:
        try:
            said += os.read(terminal, 1000)
        except OSError:  # the program has ended
            break
    if b"doesn't compile" in said or b"refuses" in said:
        pytest.skip("left out: no OpenCL library here compiles kernels")
    assert b"chorus: compiling kernels: 0 done, 1 under way (CHORUS_KERNEL_PROGRESS=0 " in said, said
    go.write_text("go\n")
    process.communicate()
    watchdog.cancel()
    os.close(terminal)
    assert process.returncode == 0
