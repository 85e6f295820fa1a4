"""python -m chorus_device.check: missing mechanisms of a device."""

import os
import subprocess
import sys
import textwrap

import pytest
from children import path_with
from chorus_device import check
from chorus_device.mechanisms import CHECKS
from versions import VERSION
from worlds import longest


def tried(name, module=None, only=(), **env):
    """The command's output, and its exit status."""
    more = [*(["--import", module] if module else []), *(["--only", *only] if only else [])]
    done = subprocess.run(
        [sys.executable, "-m", "chorus_device.check", name, *more],
        capture_output=True, text=True, timeout=600, env={**os.environ, **env},
    )  # fmt: skip
    return done.stdout + done.stderr, done.returncode


def test_accinte_lacks_nothing():
    text, status = tried("accinte")
    assert status == 0 and "MISSING" not in text and "left out" not in text, text
    if VERSION >= (2, 13):  # older versions lack some functions themselves
        assert "missing" not in text, text
        assert text.endswith(f"{len(CHECKS)} of {len(CHECKS)}; all that is required is there\n")


PARTS = """
import sys, types
import torch
import chorus_device
from chorus_device import namespace

lacking = types.ModuleType("lacking")
for name in dir(namespace):
    if name not in ("manual_seed_all", "get_amp_supported_dtype", "get_rng_state_all"):
        setattr(lacking, name, getattr(namespace, name))
chorus_device.plug("lacking", driver="accinte", module=lacking)
for name in ("aten::sort.stable", "aten::convolution_overrideable", "aten::mm.out", "aten::mm"):
    chorus_device._C.block(name, True)
"""


@longest
@pytest.mark.long
def test_missing_mechanisms_are_reported(tmp_path):
    """A device lacks some functions of its module and some operators, and one operator crashes the process."""
    crash = """
        if "--numbers" in sys.argv:
            torch.Tensor.amax = lambda self, *a, **k: sys.stdout.flush() or __import__("os").abort()
    """
    (tmp_path / "lacking.py").write_text(PARTS + textwrap.dedent(crash))
    groups = ["autoload", "streams", "generators", "operators", "amp"]
    text, status = tried("lacking", "lacking", groups, PYTHONPATH=path_with(tmp_path))
    assert status == 1, text
    lines = [line.strip() for line in text.splitlines()]
    for wanted in (
        "MISSING: torch.manual_seed seeds the device",
        "MISSING: torch.<name>.get_amp_supported_dtype: AttributeError",
        "missing, optional: fork_rng, seed, seed_all, states of all devices: AttributeError",
        "MISSING: matrices: NotImplementedError: Operator 'aten::mm",
        "MISSING: reductions: it crashes: SIGABRT",
        "missing, optional: import torch is enough",
    ):
        assert any(line.startswith(wanted) for line in lines), (wanted, text)
    assert any(line.startswith("streams") and "4 of 4" in line for line in lines), text
    assert lines[-1].endswith("something required is MISSING")


@longest
@pytest.mark.long
def test_a_name_without_a_device(tmp_path):
    (tmp_path / "bare.py").write_text("import torch; torch.utils.rename_privateuse1_backend('bare')\n")
    text, status = tried("bare", "bare", ["registration", "memory"], PYTHONPATH=path_with(tmp_path))
    assert status == 1 and "MISSING: torch.<name>: is_available" in text, text
    text, status = tried("bare", "nonesuch")
    assert (
        status == 2 and text == "torch.device('bare') can't be tried: ModuleNotFoundError: No module named 'nonesuch'\n"
    )


@longest
@pytest.mark.long
def test_a_hang_is_one_line(tmp_path, monkeypatch):
    sleeps = """
        if sys.argv[sys.argv.index("--numbers") + 1] == "0":
            torch.Tensor.slow = lambda *a: __import__("time").sleep(600)
    """
    (tmp_path / "slow.py").write_text(PARTS.replace("lacking", "slow") + textwrap.dedent(sleeps))
    monkeypatch.setenv("PYTHONPATH", path_with(tmp_path))
    answers = []
    for answer in check.run("slow", "slow", seconds=6, groups=["registration"]):
        answers.append(answer)
    assert [(status, why) for _, status, why in answers[:2]] == [("ok", "")] * 2
    assert answers[2][1:] == ("missing", "it hangs: nothing for 6 s") and answers[3][1] == "ok"


def test_the_report():
    required, other = (next(c for c in CHECKS if c.required is r) for r in (True, False))
    assert check.report([(required, "ok", ""), (other, "missing", "why")])[1]
    assert check.report([(required, "left out", "one device")])[1]
    text, whole = check.report([(required, "missing", "why")])
    assert not whole and f"MISSING: {required.name}: why" in text
