import os
import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"

WORDS = {
    "ddp": (2, ["loss after 100 steps: "]),
    "failures": (3, ["rank 0: rank ", "calls all_reduce", "rank 0: barrier #1 misses (2,)", "rank 1: barrier #1 misses (2,)"]),
    "shared_memory": (2, ["torch.ones: ", "mapped: False", "chorus.shared_memory: ", "mapped: True"]),
}


@pytest.mark.parametrize("name", sorted(p.stem for p in EXAMPLES.glob("*.py")))
def test_example(name):
    """Under torchrun, with nothing else: PyTorch finds the backend."""
    ranks, words = WORDS[name]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--rdzv-backend=c10d",
         "--rdzv-endpoint=localhost:0", str(EXAMPLES / f"{name}.py")],
        env=dict(os.environ, OMP_NUM_THREADS="1"), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for word in words:
        assert word in done.stdout, done.stdout
