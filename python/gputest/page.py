"""The page that `make gpu-test` writes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from gputest.check import Result


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table of Markdown, with each cell on one line."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join("| " + " | ".join(_cell(c) for c in line) + " |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split())[:600].replace("|", "\\|").replace("<", "&lt;")


def page(
    facts: dict[str, str],
    groups: list[Result] | str,
    zoom: list[Result] | str,
    suites: list[tuple[str, str, str]],
) -> str:
    """The whole page. A text in the place of results says why there are none."""
    results = [r for part in (groups, zoom) if isinstance(part, list) for r in part]
    bad = [r.check.name for r in results if r.bad] + [name for name, verdict, _ in suites if verdict == "FAIL"]
    text = "# Chorus on GPUs\n\n" + table(("what", "which"), facts.items()) + "\n"
    text += f"To be mended: {', '.join(bad)}.\n" if bad else "Nothing of what ran is to be mended.\n"
    text += "\n## Process groups of PyTorch\n\n" + _verdicts(groups)
    text += '\n## torch.device("zoom")\n\n' + _verdicts(zoom)
    if suites:
        text += "\n## Drivers and communicators, from Go\n\n" + table(("test", "verdict", "what"), suites)
    return text


def _verdicts(results: list[Result] | str) -> str:
    if isinstance(results, str):
        return f"Left out: {results}.\n"
    rows = ((r.check.name, r.check.title, r.check.expected, r.came, r.verdict) for r in results)
    return table(("check", "what", "expected", "came", "verdict"), rows)


def libraries_of(doctor: dict[str, Any]) -> dict[str, str]:
    """The vendors' libraries in the output of `chorus doctor --json`."""
    return {
        library.get("backend") or library["device"]: " ".join(
            library[key] for key in ("version", "path", "error") if library.get(key)
        )
        for library in [*doctor["libraries"], *doctor["drivers"]]
    }


def suites_of(output: str) -> list[tuple[str, str, str]]:
    """The tests in the output of `go test -v`: names, verdicts, and their failed parts or why they were skipped."""
    found: dict[str, list[str]] = {}
    verdicts: dict[str, str] = {}
    latest = ""
    for line in output.splitlines():
        if m := re.match(r"=== (?:RUN|CONT|NAME) +(\S+)", line):
            latest = m[1].partition("/")[0]
        elif m := re.match(r" *--- (PASS|FAIL|SKIP): (\S+)", line):
            top, _, part = m[2].partition("/")
            if not part:
                verdicts[top] = m[1]
            elif m[1] == "FAIL":
                found.setdefault(top, []).append(f"{part} failed")
        elif m := re.search(r"_test\.go:\d+: (left out: .*)", line):
            found.setdefault(latest, []).append(m[1])
        elif line.startswith(("panic: ", "fatal error: ")):
            verdicts.setdefault(latest or "the tests", "FAIL")
            found.setdefault(latest or "the tests", []).append(line)
    return [(name, verdict, "; ".join(dict.fromkeys(found.get(name, [])))) for name, verdict in verdicts.items()]
