"""The checks of `make gpu-test`, over stand-ins for NCCL and for the driver of GPUs, with PyTorch's device accinte
instead of CUDA. python/tests/test_gputest.py tests the rest of that program."""

import sys

import pytest
from children import path_with
from standins import FOREIGN, NEWEST, ROOT
from worlds import longest

sys.path.append(str(ROOT / "python"))

from gputest import checks, jobs
from gputest.check import FEW_RANKS, OK

# PyTorch doesn't find the package by itself, as where it is only in PYTHONPATH.
RANK = (
    """
import importlib.metadata
entry_points = importlib.metadata.entry_points

def without_chorus(**which):
    found = entry_points(**which)
    return [e for e in found if e.name != "chorus"] if which == {"group": "torch.backends"} else found

importlib.metadata.entry_points = without_chorus
"""
    + FOREIGN
    + """
import time
from gputest.gpu import Gpu
from gputest.rank import Rank, checks_of, serve
from chorus_device._device import handle_of

class Emulated(Gpu):
    module = torch.accinte

    def __init__(self, index):
        self.device = device

    def free(self):
        return torch.accinte.mem_get_info(self.device)[0]

    def sleep(self, seconds):
        def wait(*_):
            time.sleep(seconds)
            return 0
        kept.append(_lib.TASK_FN(wait))
        stream = handle_of(torch.accinte.current_stream(device))
        check(_lib.library.chorus_stream_task(stream, b"sleep", None, 0, kept[-1], _lib.OVER_FN(), None))

kept = []
if __name__ == "__main__":
    serve(lambda: Rank(Emulated(0)), checks_of("gputest.checks"))
"""
)

# Checks of memory that PyTorch doesn't have for this device.
WITHOUT = {"C8e", "C16"}


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=longest)])
def test_checks(standin_library, tmp_path, monkeypatch, ranks):
    program = tmp_path / "rank.py"
    program.write_text(RANK)
    monkeypatch.setenv("CHORUS_LIBRARY", str(standin_library))
    monkeypatch.setenv("CHORUS_NCCL_LIBRARY", f"ncclsim-{NEWEST}")
    monkeypatch.setenv("PYTHONPATH", path_with(ROOT / "python"))
    # The duration of calls depends on the machine's load.
    chosen = [c for c in checks.CHECKS if c.name not in WITHOUT and (ranks == 2 or c.name == "C11")]
    with open(tmp_path / "log", "w") as log:
        results = list(jobs.run(chosen, [sys.executable, str(program)], ranks, 2, log))
    wrong = [f"{r.check.name}: {r.verdict}: {r.came}" for r in results if r.bad and r.check.name != "C2"]
    assert not wrong, (wrong, (tmp_path / "log").read_text()[-3000:])
    assert {r.verdict for r in results if r.check.name != "C2"} == {OK if ranks == 2 else FEW_RANKS}
