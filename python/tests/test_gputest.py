"""The program of `make gpu-test`: its ranks and its page. python/device/tests tests its checks, over stand-ins."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).parents[1]))

import gpu_checks

from gputest import jobs, page
from gputest.check import FAILED, FEW_RANKS, HANGS, LEFT_OUT, OK

PYTHON = str(pathlib.Path(__file__).parents[1])


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A function that runs the named checks of gpu_checks.py on two ranks."""
    monkeypatch.setenv("PYTHONPATH", PYTHON)
    monkeypatch.setattr(jobs, "GRACE", 0.3)

    def run(*names, arguments=()):
        chosen = [{c.name: c for c in gpu_checks.CHECKS}[name] for name in names]
        with open(tmp_path / "log", "w") as log:
            return list(jobs.run(chosen, [sys.executable, gpu_checks.__file__, *arguments], 2, 1, log))

    return run


@pytest.mark.long
def test_verdicts(run):
    """A check that fails or hangs names the rank and the reason, and doesn't affect the checks after it."""
    results = run(*(c.name for c in gpu_checks.CHECKS))
    came = {r.check.name: (r.verdict, r.came) for r in results}
    line = next(n for n, text in enumerate(open(gpu_checks.__file__), 1) if "time.sleep(0 if" in text)
    assert came == {
        "right": (OK, "the | expected"),
        "few": (FEW_RANKS, "the expected"),
        "wrong": (FAILED, "rank 1: of 1"),
        "raises": (FAILED, "rank 0: ValueError: a word; rank 1: ValueError: a word"),
        "hangs": (HANGS, f"no answer within 0.5 s: rank 1 is in hangs, gpu_checks.py:{line}"),
        "waits": (FAILED, "rank 1: it failed first"),
        "exits": (FAILED, "rank 0: the process exited with 3; rank 1: the process exited with 3"),
        "dies": (FAILED, "rank 0: the process was ended by SIGKILL; rank 1: the process was ended by SIGKILL"),
        "leaves": (OK, "all is done; the process ended"),
        "stays": (HANGS, came["stays"][1]),
        "elsewhere": (OK, "elsewhere"),
        "here": (OK, "here"),
    }
    assert came["stays"][1].startswith("the process did not end within 0.5 s: rank 0 ")  # is somewhere, or doesn't say


def test_ranks_that_do_not_begin(run, monkeypatch):
    monkeypatch.setattr(jobs, "GRACE", 60)  # each rank fails by itself
    results = run("right", "wrong", "few", arguments=["begins"])
    why = "the ranks do not begin: rank 0: OSError: there is no GPU; rank 1: OSError: there is no GPU"
    assert [(r.verdict, r.came) for r in results[:2]] == [(FAILED, why)] * 2
    assert (results[2].verdict, results[2].came) == (LEFT_OUT, why)


OUTPUT = """\
=== RUN   TestTable
=== RUN   TestTable/nccl
    gpu_test.go:37: left out: no library
=== RUN   TestDevices
=== RUN   TestDevices/cuda:0
    gpu_test.go:80: it is wrong
--- PASS: TestTable (0.10s)
    --- SKIP: TestTable/nccl (0.00s)
--- FAIL: TestDevices (1.00s)
    --- FAIL: TestDevices/cuda:0 (1.00s)
"""


def test_page(run):
    results = run("right", "wrong")
    suites = page.suites_of(OUTPUT)
    assert page.page({"card": "A100", "driver": "580.1"}, results, "no device", suites) == """\
# Chorus on GPUs

| what | which |
| --- | --- |
| card | A100 |
| driver | 580.1 |

To be mended: wrong, TestDevices.

## Process groups of PyTorch

| check | what | expected | came | verdict |
| --- | --- | --- | --- | --- |
| right | what right is | the expected | the \\| expected | ok |
| wrong | what wrong is | the expected | rank 1: of 1 | FAILED |

## torch.device("zoom")

Left out: no device.

## Drivers and communicators, from Go

| test | verdict | what |
| --- | --- | --- |
| TestTable | PASS | left out: no library |
| TestDevices | FAIL | cuda:0 failed |
"""
    assert "Left out: there is no PyTorch." in page.page({}, "there is no PyTorch", "nor there", [])


def test_a_panic_is_a_failure():
    """A panic is a failure of the running test: go test reports no result for it."""
    assert page.suites_of("=== RUN   TestTable\npanic: test timed out after 8m0s\n") == [
        ("TestTable", "FAIL", "panic: test timed out after 8m0s")
    ]


def test_libraries_of_a_machine():
    doctor = {
        "libraries": [{"backend": "nccl", "path": "/lib/libnccl.so.2", "version": "2.29.3"}],
        "drivers": [{"device": "hip", "path": "/lib/libamdhip64.so", "error": "it is no library"}],
    }
    assert page.libraries_of(doctor) == {
        "nccl": "2.29.3 /lib/libnccl.so.2",
        "hip": "/lib/libamdhip64.so it is no library",
    }


NO_GPU = """
import types
__version__ = "2.13.0"
version = types.SimpleNamespace(hip=None, cuda="13.0")
cuda = types.SimpleNamespace(device_count=lambda: 0)
"""


@pytest.mark.parametrize(
    "torch, why",
    [
        ("raise ImportError('of another machine')", "has no PyTorch that works: ImportError: of another machine."),
        (NO_GPU, "PyTorch 2.13.0 sees no GPU."),
    ],
    ids=["no PyTorch", "no GPU"],
)
def test_without_what_it_needs(tmp_path, torch, why):
    """The page has the other results, and a missing prerequisite isn't a failure."""
    (tmp_path / "torch.py").write_text(torch)
    (tmp_path / "go.txt").write_text("=== RUN   TestTable\n--- PASS: TestTable (0.10s)\n")
    doctor = {"libraries": [], "drivers": [{"device": "cuda", "path": "/lib/l"}]}
    (tmp_path / "doctor.json").write_text(json.dumps(doctor))
    done = subprocess.run(
        [sys.executable, "-m", "gputest", "--go", "go.txt", "--doctor", "doctor.json", "--fact", "date=today"],
        cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": f"{tmp_path}:{PYTHON}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "gpu-test.md").read_text()
    good = "Nothing of what ran is to be mended."
    assert {"| date | today |", "| cuda | /lib/l |", good, "| TestTable | PASS |  |"} <= set(text.splitlines()), text
    assert re.search(f"Left out: .*{re.escape(why)}", text), text
