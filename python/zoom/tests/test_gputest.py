"""The checks of `make gpu-test` for this device, over OpenCL on the processor. python/tests/test_gputest.py tests the
rest of that program."""

import re
import sys

import pytest
import torch
from children import path_with
from installed import ROOT

sys.path.append(str(ROOT / "python"))

from gputest import families, jobs, zoom
from gputest.check import FAILED, FEW_RANKS, OK

RANK = """
from gputest.rank import serve
from gputest.zoom import CHECKS, Rank
serve(lambda: Rank(0, elements=1 << 16), {c.name: c for c in CHECKS})
"""


@pytest.mark.long
def test_checks(tmp_path, monkeypatch):
    program = tmp_path / "rank.py"
    program.write_text(RANK)
    monkeypatch.setenv("PYTHONPATH", path_with(ROOT / "python"))
    chosen = [c for c in zoom.CHECKS if c.name not in ("Z7", "Z8")]  # which are tests of their own
    with open(tmp_path / "log", "w") as log:
        came = {r.check.name: r for r in jobs.run(chosen, [sys.executable, str(program)], 1, 1, log)}
    said = "\n".join(f"{name}: {r.verdict}: {r.came}" for name, r in came.items())
    said += "\n" + (tmp_path / "log").read_text()[-2000:]
    assert came["Z1"].verdict == FAILED and ", opencl " in came["Z1"].came, said  # it's no GPU
    for name in ("Z2", "Z3", "Z6"):
        assert came[name].verdict == OK, said
    assert came["Z4"].verdict == FEW_RANKS, said
    # How quick the machine is decides of the verdict.
    assert re.search(r"a copy \d+ GB/s, 1\.00(; [\w ]+ \d+ GB/s, \d\.\d\d){3}$", came["Z5"].came), said
    assert re.search(r"[\d.]+ us; this PyTorch has no device of its own", came["Z6"].came), said


@pytest.mark.long
def test_families(monkeypatch):
    """Each family has a line, with small tensors on the device of the suite."""
    monkeypatch.setattr(families, "SECONDS", 3600)
    before = torch.zoom.fallback_counts()
    said, failed = families.report(torch.device("zoom"), None, 1 << 12, rounds=1)
    assert not failed and torch.zoom.fallback_counts() == before
    names = [f.name for f in families.families(1 << 12)]
    assert len(said) == len(names) and len(set(names)) == len(names)
    for line, name in zip(said, names):
        assert re.fullmatch(re.escape(name) + r" \d+\.\d\d", line), line
    assert said[0] == "copy 1.00" and "matmul f16 1.00" in said


def test_families_without_a_limit(monkeypatch):
    """A family whose limit failed has no share. The others are measured, whatever the error is."""

    def wrong(*_):
        raise ValueError("of the operator")

    def right(device):
        return lambda: torch.ones(8, device=device)

    some = [families.Family(name, 8, make) for name, make in ((families.COPY, wrong), ("ones", right))]
    monkeypatch.setattr(families, "families", lambda n: iter(some))
    said, failed = families.report(torch.device("zoom"), None, 1, rounds=1)
    assert said == ["ones, whose limit isn't known"] and failed == [families.COPY]
