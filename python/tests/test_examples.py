import os
import pathlib
import signal
import subprocess
import sys

import pytest
from jobs import Job, command
from test_hang import explained
from worlds import sample

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"

WORDS = {
    "ddp": (2, ["loss after 100 steps: "]),
    "failures": (
        3,
        ["rank 0: rank ", "calls all_reduce", "rank 0: barrier #1 misses (2,)", "rank 1: barrier #1 misses (2,)"],
    ),
    "from_mpi4py": (3, [
        "rank 0: {'rate': 0.1}, sum 3, mine [0.0, 1.0, 2.0, 3.0], theirs [8.0, 9.0, 10.0, 11.0], 2 in my part",
        "rank 1: {'rate': 0.1}, sum 3, mine [4.0, 5.0, 6.0, 7.0], theirs [0.0, 1.0, 2.0, 3.0], 1 in my part",
    ]),
    "shared_memory": (2, ["torch.ones: ", "mapped: False", "chorus.shared_memory: ", "mapped: True"]),
    "sum": (2, ["rank 0 of 2: the sum of the ranks is 1", "rank 1 of 2: the sum of the ranks is 1"]),
}  # fmt: skip
FAIL = ["hang", "lost"]  # these have tests of their own


@pytest.mark.long
@pytest.mark.parametrize("name", sample(sorted({p.stem for p in EXAMPLES.glob("*.py")} - {*FAIL}), "ddp", "failures"))
def test_example(name):
    """The examples run under torchrun, with nothing else: PyTorch finds the backend."""
    ranks, words = WORDS[name]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--rdzv-backend=c10d",
         "--rdzv-endpoint=localhost:0", str(EXAMPLES / f"{name}.py")],
        env=dict(os.environ, OMP_NUM_THREADS="1"), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for word in words:
        assert word in done.stdout, done.stdout


def test_hang(tmp_path):
    """The output in docs/pytorch-ten-minutes.md."""
    page = (EXAMPLES.parents[1] / "docs" / "pytorch-ten-minutes.md").read_text()
    _, _, shown = page.partition("```text\n1. missing: ")
    shown, _, _ = ("1. missing: " + shown).partition("\n```")
    lines = [line.strip().replace("hang.py", "train.py") for line in shown.splitlines()]
    lines[-1] = lines[-1].rpartition(" for ")[0] + " for T"
    with Job(tmp_path, (EXAMPLES / "hang.py").read_text(), 4) as job:
        explained(job, lines)


@pytest.mark.long
def test_lost():
    done = subprocess.run(
        [command(), "run", "-n", "3", "--may-lose", "1", EXAMPLES / "lost.py"],
        env=dict(os.environ, OMP_NUM_THREADS="1", PYTHON_EXEC=sys.executable), capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for rank in 0, 2:
        assert f"[{rank}]: rank {rank}: rank 1 is gone, in all_reduce #51\n" in done.stdout, done.stdout
    assert f"signal {signal.SIGKILL:d}" in done.stderr or "SIGKILL" in done.stderr or "killed" in done.stderr, (
        done.stderr
    )
