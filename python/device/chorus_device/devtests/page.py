"""The run as one page of HTML: what the device lacks, what fails and why, and what differs from the run before it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from html import escape

from chorus_device.devtests import logs
from chorus_device.devtests.state import Record

GOOD = ("ok", "skip", "xfail")
STYLE = """
:root {
    color-scheme: light dark;
    --ground: #fff; --ink: #222; --line: #ddd; --quoted: #f6f6f6; --worse: #b00020; --better: #00703c
}
@media (prefers-color-scheme: dark) {
    :root { --ground: #0d1117; --ink: #e6edf3; --line: #30363d; --quoted: #1c222b; --worse: #ff8f85; --better: #6fcf7c }
}
body { color: var(--ink); background: var(--ground); overflow-wrap: anywhere }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em }
table { border-collapse: collapse; margin: .6em 0 1.6em }
td, th { padding: .2em .8em; border-bottom: 1px solid var(--line) }
th, td.n { overflow-wrap: normal } th { text-align: left }
td.n { text-align: right; font-variant-numeric: tabular-nums }
code, pre { font: 13px/1.4 ui-monospace, monospace }
pre { background: var(--quoted); padding: .8em; overflow-x: auto }
.worse { color: var(--worse) } .better { color: var(--better) } summary { cursor: pointer }
"""


def reason(record: Record) -> str:
    """Why a test fails: the error's line, with numbers left out, so that like failures have one text."""
    if record["status"] == "xpass":
        return "unexpected success"
    for _, _, text in record["blocks"]:
        lines = re.findall(r"^[\w.]*(?:Error|Exception|Exit|Interrupt|Warning|Differ)\b.*$", text, re.MULTILINE)
        line = lines[-1] if lines else (text.strip().splitlines() or ["no error"])[-1]
        return re.sub(r"0x[0-9a-fA-F]+|\b\d+(\.\d+)?(e[-+]?\d+)?\b", "N", line)[:200]
    return "no error"


def failed(records: dict[str, Record]) -> dict[str, Record]:
    return {name: r for name, r in records.items() if r["status"] not in GOOD}


def fallbacks(records: Iterable[Record]) -> Counter[str]:
    """The CPU kernels that ran for the device, with their calls."""
    return sum((Counter(n.get("fallbacks", {})) for r in records for n in r["notes"]), Counter())


def change(now: int, before: int | None) -> str:
    """A cell with the difference from the run before."""
    if before is None:
        return "<td></td>"
    difference = now - before
    kind = "worse" if difference > 0 else "better"
    return f'<td class="n {kind if difference else ""}">{difference:+d}</td>'


def counts(title: str, empty: str, now: Counter[str], before: Counter[str] | None, what: str) -> list[str]:
    """A table of names with their counts, highest first, and with the counts of the run before."""
    lines = [f"<h2>{title}</h2>"]
    gone = sorted(name for name in before or () if name not in now)
    if not now and not gone:
        return [*lines, f"<p>{empty}</p>"]
    lines.append(f"<table><tr><th>operator</th><th>{what}</th><th>change</th></tr>")
    for name, n in [*sorted(now.items(), key=lambda item: (-item[1], item[0])), *((name, 0) for name in gone)]:
        was = None if before is None else before[name]
        lines.append(f'<tr><td><code>{escape(name)}</code></td><td class="n">{n}</td>{change(n, was)}</tr>')
    return [*lines, "</table>"]


def html(device: str, title: str, records: dict[str, Record], last: dict[str, Record], missing: int) -> str:
    """The page. ``last`` has the records of the run before, or none; ``missing`` tests haven't been run."""
    bad, was_bad = failed(records), failed(last)
    status = Counter(r["status"] for r in records.values())
    both = records.keys() & last.keys()
    lines = [
        "<!doctype html>", '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Tests of {escape(device)}</title><style>{STYLE}</style></head><body>",
        f"<h1>Tests of {escape(device)}</h1>", f"<p>{escape(title)}</p>",
        "<table><tr><th>tests</th><th>number</th><th>change</th></tr>",
    ]  # fmt: skip
    was = Counter(r["status"] for r in last.values())
    names = {
        "ok": "passed", "fail": "failed", "error": "with errors", "skip": "skipped", "xfail": "expected failures",
        "xpass": "unexpected successes",
    }  # fmt: skip
    for key, name in names.items():
        cell = change(status[key], was[key] if last else None)
        if key in GOOD:
            cell = cell.replace("worse", "").replace("better", "")
        lines.append(f'<tr><td>{name}</td><td class="n">{status[key]}</td>{cell}</tr>')
    died = Counter(r["died"] for r in records.values() if "died" in r)
    left = {name: r["left"] for name, r in records.items() if r.get("left")}
    for name, n in (
        ("crashed", died["crash"]), ("hung", died["hang"]), ("left device memory", len(left)), ("not run", missing),
    ):  # fmt: skip
        lines.append(f'<tr><td>{name}</td><td class="n">{n}</td><td></td></tr>')
    lines.append("</table>")
    lines += counts(
        "Operators that are missed", "No operator is missed.", logs.lacking(records.values(), device),
        logs.lacking(last.values(), device) if last else None, "tests",
    )  # fmt: skip
    lines += counts(
        "Operators that the CPU's kernels ran", "No CPU kernel is known to have run.", fallbacks(records.values()),
        fallbacks(last.values()) if last else None, "calls",
    )  # fmt: skip
    if last:
        lines.append("<h2>Compared with the last run</h2>")
        for text, tests in (
            ("These tests fail now, and did not", [n for n in both if n in bad and n not in was_bad]),
            ("These tests failed, and don't now", [n for n in both if n in was_bad and n not in bad]),
            ("These tests are new, and fail", [n for n in bad if n not in last]),
        ):
            lines.append(f"<p>{text}: {len(tests)}.</p>")
            if tests:
                lines.append("<ul>" + "".join(f"<li><code>{escape(n)}</code></li>" for n in sorted(tests)) + "</ul>")
    lines.append("<h2>Failures</h2>")
    groups: dict[str, list[str]] = defaultdict(list)
    for name, record in bad.items():
        groups[reason(record)].append(name)
    if not bad:
        lines.append("<p>No test fails.</p>")
    for why, tests in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
        first = bad[tests[0]]
        trace = "\n".join(text for _, _, text in first["blocks"])
        listed = "".join(f"<li><code>{escape(n)}</code></li>" for n in tests)
        lines.append(
            f"<details><summary>{len(tests)} × <code>{escape(why)}</code></summary><ul>{listed}</ul>"
            f"<p>The first one:</p><pre>{escape(trace[-6000:])}</pre></details>"
        )
    if left:
        lines += ["<h2>Device memory that is left</h2>", "<table><tr><th>test</th><th>bytes</th></tr>"]
        lines += [f'<tr><td><code>{escape(n)}</code></td><td class="n">{b}</td></tr>' for n, b in left.items()]
        lines.append("</table>")
    lines += ["<h2>The slowest tests</h2>", "<table><tr><th>test</th><th>seconds</th></tr>"]
    for name, record in sorted(records.items(), key=lambda item: (-item[1]["seconds"], item[0]))[:15]:
        lines.append(f'<tr><td><code>{escape(name)}</code></td><td class="n">{record["seconds"]:.2f}</td></tr>')
    return "\n".join([*lines, "</table>", "</body></html>"]) + "\n"
