"""Run all checks, or the named ones, and write the page."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator

from gputest import page
from gputest.check import Check, Result
from gputest.jobs import run

# The devices of "zoom", in a process of its own; where it can't be used, the last line says why.
ZOOM = "import torch, torch_zoom; torch.zoom.init(); print(torch.zoom.device_count())"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gputest", description=__doc__)
    parser.add_argument("checks", nargs="*", help="names of checks, such as C3; all without")
    parser.add_argument("--page", default="gpu-test.md", help="the file for the page (%(default)s)")
    parser.add_argument("--log", default="gpu-test.log", help="the file for all that ranks print (%(default)s)")
    parser.add_argument("--go", help="the output of `go test -v`, whose verdicts are to be on the page")
    parser.add_argument("--doctor", help="the output of `chorus doctor --json`, for the libraries at the page's top")
    parser.add_argument("--ranks", type=int, help="how many; 2 where two GPUs or NCCL_MULTI_RANK_GPU_ENABLE allow")
    parser.add_argument("--fact", action="append", default=[], help="NAME=TEXT, for the top of the page")
    options = parser.parse_args()
    known = {c.name for module in ("gputest.checks", "gputest.zoom") for c in checks_of(module)}
    if known and (unknown := set(options.checks) - known):
        sys.exit(f"gputest: there is no check {', '.join(sorted(unknown))}")
    open(options.log, "w").close()
    facts = dict(fact.partition("=")[::2] for fact in options.fact)
    if options.doctor:
        facts |= page.libraries_of(json.load(open(options.doctor)))
    groups, zoom = of_groups(options, facts), of_zoom(options)
    suites = page.suites_of(open(options.go).read()) if options.go else []
    with open(options.page, "w") as file:
        file.write(page.page(facts, groups, zoom, suites))
    print(f"done; the page is {options.page}")
    failed = any(isinstance(r, list) and any(x.bad for x in r) for r in (groups, zoom))
    return 1 if failed or any(verdict == "FAIL" for _, verdict, _ in suites) else 0


def of_groups(options: argparse.Namespace, facts: dict[str, str]) -> list[Result] | str:
    """The results of process groups, or why there are none. Adds facts of PyTorch and its GPUs."""
    said = subprocess.run([sys.executable, "-m", "gputest.facts"], capture_output=True, text=True)
    if said.returncode != 0:
        why = said.stderr.strip().splitlines()
        return f"{sys.executable} has no PyTorch that works: {why[-1] if why else said.returncode}"
    facts |= json.loads(said.stdout.splitlines()[-1])
    gpus = int(facts.pop("gpus"))
    if gpus == 0:
        return f"PyTorch {facts['PyTorch']} sees no GPU"
    several = gpus > 1 or os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"
    ranks = options.ranks or (2 if several else 1)
    facts["ranks"] = str(ranks)
    return list(carried_out(options, "gputest.checks", "gputest.rank", ranks, gpus))


def of_zoom(options: argparse.Namespace) -> list[Result] | str:
    """The results of the device "zoom", or why there are none."""
    environment = {**os.environ, "CHORUS_TORCH_DEVICE": "zoom"}
    said = subprocess.run([sys.executable, "-c", ZOOM], capture_output=True, text=True, env=environment)
    if said.returncode != 0:
        return (said.stderr.strip().splitlines() or [f"a process that uses it exited with {said.returncode}"])[-1]
    gpus = int(said.stdout.split()[-1])
    return list(carried_out(options, "gputest.zoom", "gputest.zoom", options.ranks or min(gpus, 2), gpus))


def carried_out(options: argparse.Namespace, module: str, program: str, ranks: int, gpus: int) -> Iterator[Result]:
    """The results of a module's checks, each printed at once. ``program`` is that of a rank."""
    checks = [c for c in checks_of(module) if not options.checks or c.name in options.checks]
    with open(options.log, "a") as log:
        for result in run(checks, [sys.executable, "-m", program], ranks, gpus, log):
            print(f"{result.check.name}: {result.verdict}: {result.came}", flush=True)
            yield result


def checks_of(module: str) -> list[Check]:
    """The checks of a module, which imports PyTorch; none where there's no PyTorch."""
    try:
        found: list[Check] = importlib.import_module(module).CHECKS
    except ImportError:
        return []
    return found


if __name__ == "__main__":
    sys.exit(main())
