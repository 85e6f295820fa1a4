"""Drivers that refuse kernels, die while they compile or lose their device, and damaged files of kernels: what a
program sees. Each program runs in a process of its own, and one that can't use a kernel has the CPU's results."""

import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys

import pytest
import torch

HERE = pathlib.Path(__file__).parent
INTEL = HERE.parents[2] / ".venvs" / "opencl-intel" / "lib" / "libintelocl.so"
PROGRAM = """
    import json, sys, warnings
    import torch
    from chorus_device._device import c
    device = sys.argv[1]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        x = torch.arange(900, dtype=torch.float32).to(device)
        y = x * 2 + 1
        square = (x / 900).reshape(30, 30)
        values = [y.sum().item(), torch.softmax(y / 900, 0).amax().item(), (square @ square).sum().item()]
    kernels = c().kernel_counts(0) if device == "zoom" else {}
    print(json.dumps({"values": values, "kernels": kernels, "said": [str(w.message) for w in said]}))
"""
PROGRAM = "\n".join(line[4:] for line in PROGRAM.splitlines())


def real_library():
    """The OpenCL library that the tests use."""
    if "CHORUS_OPENCL_LIBRARY" in os.environ:
        return os.environ["CHORUS_OPENCL_LIBRARY"].split(os.pathsep)[0]
    if INTEL.exists():
        return str(INTEL)
    maps = pathlib.Path("/proc/self/maps").read_text() if torch.zoom.is_available() else ""
    found = re.findall(r"(/\S*(?:libOpenCL|libpocl)[^\s/]*\.so[^\s/]*)$", maps, re.M)
    return found[0] if found else None


