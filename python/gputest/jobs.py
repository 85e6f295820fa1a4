"""Rank processes: their start, their reports, and their end."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from typing import IO, Any

from gputest.check import FAILED, FEW_RANKS, HANGS, LEFT_OUT, OK, Check, Result

START = 180.0  # seconds to load PyTorch, and to make a group
GRACE = 5.0  # seconds for other ranks when one has failed


class Hang(Exception):
    """Ranks have not answered in time."""


class Job:
    """``size`` ranks, each a process of a command with environment variables. Their output goes to a log."""

    def __init__(self, command: list[str], size: int, gpus: int, log: IO[str], environment: dict[str, str]) -> None:
        self.environment, self.log = environment, log
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.processes: list[subprocess.Popen[str]] = []
        self.reports: list[IO[str]] = []
        for rank in range(size):
            readable, writable = os.pipe()
            variables = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size,
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GPU": rank % gpus, "REPORTS": writable,
                **environment}  # fmt: skip
            process = subprocess.Popen(
                command, env={**os.environ, **{k: str(v) for k, v in variables.items()}}, text=True,
                stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, pass_fds=[writable],
                start_new_session=True,
            )  # fmt: skip
            os.close(writable)
            self.processes.append(process)
            self.reports.append(os.fdopen(readable))

    def answers(self, seconds: float) -> list[dict[str, Any]]:
        """The next report of each rank. After one has failed, the others have GRACE seconds left. Raises Hang."""
        until, found = time.monotonic() + seconds, dict[int, dict[str, Any]]()
        while waiting := [r for r in range(len(self.reports)) if r not in found]:
            ready, _, _ = select.select([self.reports[r] for r in waiting], [], [], max(until - time.monotonic(), 0))
            if not ready and any(not f["ok"] for f in found.values()):
                break
            if not ready:
                raise Hang(f"no answer within {seconds:g} s: " + "; ".join(self._innermost(r) for r in waiting))
            for rank in [r for r in waiting if self.reports[r] in ready]:
                line = self.reports[rank].readline()
                found[rank] = json.loads(line) if line else {"ok": False, "came": self._ended(rank)}
                if not found[rank]["ok"]:
                    until = min(until, time.monotonic() + GRACE)
        return [found.get(r, {"ok": False, "came": ""}) for r in range(len(self.reports))]

    def tell(self, name: str) -> None:
        """Make the ranks begin a check."""
        for process in self.processes:
            assert process.stdin is not None
            try:
                process.stdin.write(name + "\n")
                process.stdin.flush()
            except BrokenPipeError:  # it has ended, as its report says
                pass

    def ends(self, seconds: float) -> list[dict[str, Any]]:
        """Wait for the ranks' own exit, and return reports of it. Raises Hang."""
        until = time.monotonic() + seconds
        for rank, process in enumerate(self.processes):
            try:
                process.wait(max(until - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                raise Hang(f"the process did not end within {seconds:g} s: {self._innermost(rank)}") from None
        codes = [p.returncode for p in self.processes]
        return [{"ok": c == 0, "came": "the process ended" if c == 0 else _status(c)} for c in codes]

    def kill(self) -> None:
        """Kill all processes of the ranks."""
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        for process, reports in zip(self.processes, self.reports):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                print(f"process {process.pid} is in its driver, and can't be ended", file=self.log, flush=True)
            assert process.stdin is not None
            try:
                process.stdin.close()
            except BrokenPipeError:
                pass
            reports.close()

    def _ended(self, rank: int) -> str:
        try:
            return _status(self.processes[rank].wait(GRACE))
        except subprocess.TimeoutExpired:
            return "the rank closed its pipe"

    def _innermost(self, rank: int) -> str:
        """The rank, and its innermost call."""
        begin = self._size()
        self.processes[rank].send_signal(signal.SIGUSR2)
        until = time.monotonic() + 1
        while time.monotonic() < until:
            with open(self.log.name) as log:
                log.seek(begin)
                if m := re.search(r'Current thread .*\n  File "([^"]*)", line (\d+) in (\S+)', log.read()):
                    return f"rank {rank} is in {m[3]}, {os.path.basename(m[1])}:{m[2]}"
            time.sleep(0.02)
        return f"rank {rank} does not say where it is"

    def _size(self) -> int:
        self.log.flush()
        return os.stat(self.log.name).st_size


def _status(code: int) -> str:
    return f"the process was ended by {signal.Signals(-code).name}" if code < 0 else f"the process exited with {code}"


def run(
    checks: Iterable[Check], command: list[str], size: int, gpus: int, log: IO[str], start: float = START
) -> Iterator[Result]:
    """Run checks in sequence, on ranks of a command. Ranks that have failed, or hang, are replaced for the next check.
    If the ranks can't start two times in a row, the remaining checks are skipped."""
    job: Job | None = None
    failures, why = 0, ""
    try:
        for check in checks:
            if failures == 2:
                yield Result(check, why, LEFT_OUT)
                continue
            print(f"\n==== {check.name}: {check.title}", file=log, flush=True)
            answers: list[dict[str, Any]] = []
            begun = False
            try:
                if job is not None and job.environment != check.environment:
                    job.kill()
                    job = None
                if job is None:
                    job = Job(command, size, gpus, log, check.environment)
                    answers = job.answers(start)
                begun = all(a["ok"] for a in answers)
                if begun:
                    job.tell(check.name)
                    answers = job.answers(check.seconds)
                    if check.ends and all(a["ok"] for a in answers):
                        came = answers[0]["came"]
                        answers = job.ends(check.seconds)
                        answers[0]["came"] = f"{came}; {answers[0]['came']}"
                result = _result(check, answers, size, "" if begun else "the ranks do not begin: ")
            except Hang as hang:
                result = Result(check, ("" if begun else "the ranks do not begin: ") + str(hang), HANGS)
            failures, why = (0, "") if begun else (failures + 1, result.came)
            if (result.bad or check.ends) and job is not None:
                job.kill()
                job = None
            yield result
    finally:
        if job is not None:
            job.kill()


def _result(check: Check, answers: list[dict[str, Any]], size: int, prefix: str) -> Result:
    bad = [f"rank {r}: {a['came']}" for r, a in enumerate(answers) if not a["ok"] and a["came"]]
    if bad:
        return Result(check, prefix + "; ".join(bad), FAILED)
    return Result(check, answers[0]["came"], OK if size >= check.ranks else FEW_RANKS)
