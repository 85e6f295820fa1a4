"""The machine: GPUs, drivers and libraries, as reported by PyTorch and the vendor's tool. It runs in a process of its
own, as it starts the driver."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess

import torch


def facts() -> dict[str, str]:
    """The facts for the top of the page; "gpus" is the number that PyTorch sees."""
    count = torch.cuda.device_count()
    found = {"gpus": str(count), "PyTorch": torch.__version__, "Python": platform.python_version()}
    cards = [torch.cuda.get_device_properties(i) for i in range(count)]
    if cards:
        found["card"] = "; ".join(f"{c.name}, {c.total_memory >> 20} MiB, {c.major}.{c.minor}" for c in cards)
    found["runtime"] = f"HIP {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
    if shutil.which("nvidia-smi"):
        said = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True
        )
        found["driver"] = ", ".join(sorted(set(said.stdout.split())))
    if count and torch.distributed.is_nccl_available():
        found["PyTorch's NCCL or RCCL"] = ".".join(map(str, torch.cuda.nccl.version()))
    found["system"] = f"{platform.system()} {platform.release()} {platform.machine()}"
    return found


if __name__ == "__main__":
    print(json.dumps(facts()))
