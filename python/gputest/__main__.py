"""Run all checks, or the named ones, and write the page."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

from gputest import page
from gputest.check import Result
from gputest.jobs import run


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
    facts = dict(fact.partition("=")[::2] for fact in options.fact)
    if options.doctor:
        facts |= page.libraries_of(json.load(open(options.doctor)))
    results: list[Result] = []
    left_out = ""
    said = subprocess.run([sys.executable, "-m", "gputest.facts"], capture_output=True, text=True)
    if said.returncode != 0:
        why = said.stderr.strip().splitlines()
        left_out = f"{sys.executable} has no PyTorch that works: {why[-1] if why else said.returncode}"
    else:
        facts |= json.loads(said.stdout.splitlines()[-1])
        gpus = int(facts.pop("gpus"))
        if gpus == 0:
            left_out = f"PyTorch {facts['PyTorch']} sees no GPU"
    if not left_out:
        several = gpus > 1 or os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"
        ranks = options.ranks or (2 if several else 1)
        facts["ranks"] = str(ranks)
        results = list(carried_out(options, ranks, gpus))
    suites = page.suites_of(open(options.go).read()) if options.go else []
    with open(options.page, "w") as file:
        file.write(page.page(facts, results, suites, left_out))
    print(f"{left_out or 'done'}; the page is {options.page}")
    return 1 if any(r.bad for r in results) or any(verdict == "FAIL" for _, verdict, _ in suites) else 0


def carried_out(options: argparse.Namespace, ranks: int, gpus: int) -> list[Result]:
    """The results of the checks, each printed at once."""
    from gputest.checks import CHECKS

    results = []
    unknown = set(options.checks) - {check.name for check in CHECKS}
    if unknown:
        sys.exit(f"gputest: there is no check {', '.join(sorted(unknown))}")
    chosen = [c for c in CHECKS if not options.checks or c.name in options.checks]
    with open(options.log, "w") as log:
        for result in run(chosen, [sys.executable, "-m", "gputest.rank"], ranks, gpus, log):
            print(f"{result.check.name}: {result.verdict}: {result.came}", flush=True)
            results.append(result)
    return results


if __name__ == "__main__":
    sys.exit(main())
