"""Runs PyTorch's tests for all types of device, OpInfo among them, on a device of its key PrivateUse1.

It's for any device, by its name. PyTorch loads it by itself, or importing a module registers it (--import). Tests are
those of programs in PyTorch's form: the ones of this package, which need PyTorch's wheel only, or PyTorch's own, from
a checkout (--pytorch). They run in shards, a process each; a test that crashes or hangs is one error of the report. A
run that was stopped continues when it's started again. The logs test.log, NAME_unimplemented_operators.log and
NAME_test_errors.log and the page NAME_tests.html are written to the current folder. The logs of the run before are
kept as *.bak.

The exit status is 0 if all tests pass, 1 if some fail, 2 if tests can't be run, 3 if the time of --limit is over,
and 130 after an interrupt.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import fnmatch
import hashlib
import json
import math
import os
import pathlib
import re
import shutil
import signal
import sys
import time
from collections import Counter
from typing import Any, TextIO

from chorus_device import _plug
from chorus_device.devtests import logs, opinfo, page, table
from chorus_device.devtests.shards import Runner, Setting, Shard, Unusable
from chorus_device.devtests.state import Record, State, read

HERE = pathlib.Path(__file__).resolve().parent
USUAL = ["test_torch", "test_ops"]
SHARD = 1000  # tests of a shard at most
BESIDE = "cpu,cuda,mps,xpu,hpu"  # types of device whose tests PyTorch would make as well


class Wrong(Exception):
    """The command can't be carried out."""


def programs(names: list[str], checkout: str | None) -> dict[str, str]:
    """The test programs, by their names: paths, or names of PyTorch's programs in a checkout or in this package."""
    found: dict[str, str] = {}
    for name in names:
        folder = pathlib.Path(checkout) / "test" if checkout else HERE / "programs"
        path = pathlib.Path(name) if name.endswith(".py") else folder / f"{name}.py"
        if not path.is_file():
            raise Wrong(f"there is no test program {path}")
        if path.stem in found:
            raise Wrong(f"two test programs have the name {path.stem}")
        found[path.stem] = str(path.resolve())
    return found


