"""Checks a device from outside: ``python -m chorus_device.check NAME`` tries every mechanism that PyTorch has for one,
and prints the missing ones.

It's for any device of PyTorch's key PrivateUse1, from any vendor. PyTorch loads it by itself, or importing a module
registers it (``--import MODULE``, without autoload). Checks run in a process of their own, so that a crash or a hang is
one line of the report, and the checks after it still run. The exit status is 1 if something required is missing, that
is, something that PyTorch's own code relies on. Other missing mechanisms are only reported.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

from chorus_device.mechanisms import CHECKS, Check, Subject, Unfit

START = 120.0  # seconds until a process must have started


def work(name: str, module: str | None, numbers: list[int]) -> None:
    """The worker process: runs the checks of these numbers; prints a line of JSON at its start, and one for each."""
    reports = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of checks must not mix with the report
    os.environ.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)  # so that processes of checks load the device by themselves
    if module:
        importlib.import_module(module)
    subject = Subject(name, module)
    print(json.dumps("it begins"), file=reports)
    for number in numbers:
        check = CHECKS[number]
        answer = {"number": number, "status": "ok", "why": ""}
        try:
            check.run(subject)
        except Unfit as why:
            answer.update(status="left out", why=str(why))
        except BaseException as error:
            lines = str(error).strip().splitlines() or [""]
            answer.update(status="missing", why=f"{type(error).__name__}: {lines[0]}"[:300])
        print(json.dumps(answer), file=reports)


def run(
    name: str, module: str | None = None, seconds: float = 120, groups: Iterable[str] = ()
) -> Iterator[tuple[Check, str, str]]:
    """Every check, or those of some groups, with its status ("ok", "missing" or "left out") and the reason."""
    environment = {**os.environ, **({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"} if module else {})}
    command = [sys.executable, "-m", "chorus_device.check", name, *(["--import", module] if module else [])]
    wanted = set(groups)
    left = [i for i, check in enumerate(CHECKS) if not wanted or check.group in wanted]
    while left:
        begun = False
        with tempfile.TemporaryFile() as errors:
            worker = subprocess.Popen(
                [*command, "--numbers", *map(str, left)], env=environment, stdout=subprocess.PIPE, stderr=errors
            )
            try:
                for answer in _answers(worker, seconds):
                    if not begun:
                        begun = True
                        continue
                    left.remove(answer["number"])
                    yield CHECKS[answer["number"]], answer["status"], answer["why"]
            finally:
                hangs = worker.poll() is None
                worker.kill()
                code = worker.wait()
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().splitlines() or [""]
        if not left:
            return
        if not begun and code == 1:
            raise RuntimeError(f"torch.device({name!r}) can't be tried: {said[-1]}")
        ended = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        waited = seconds if begun else max(seconds, START)
        yield (
            CHECKS[left.pop(0)], "missing", f"it hangs: nothing for {waited:g} s" if hangs else f"it crashes: {ended}"
        )  # fmt: skip


def _answers(worker: subprocess.Popen[bytes], seconds: float) -> Iterator[Any]:
    """The reports of a worker, until it ends, or until it's silent for ``seconds`` after its start."""
    assert worker.stdout is not None
    pending = b""
    with selectors.DefaultSelector() as ready:
        ready.register(worker.stdout, selectors.EVENT_READ)
        wait = max(seconds, START)
        while ready.select(wait):
            wait = seconds
            data = os.read(worker.stdout.fileno(), 1 << 16)
            if not data:
                worker.wait(60)
                return
            *lines, pending = (pending + data).split(b"\n")
            yield from map(json.loads, lines)


def report(answers: Iterable[tuple[Check, str, str]]) -> tuple[str, bool]:
    """The text of the report, grouped by mechanism, and whether nothing required is missing."""
    groups: dict[str, list[tuple[Check, str, str]]] = collections.defaultdict(list)
    for answer in answers:
        groups[answer[0].group].append(answer)
    text, whole, passed, all_of_them = [], True, 0, 0
    for group, members in groups.items():
        good = sum(status == "ok" for _, status, _ in members)
        passed, all_of_them = passed + good, all_of_them + len(members)
        text.append(f"  {group:16} {good:2} of {len(members)} passed")
        for check, status, why in members:
            if status == "ok":
                continue
            label = status if status != "missing" else "MISSING" if check.required else "missing, optional"
            whole = whole and not (status == "missing" and check.required)
            text.append(f"      {label}: {check.name}: {why}")
    text.append(
        f"{passed} of {all_of_them}; " + ("all that is required is there" if whole else "something required is MISSING")
    )
    return "\n".join(text), whole


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m chorus_device.check", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("name", help="the type of device")
    parser.add_argument("--import", dest="module", help="the module whose import registers it")
    parser.add_argument("--only", metavar="GROUP", nargs="+", default=[], help="mechanisms, as the report names them")
    parser.add_argument("--numbers", type=int, nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.numbers is not None:
        work(options.name, options.module, options.numbers)
        return 0
    if unknown := set(options.only) - {check.group for check in CHECKS}:
        parser.error(f"there is no group {min(unknown)!r}, but {', '.join({check.group: 0 for check in CHECKS})}")
    try:
        text, whole = report(run(options.name, options.module, groups=options.only))
    except RuntimeError as why:
        print(why, file=sys.stderr)
        return 2
    print(f"torch.device({options.name!r})")
    print(text)
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
