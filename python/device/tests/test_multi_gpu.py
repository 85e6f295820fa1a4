"""python/accinte/examples/multi_gpu.py: a program for several GPUs trains on emulated devices."""

import ast
import os
import pathlib
import re
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "accinte" / "examples" / "multi_gpu.py"


def train(tmp_path, epochs, ranks=2, **env):
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--rdzv-backend=c10d",
         "--rdzv-endpoint=localhost:0", str(PROGRAM), f"--epochs={epochs}"],
        cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1", **env}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def told(done):
    assert done.returncode == 0, done.stdout + done.stderr
    devices = re.findall(r"rank (\d) trained on (\S+)", done.stdout)
    return sorted(devices), [(int(e), float(v)) for e, v in re.findall(r"epoch (\d): loss (\S+)", done.stdout)]


@pytest.mark.long
def test_two_devices(tmp_path):
    """Each rank has a device of its own, and a second run goes on from the checkpoint."""
    devices, first = told(train(tmp_path, epochs=2))
    assert devices == [("0", "accinte:0"), ("1", "accinte:1")]
    devices, then = told(train(tmp_path, epochs=3))
    assert devices == [("0", "accinte:0"), ("1", "accinte:1")]
    assert [e for e, _ in first + then] == [0, 1, 2]
    losses = [v for _, v in first + then]
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0] / 2, losses


@pytest.mark.long
def test_more_devices(tmp_path):
    """Four devices are a variable away, and without it the error names the device that is missing."""
    devices, _ = told(train(tmp_path, epochs=1, ranks=4, CHORUS_ACCINTE_DEVICES="4"))
    assert devices == [(str(i), f"accinte:{i}") for i in range(4)]
    done = train(tmp_path, epochs=1, ranks=3)
    assert done.returncode != 0 and re.search(r"device.* 2\b|\b2 .*device", done.stderr), done.stderr


def test_one_word():
    """The program imports nothing of Chorus and names neither it nor a kind of device, but for the backend."""
    text = PROGRAM.read_text()
    tree = ast.parse(text)
    strings = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    strings.remove(ast.get_docstring(tree, clean=False))
    assert [s for s in strings if re.search("chorus|accinte|cuda|cpu", s)] == ["chorus"]
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    names |= {a.name for n in ast.walk(tree) if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names}
    assert not [n for n in names if re.search("chorus|accinte|cuda", n)]
