"""The file of a run: what it is, and the record of each test, a line each. From it a run continues."""

from __future__ import annotations

import json
import os
import pathlib
from typing import IO, Any

from chorus._files import read_text

Record = dict[str, Any]


def name_of(record: Record) -> str:
    """A record's test, with its program."""
    return f"{record['program']}.{record['test']}"


class State:
    """The records of a run. ``path`` is the file; that of the run before it is kept beside it, as ``.bak``."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.last = path.with_name(path.name + ".bak")
        self.head: dict[str, Any] = {}
        self.records: dict[str, Record] = {}
        self._file: IO[str] | None = None

    def open(self, head: dict[str, Any], anew: bool) -> bool:
        """Continue the file's run if it's the same one and hasn't ended, or else begin anew. The result says which."""
        known, records, ended = read(self.path)
        continues = bool(known) and known == head and not ended and not anew
        if continues:
            self.records = records
        elif self.path.exists():
            os.replace(self.path, self.last)
        self.head = head
        whole = [head, *self.records.values()]  # without a last line that was cut short
        scratch = self.path.with_name(self.path.name + ".new")
        scratch.write_text("".join(json.dumps(line) + "\n" for line in whole))
        os.replace(scratch, self.path)
        self._file = open(self.path, "a")
        return continues

    def add(self, record: Record) -> None:
        """Keep a test's record. A second one of the same test takes the place of the first."""
        self.records[name_of(record)] = record
        self._write(record)

    def end(self) -> None:
        """All tests have been run: there is nothing to continue."""
        self._write({"ended": True})

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: dict[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def read(path: pathlib.Path) -> tuple[dict[str, Any], dict[str, Record], bool]:
    """A file's head, the records by their tests, and whether the run has ended. Damaged lines are left out."""
    head: dict[str, Any] = {}
    records: dict[str, Record] = {}
    ended = False
    try:
        lines = read_text(path, 1 << 30, "replace").split("\n")
    except FileNotFoundError:
        return {}, {}, False
    for number, text in enumerate(lines):
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if number == 0:
            head = line
        elif "ended" in line:
            ended = True
        elif "test" in line:
            records[name_of(line)] = line
    return head, records, ended
