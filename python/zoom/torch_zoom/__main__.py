"""Runs a program, and says what it did on torch.device("zoom"): ``python -m torch_zoom PROGRAM [ARGUMENTS]``. Without a
program it says which devices there are."""

from __future__ import annotations

import runpy
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


def main() -> int:
    if not zoom.is_available():
        try:
            zoom.init()
        except RuntimeError as why:
            print(str(why).splitlines()[0], file=sys.stderr)
        return 1
    if len(sys.argv) < 2:
        print(devices())
        return 0
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
    print(report())
    return 0


if __name__ == "__main__":
    sys.exit(main())
