"""The checks of `make gpu-test` for this device, over OpenCL on the processor. python/tests/test_gputest.py tests the
rest of that program."""

import os
import re
import sys

import pytest
from installed import ROOT

sys.path.append(str(ROOT / "python"))

from gputest import jobs, zoom
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
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]))
    chosen = [c for c in zoom.CHECKS if c.name != "Z7"]  # which is a test of its own
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