def run(folder, program=PROGRAM, device="zoom", limit=None, **env):
    """A program's last line, as JSON. Compiled kernels are kept in the folder."""
    env = {
        **os.environ, "CHORUS_OPENCL_LIBRARY": str(real_library()),
        "PYTORCH_KERNEL_CACHE_PATH": str(folder / "kernels"), "XDG_CACHE_HOME": str(folder), **env,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", program, device], capture_output=True, text=True, timeout=300, env=env,
        preexec_fn=limit,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """What the CPU computes, if the device compiles kernels."""
    if real_library() is None or run(tmp_path_factory.mktemp("kernels"))["kernels"].get("launched", 0) == 0:
        pytest.skip("left out: no OpenCL library here compiles kernels")
    return pytest.approx(run(tmp_path_factory.mktemp("cpu"), device="cpu")["values"], rel=1e-5)


@pytest.fixture(scope="module")
def faulty(wanted, tmp_path_factory):
    """The path of a library with faults over the real one."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("left out: there is no C compiler")
    library, made = real_library(), tmp_path_factory.mktemp("faulty") / "libfaulty.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", made, HERE / "faulty.c", "-Wl,--no-as-needed", library,
         f"-Wl,-rpath,{os.path.dirname(library)}", "-ldl"],
        check=True,
    )  # fmt: skip
    return str(made)


def falls_back(got, wanted, why):
    """The CPU's kernels computed everything, and one warning says why."""
    assert got["values"] == wanted
    assert got["kernels"]["launched"] == got["kernels"]["compiled"] == 0 < got["kernels"]["refused"], got
    (said,) = [text for text in got["said"] if "refuses a kernel" in text]
    assert why in said and len(said) < 2000, said


@pytest.mark.long
def test_kernels_that_are_refused(faulty, wanted, tmp_path):
    falls_back(run(tmp_path, CHORUS_OPENCL_LIBRARY=faulty, FAULTY="refuses"), wanted, "CL_BUILD_PROGRAM_FAILURE")


@pytest.mark.long
def test_without_a_compiler(faulty, wanted, tmp_path):
    falls_back(run(tmp_path, CHORUS_OPENCL_LIBRARY=faulty, FAULTY="no compiler"), wanted, "has no compiler")


@pytest.mark.long
@pytest.mark.parametrize("how", ["dies", "hangs", "spins"])
def test_a_compiler_that_dies(faulty, wanted, tmp_path, how):
    """It does so in another process, for the first kernel. Nothing of that is kept: a compiler that works then is
    used."""
    env = {"CHORUS_OPENCL_LIBRARY": faulty, "FAULTY": how, "CHORUS_OPENCL_COMPILER_TIMEOUT": "2"}
    why = {
        "dies": "has ended its process", "hangs": "compiler has hung, and has done nothing for",
        "spins": "of the processor's time",
    }  # fmt: skip
    got = run(tmp_path, **env)
    falls_back(got, wanted, why[how])
    assert how != "dies" or "SIGSEGV" in got["said"][0], got
    got = run(tmp_path, CHORUS_OPENCL_LIBRARY=faulty)
    assert got["values"] == wanted and got["kernels"]["compiled"] > 3 and got["said"] == [], got


@pytest.mark.long
def test_a_compiler_that_dies_at_one_kernel(faulty, wanted, tmp_path):
    """The other kernels are compiled by the next process. The second run compiles the one that is missing."""
    got = run(tmp_path, CHORUS_OPENCL_LIBRARY=faulty, FAULTY="dies later")
    counts = got["kernels"]
    assert got["values"] == wanted and counts["refused"] > 0 < counts["launched"], got
    assert counts["compiled"] >= 2 and counts["from_disk"] == 0, got
    (said,) = got["said"]
    assert "has ended its process" in said and "SIGSEGV" in said
    got = run(tmp_path, CHORUS_OPENCL_LIBRARY=faulty)
    assert got["values"] == wanted and got["said"] == [], got
    assert got["kernels"]["from_disk"] >= counts["compiled"] and got["kernels"]["compiled"] > 0, got


@pytest.mark.long
def test_a_lost_device(faulty, tmp_path):
    """Every use from then on says so, and what is on the host stays. The process ends as usual."""
    program = """
import ctypes, json, sys
import torch
x = torch.arange(900.0, device="zoom")
host = (x + 1).cpu()
ctypes.CDLL(sys.argv[2]).faulty_set(b"lost")
said = []
uses = [lambda: (x + 1).cpu(), torch.zoom.synchronize, lambda: x.sum().item(), lambda: torch.ones(9, device="zoom")]
for use in uses:
    try:
        use()
        said.append("")
    except RuntimeError as error:
        said.append(str(error))
print(json.dumps({"said": said, "host": (host + 1).sum().item()}))
"""
    program = program.replace("sys.argv[2]", repr(faulty))
    got = run(tmp_path, program, CHORUS_OPENCL_LIBRARY=faulty)
    assert got["host"] == 900 * 899 / 2 + 1800
    for said in got["said"]:
        assert "CL_INVALID_COMMAND_QUEUE" in said and ("zoom:0" in said or "opencl:0" in said), got


@pytest.mark.long
def test_damaged_files_of_kernels(wanted, tmp_path):
    """They are compiled again and written anew, those that are whole are read."""
    first = run(tmp_path)
    n = first["kernels"]["compiled"]
    assert first["values"] == wanted and n > 3 and first["kernels"]["from_disk"] == 0, first
    changes = [lambda b: b[: len(b) // 2], lambda b: b[:-1] + bytes([b[-1] ^ 1]), lambda b: b""]
    for how in ("damaged", "whole"):
        files = sorted((tmp_path / "kernels").glob("chorus_*"))
        assert len(files) == n
        if how == "damaged":
            for file, change in zip(files, changes):
                file.write_bytes(change(file.read_bytes()))
        got = run(tmp_path)
        damaged = len(changes) if how == "damaged" else 0
        assert got["values"] == wanted and got["said"] == [], got
        assert got["kernels"]["compiled"] == damaged and got["kernels"]["from_disk"] == n - damaged, (how, got)


@pytest.mark.long
@pytest.mark.parametrize("how", ["full", "unwritable"])
def test_files_of_kernels_that_cannot_be_written(wanted, tmp_path, how):
    """A file that is cut short, as on a full disk, isn't kept."""
    limit = (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))) if how == "full" else None
    env = {} if how == "full" else {"PYTORCH_KERNEL_CACHE_PATH": "/proc/self/kernels"}
    got = run(tmp_path, limit=limit, **env)
    assert got["values"] == wanted and got["kernels"]["compiled"] > 3 and got["said"] == [], got
    assert {file.name for file in tmp_path.glob("kernels/*")} <= {"seal"}
