"""Runs tests in shards: a process for each, which is started anew behind a test that has crashed or hung."""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import IO, Any

from chorus_device.devtests.state import Record

START = 300.0  # seconds until a process must have made its tests
GRACE = 15.0  # seconds after a test's own limit, at which the process ends itself


class Unusable(Exception):
    """A program's tests can't be run at all."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """The options of the processes of tests."""

    device: str
    module: str | None  # whose import registers the device; None leaves that to PyTorch
    without: tuple[str, ...]  # operators that the device is to lack
    seconds: float  # a test's limit
    environment: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Shard:
    """Tests of one program, which one process runs in this order."""

    program: str
    tests: tuple[str, ...]


class Worker:
    """A process that runs tests of a program."""

    def __init__(self, program: str, setting: Setting) -> None:
        self.seconds = setting.seconds
        self.errors: IO[bytes] = tempfile.TemporaryFile()
        options = {
            "program": program, "device": setting.device, "module": setting.module, "without": setting.without,
            "seconds": setting.seconds,
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-m", "chorus_device.devtests.worker", json.dumps(options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env=setting.environment,
        )  # fmt: skip
        self._pending = b""
        answer, late = self._answer(START)
        if answer is None:
            if not late:
                self.process.wait(GRACE)  # it has closed its reports, and writes why it ends
            self.close()
            raise Unusable(f"{program}: " + (f"no tests in {START:g} s" if late else self._last_line()))
        self.tests: list[str] = answer["tests"]

    def _last_line(self) -> str:
        """The error that has ended the process, which warnings may follow."""
        lines = self.output().strip().splitlines()
        found = [line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)]
        return (found or lines or [self.ending()])[-1]

    def _answer(self, seconds: float) -> tuple[Any, bool]:
        """The process's next report, or None if it has ended or is late, and whether it's late."""
        assert self.process.stdout is not None
        until = time.monotonic() + seconds
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                if not ready.select(max(until - time.monotonic(), 0)):
                    return None, True
                data = os.read(self.process.stdout.fileno(), 1 << 20)
                if not data:
                    return None, False
                self._pending += data
        line, self._pending = self._pending.split(b"\n", 1)
        return json.loads(line), False

    def output(self) -> str:
        """The text that the running test has written."""
        self.errors.seek(0)
        return self.errors.read(1 << 16).decode(errors="replace")

    def ending(self) -> str:
        """How the process has ended."""
        code = self.process.wait()
        return signal.Signals(-code).name if code < 0 else f"exit status {code}"

    def run(self, test: str) -> Record | None:
        """A test's record, or None if the process had ended before the test began."""
        assert self.process.stdin is not None
        begin = time.monotonic()
        try:
            self.process.stdin.write(json.dumps(test).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        begins, late = self._answer(self.seconds + GRACE)
        record: Any = None
        if begins is not None:
            record, late = self._answer(self.seconds + GRACE)
        elif not late:
            return None
        if record is not None:
            return {**begins, **record}
        took = time.monotonic() - begin
        self.kill()
        hangs = late or took >= self.seconds
        why = (
            f"TimeoutError: no end in {self.seconds:g} s, so that the process was ended"
            if hangs
            else f"ChildProcessError: the process ended during the test: {self.ending()}"
        )
        output = self.output()
        return {
            **(begins or {}),
            "test": test,
            "status": "error",
            "seconds": round(took, 3),
            "notes": [],
            "said": f"{output}ERROR\n",
            "died": "hang" if hangs else "crash",
            "blocks": [["ERROR", description(test, output), f"{output.split(' ... ', 1)[-1]}{why}\n"]],
        }

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End the process."""
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass


def description(test: str, said: str) -> str:
    """A test as unittest describes it, from the begin of what a test has written."""
    line = said.split(" ... ", 1)[0]
    name = test.rsplit(".", 1)[-1]
    return line if line.startswith(name + " (") and len(line) < 1000 else f"{name} (__main__.{test})"


class Runner:
    """Runs shards in several processes at a time, and gives records as tests end.

    A process runs the same tests in each run, however many run at a time. So the results are the same.
    """

    def __init__(self, setting: Setting, jobs: int) -> None:
        self.setting, self.jobs = setting, jobs
        self._unused: dict[str, Worker] = {}
        self._stopped = threading.Event()
        self._running: set[Worker] = set()
        self._lock = threading.Lock()

    def tests(self, program: str) -> list[str]:
        """The names of all tests of a program for the device, in its order."""
        self._unused[program] = Worker(program, self.setting)
        return self._unused[program].tests

    def run(self, shards: list[Shard]) -> Iterator[tuple[str, Record]]:
        """Records, with their programs. A record may come again, changed."""
        asked: queue.Queue[Shard] = queue.Queue()
        told: queue.Queue[tuple[str, Record] | Exception | None] = queue.Queue()
        for shard in shards:
            asked.put(shard)

        def work() -> None:
            try:
                while not self._stopped.is_set():
                    self._shard(asked.get_nowait(), told)
            except queue.Empty:
                pass
            except Exception as error:
                told.put(error)
            finally:
                told.put(None)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(min(self.jobs, len(shards)))]
        for thread in threads:
            thread.start()
        running = len(threads)
        try:
            while running:
                answer = told.get()
                if answer is None:
                    running -= 1
                elif isinstance(answer, Exception):
                    raise answer
                else:
                    yield answer
        finally:
            self.close()
            for thread in threads:
                thread.join()

    def _worker(self, program: str) -> Worker:
        with self._lock:
            worker = self._unused.pop(program, None)
        worker = worker or Worker(program, self.setting)
        with self._lock:
            self._running.add(worker)
        return worker

    def _shard(self, shard: Shard, told: queue.Queue[Any]) -> None:
        worker: Worker | None = None
        last: Record | None = None  # what this process has run before
        try:
            for test in shard.tests:
                for _ in range(2):
                    if self._stopped.is_set():
                        return
                    if worker is None:
                        worker, last = self._worker(shard.program), None
                    record = worker.run(test)
                    if self._stopped.is_set():
                        return
                    if record is not None:
                        break
                    if last is not None and not last.get("stop"):  # the process ended behind the test that it had run
                        told.put((shard.program, died_after(last, worker.ending())))
                    self._drop(worker)
                    worker = None
                else:
                    raise Unusable(f"{shard.program}: the process ends before {test} begins")
                told.put((shard.program, record))
                last = record
                if record.get("died") or record.get("stop"):
                    self._drop(worker)
                    worker = None
        finally:
            if worker is not None:
                self._drop(worker)

    def _drop(self, worker: Worker) -> None:
        with self._lock:
            self._running.discard(worker)
        worker.close()

    def close(self) -> None:
        """End all processes."""
        self._stopped.set()
        with self._lock:
            workers = [*self._unused.values(), *self._running]
            self._unused.clear()
        for worker in workers:
            worker.kill()


def died_after(record: Record, how: str) -> Record:
    """A test's record, since the process has ended behind it."""
    why = f"ChildProcessError: the process ended after the test: {how}\n"
    name = description(record["test"], record["said"])
    return {**record, "status": "error", "died": "crash", "blocks": [*record["blocks"], ["ERROR", name, why]]}
