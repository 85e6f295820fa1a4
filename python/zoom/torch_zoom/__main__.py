"""Runs a program, and says what it did on torch.device("zoom"): ``python -m torch_zoom PROGRAM [ARGUMENTS]``. Without a
program it says which devices there are.

``python -m torch_zoom --warm PROGRAM [ARGUMENTS]`` runs the program twice, and leaves its kernels in the cache. The
first run, whose output isn't shown, compiles them on all cores; meanwhile PyTorch's CPU kernels compute. The second run
is the program's own."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys

import chorus_device

import torch_zoom as zoom


def devices() -> str:
    """A line for each device: its name, the library that drives it, and its memory."""
    lines = []
    for i in range(zoom.device_count()):
        of = zoom.get_device_properties(i)
        lines.append(f"zoom:{i}     {of.name}, by {of.library}, {of.total_memory / 2**30:.1f} GiB")
    return "\n".join(lines)


def report() -> str:
    """The work of this process on the devices."""
    lines = [devices()]
    lines.append(f"memory     {zoom.max_memory_allocated() / 2**20:.1f} MiB at most")
    calls = chorus_device.operators()
    native = [n.native for n in calls.values() if n.native]
    lines.append(f"native     {sum(native)} calls of {len(native)} operators ran kernels of the device")
    for i in range(zoom.device_count() if native else 0):
        of = chorus_device.kernels(i)
        lines.append(f"kernels    {of['compiled']} compiled, {of['from_disk']} read from the cache, on zoom:{i}")
    counts = zoom.fallback_counts()
    lines.append(f"fallbacks  {sum(counts.values())} calls of {len(counts)} operators ran PyTorch's CPU kernels")
    lines.extend(f"           {n:8} {name}" for name, n in counts.items())
    if staged := sum(zoom.staged_bytes(i) for i in range(zoom.device_count())):
        lines.append(f"           {staged / 2**20:.1f} MiB were copied for them")
    return "\n".join(lines)


AHEAD = "CHORUS_KERNEL_AHEAD"  # lets kernels be compiled beside the program


def run(arguments: list[str]) -> None:
    """Run a program as ``python`` does, and print the report also if it ends by ``sys.exit``."""
    sys.argv = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit:
        print(report())
        raise
    finally:
        if os.environ.get(AHEAD):
            for i in range(zoom.device_count()):
                zoom.synchronize(i)  # which waits for kernels that are being compiled
    print(report())


def warm(arguments: list[str]) -> None:
    """Compile the kernels that a program needs in a run of its own."""
    first = subprocess.run(
        [sys.executable, "-m", "torch_zoom", *arguments], env={**os.environ, AHEAD: "1"}, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    if first.returncode:
        print(f"torch_zoom --warm: the first run has ended with status {first.returncode}", file=sys.stderr)


def main() -> int:
    arguments = sys.argv[1:]
    first = arguments[:1] == ["--warm"]
    if first:
        del arguments[0]
    if first and not arguments or arguments and arguments[0].startswith("-"):
        print("usage: python -m torch_zoom [[--warm] PROGRAM [ARGUMENTS]]", file=sys.stderr)
        return 2
    if not zoom.is_available():
        try:
            zoom.init()
        except RuntimeError as why:
            print(str(why).splitlines()[0], file=sys.stderr)
        return 1
    if not arguments:
        print(devices())
        return 0
    if first:
        warm(arguments)
    run(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
