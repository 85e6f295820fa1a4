"""A rank's GPU in PyTorch."""

from __future__ import annotations

import functools
import shutil
import subprocess
from typing import Any

import torch


class Gpu:
    """``torch.device("cuda", index)``, which may be HIP's, and ``torch.cuda``."""

    module: Any = torch.cuda

    def __init__(self, index: int) -> None:
        self.device = torch.device("cuda", index)

    def free(self) -> int:
        """The free bytes of its memory."""
        return int(torch.cuda.mem_get_info(self.device)[0])

    def sleep(self, seconds: float) -> None:
        """Keep the current stream busy for so long."""
        torch.cuda._sleep(int(seconds * self._cycles))

    @functools.cached_property
    def _cycles(self) -> float:
        """Cycles per second, measured with its clock."""
        begin, end, cycles = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True), 10_000_000
        torch.cuda._sleep(1000)
        begin.record()
        torch.cuda._sleep(cycles)
        end.record()
        end.synchronize()
        return cycles / (begin.elapsed_time(end) / 1000)


def used() -> list[int]:
    """MiB in use on each NVIDIA GPU of the machine, read without using a GPU; empty if that can't be read."""
    if shutil.which("nvidia-smi") is None:
        return []
    said = subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True
    )
    words = said.stdout.split()
    return [int(word) for word in words] if said.returncode == 0 and all(w.isdigit() for w in words) else []