def environment(options: argparse.Namespace) -> dict[str, str]:
    """The environment of the processes of tests."""
    env = dict(os.environ)
    if "TORCH_TEST_DEVICES" not in env:
        env["TORCH_TEST_DEVICES"] = str(HERE / "pytorch_test_base.py")
    if not any(f"PYTORCH_TESTING_DEVICE_{how}_FOR" in env for how in ("ONLY", "EXCEPT")):
        env["PYTORCH_TESTING_DEVICE_EXCEPT_FOR"] = BESIDE
    env.setdefault("OMP_NUM_THREADS", "1")
    env["PYTHONHASHSEED"] = "0"  # samples that are in the order of a set
    env["PYTHONUNBUFFERED"] = "1"
    env[opinfo.SAMPLES] = str(options.samples)
    if options.module:
        env["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    elif any(options.device in group for group in _plug.installed()):
        env.setdefault(_plug.VARIABLE, options.device)  # of several
    return env


def chosen(tests: list[tuple[str, str]], patterns: list[str], shard: str | None) -> list[tuple[str, str]]:
    """Tests, with their programs, whose names match a pattern of unittest's option -k, and one part of N of them."""
    globs = [p if "*" in p else f"*{p}*" for p in patterns]
    if globs:
        tests = [t for t in tests if any(fnmatch.fnmatchcase(f"__main__.{t[1]}", glob) for glob in globs)]
    if shard:
        known = re.fullmatch(r"(\d+)/(\d+)", shard)
        i, n = map(int, known.groups()) if known else (0, 0)
        if not 1 <= i <= n:
            raise Wrong(f"--shard {shard}: expected I/N, such as 1/4")
        tests = tests[i - 1 :: n]
    return tests


def split(tests: list[tuple[str, str]], paths: dict[str, str]) -> list[Shard]:
    """The shards of tests, which are the same however many run at a time."""
    shards = []
    for program, path in paths.items():
        own = [t for p, t in tests if p == program]
        n = max(math.ceil(len(own) / SHARD), min(4, math.ceil(len(own) / 100)))
        size = math.ceil(len(own) / n) if n else 1
        shards += [Shard(path, tuple(own[i : i + size])) for i in range(0, len(own), size)]
    return shards


class Progress:
    """The progress bar: on a terminal it's one line that changes, or else a line for each tenth of the tests."""

    def __init__(self, total: int, done: int, stream: TextIO) -> None:
        self.total, self.done, self.stream, self.begin = total, done, stream, time.monotonic()
        self.first = done
        self.bad = 0
        self.terminal = stream.isatty()

    def step(self, record: Record) -> None:
        tenth = 10 * self.done // max(self.total, 1)
        self.done += 1
        self.bad += record["status"] not in page.GOOD
        if self.terminal or 10 * self.done // self.total > tenth:
            self.show()

    def show(self) -> None:
        took = time.monotonic() - self.begin
        more = (self.total - self.done) * took / max(self.done - self.first, 1)
        width = 30 * self.done // max(self.total, 1)
        line = f"[{'#' * width:30}] {self.done} of {self.total} tests, {self.bad} fail, {more:.0f} s to go"
        text = f"\r{line:79}" if self.terminal else f"{line}\n"
        print(text, end="", file=self.stream, flush=True)

    def end(self) -> None:
        if self.terminal:
            print(file=self.stream)


def write(
    folder: pathlib.Path, device: str, tests: list[tuple[str, str]], state: State, title: str, note: Any
) -> tuple[dict[str, Record], list[tuple[str, str]]]:
    """Write the logs and the page of a run. The result is the records in the order of the tests, and the missing
    ones."""
    records = {f"{p}.{t}": state.records[f"{p}.{t}"] for p, t in tests if f"{p}.{t}" in state.records}
    missing = [t for t in tests if ".".join(t) not in records]
    of = {p: [r for r in records.values() if r["program"] == p] for p in dict.fromkeys(p for p, _ in tests)}
    text = "".join(logs.verbose(own) for own in of.values() if own)
    lacking, errors = f"{device}_unimplemented_operators.log", f"{device}_test_errors.log"
    (folder / "test.log").write_text(text, errors="surrogateescape")
    (folder / lacking).write_text(logs.unimplemented(text, device))
    note(f"A list of unimplemented operators has been saved to {folder / lacking}")
    (folder / errors).write_text(logs.errors(text))
    note(f"A list of test errors has been saved to {folder / errors}")
    note(f"Test logs have been saved to {folder / 'test.log'}")
    _, last, _ = read(state.last)
    (folder / f"{device}_tests.html").write_text(page.html(device, title, records, last, len(missing)))
    note(f"A page about them has been saved to {folder / f'{device}_tests.html'}")
    return records, missing


def parsed() -> argparse.Namespace:
    doc = (__doc__ or "").split("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m chorus_device.devtests", description=doc[0], epilog=doc[2].replace("\n", " ")
    )
    add = parser.add_argument
    add("device", help="the type of device")
    add("--import", dest="module", metavar="MODULE", help="the module whose import registers it")
    add("--pytorch", metavar="DIR", help="a checkout of PyTorch, of the installed version, whose tests to run")
    add("--programs", nargs="+", default=USUAL, metavar="NAME", help="test programs: names or files")
    add("-k", dest="patterns", action="append", default=[], metavar="PATTERN", help="tests whose names match")
    add("--shard", metavar="I/N", help="the I-th of N parts of the tests")
    add("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes at a time")
    add("--timeout", type=float, default=300, metavar="SECONDS", help="the limit of a test")
    add("--limit", type=float, metavar="SECONDS", help="stop after this time; the next run continues")
    add("--samples", type=int, default=opinfo.USUAL_SAMPLES, help="samples of an operator and type; 0 for all")
    add("--without", action="append", default=[], metavar="OPERATOR", help="have the device lack it: sin.out")
    add("--fresh", action="store_true", help="begin anew, where a run was stopped")
    add("--out", default=".", metavar="DIR", help="the folder of the logs")
    add("--table", metavar="PAGE", help="write the table of operators and types, in Markdown")
    add("--on", metavar="PLACE", help="write into that page a section about the device on a place of this name")
    add("--list", action="store_true", help="print the names of the tests, and run none")
    options = parser.parse_args()
    if options.on is not None:
        if options.table is None:
            parser.error("--on is for the page of --table, which isn't given")
        target = pathlib.Path(options.table)
        if not target.is_file() or table.EVERY not in target.read_text().splitlines():
            parser.error(f"--on: {target} isn't a page that --table has written before")
    return options


def head(
    options: argparse.Namespace, version: str, paths: dict[str, str], tests: list[tuple[str, str]]
) -> dict[str, Any]:
    """The facts by which a run is known. Only one with the same ones continues it."""
    return {
        "device": options.device, "torch": version, "without": options.without, "samples": options.samples,
        "timeout": options.timeout, "on": options.on,
        "driver": os.environ.get(f"CHORUS_{options.device.upper()}_DRIVER", ""),
        "programs": [[p, hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()] for p, path in paths.items()],
        "tests": hashlib.sha256(json.dumps(tests).encode()).hexdigest(),
    }  # fmt: skip


def run(options: argparse.Namespace, runner: Runner) -> int:
    import torch

    paths = programs(options.programs, options.pytorch)
    with concurrent.futures.ThreadPoolExecutor(max(options.jobs, 1)) as pool:
        listed = dict(zip(paths, pool.map(runner.tests, paths.values())))
    tests = chosen([(p, t) for p in paths for t in listed[p]], options.patterns, options.shard)
    if not tests:
        raise Wrong("no test matches")
    if options.list:
        print("\n".join(".".join(t) for t in tests))
        return 0
    folder = pathlib.Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    state = State(folder / f"{options.device}_tests.jsonl")
    if state.open(head(options, torch.__version__, paths, tests), options.fresh):
        print(f"continuing: {len(state.records)} of {len(tests)} tests have been run", file=sys.stderr)
    else:
        for name in ("test.log", f"{options.device}_unimplemented_operators.log", f"{options.device}_test_errors.log"):
            if (folder / name).exists():
                shutil.copyfile(folder / name, folder / f"{name}.bak")
    progress = Progress(len(tests), len(state.records), sys.stderr)
    stems = {path: p for p, path in paths.items()}
    shards = [
        Shard(s.program, tuple(t for t in s.tests if f"{stems[s.program]}.{t}" not in state.records))
        for s in split(tests, paths)
    ]
    until = time.monotonic() + options.limit if options.limit else math.inf
    status = 0
    try:
        for path, record in runner.run([s for s in shards if s.tests]):
            again = f"{stems[path]}.{record['test']}" in state.records
            state.add({**record, "program": stems[path]})
            if not again:
                progress.step(record)
            if time.monotonic() >= until and progress.done < len(tests):
                status = 3
                break
        else:
            state.end()
    except KeyboardInterrupt:
        status = 130
    finally:
        progress.end()
        runner.close()
        state.close()
    of = Counter(p for p, _ in tests)
    title = f"PyTorch {torch.__version__}; " + ", ".join(f"{of[p]} of {p}" for p in paths)
    records, missing = write(folder, options.device, tests, state, title, print)
    if options.table:
        target = pathlib.Path(options.table)
        found = table.pairs(records.values())
        version, ran = torch.__version__.split("+")[0], table.kernels(records.values())
        if options.on:
            text = table.with_section(target.read_text(), options.on, found)
        else:
            text = table.page(options.device, version, found, options.table, ran)
            text = table.with_sections_of(target.read_text() if target.exists() else "", text)
        target.write_text(text)
        print(f"The table of operators has been saved to {target}")
    count = Counter(r["status"] for r in records.values())
    told = {"ok": "passed", "fail": "failed", "error": "errors", "skip": "skipped", "xfail": "expected failures"}
    told["xpass"] = "unexpected successes"
    print(", ".join(f"{count[key]} {name}" for key, name in told.items() if count[key]))
    if leaves := sum(bool(r.get("left")) for r in records.values()):
        print(f"{leaves} tests leave memory of the device behind")
    if missing:
        print(f"{len(missing)} tests have not been run: the same command continues")
    return status or int(bool(page.failed(records)))


def main() -> int:
    options = parsed()
    for ends in (signal.SIGINT, signal.SIGTERM):  # which a shell may have set aside
        signal.signal(ends, signal.default_int_handler)
    setting = Setting(options.device, options.module, tuple(options.without), options.timeout, environment(options))
    runner = Runner(setting, max(options.jobs, 1))
    try:
        return run(options, runner)
    except (Wrong, Unusable) as why:
        print(why, file=sys.stderr)
        return 2
    finally:
        runner.close()


if __name__ == "__main__":
    sys.exit(main())
