"""Paths from outside: a regular file, or an error that comes at once."""

import ast
import os
import pathlib
import socket
import subprocess
import sys

import pytest

from chorus._files import read_text

ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = ["chorus", "torchcomms/src", "accl/src", "device/chorus_device", "accinte/torch_accinte", "zoom/torch_zoom"]
# Opens of what isn't from outside, by file: the process's or the kernel's own files, and sources of Chorus.
OWN = {
    "chorus/_files.py", "chorus/_sites.py", "chorus/torchcomms/_layout.py", "chorus/bench/port.py",
    "device/chorus_device/inductor.py", "device/chorus_device/memory.py", "device/chorus_device/devtests/worker.py",
    "device/chorus_device/devtests/__main__.py",
}  # fmt: skip


@pytest.fixture(params=["fifo", "zero", "folder", "socket", "sparse"])
def hostile(request, tmp_path):
    path = tmp_path / "x"
    if request.param == "fifo":
        os.mkfifo(path)
    elif request.param == "zero":
        path.symlink_to("/dev/zero")
    elif request.param == "folder":
        path.mkdir()
    elif request.param == "socket":
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(str(path))
    else:
        with open(path, "wb") as file:
            file.truncate(1 << 40)
    return path


def test_hostile_files(hostile):
    with pytest.raises(OSError, match="x': it('s| has) "):
        read_text(hostile)


def test_the_library(hostile, tmp_path):
    """CHORUS_LIBRARY names a file that is none."""
    done = subprocess.run(
        [sys.executable, "-c", "from chorus import _libpath\n_libpath.library()"],
        env={**os.environ, "CHORUS_LIBRARY": str(hostile)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    sparse = hostile.is_file()
    assert sparse == (done.returncode == 0) and ("x': it's " in done.stderr) != sparse


def test_regular_files(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"a\xff")
    assert read_text(path, 2, "replace") == "a\ufffd"
    with pytest.raises(OSError, match="it has more than 1 bytes"):
        read_text(path, 1)
    with pytest.raises(FileNotFoundError):
        read_text(tmp_path / "y")
    done = subprocess.run(
        [sys.executable, "-c", "from chorus._files import read_text; print(read_text('/dev/stdin'))"],
        input="of a pipe", capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "of a pipe\n"


def reads(tree):
    """The lines at which a module opens a file for reading by a function that takes anything."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        modes = [a.value for a in node.args[1:2] if isinstance(a, ast.Constant)]
        if name == "read_text" and isinstance(node.func, ast.Attribute) or name == "read_bytes":
            yield node.lineno
        elif name == "open" and isinstance(node.func, ast.Name) and "r" in "".join(modes or ["r"]):
            yield node.lineno


def test_every_path_from_outside_is_read_by_it():
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "programs" not in path.parts and (lines := list(reads(ast.parse(path.read_text())))):
                found[str(path.relative_to(ROOT))] = lines
    assert set(found) == OWN, {name: lines for name, lines in found.items() if name not in OWN}
