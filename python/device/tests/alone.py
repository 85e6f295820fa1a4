"""Programs that find PyTorch and some of this repository's distributions, and no other ones of it."""

import importlib.metadata
import os
import pathlib
import subprocess
import sys
import textwrap

import torch

OURS = {"chorus-comms": "chorus", "chorus-device": "chorus_device", "torch-accinte": "torch_accinte"}


def run(program, folder, *distributions, **env):
    """Run a program with these distributions of OURS, and with what is in an empty folder already."""
    site = pathlib.Path(torch.__file__).parent.parent
    found = [p for p in site.iterdir() if not any(w in p.name.lower() for w in ("chorus", "accinte", ".pth", "accl"))]
    for name in distributions:
        metadata = importlib.metadata.distribution(name)
        spec = importlib.util.find_spec(OURS[name])
        found += [metadata._path, pathlib.Path(spec.origin).parent]
    for path in found:
        (folder / path.name).symlink_to(path, target_is_directory=path.is_dir())
    program = f"import sys; sys.path.append({str(folder)!r})\n" + textwrap.dedent(program)
    env = {**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, **env}
    return subprocess.run(
        [sys.executable, "-S", "-c", program], capture_output=True, text=True, timeout=240, cwd=folder, env=env
    )
