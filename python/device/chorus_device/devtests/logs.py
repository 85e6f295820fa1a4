"""The logs of a run: that of unittest, and those of the original's test.sh, which are counts of lines in it.

Files are those that the script writes under LC_ALL=C.UTF-8. It has these quirks:

- An operator is counted once for each place where it's named. The total is the number of lines that name one.
- Equal counts are in the reverse order of their texts.
- An error's text keeps its type: the script's sed, which is to remove it, has literal parentheses.
- A text is cut to 100 characters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from chorus_device.devtests.state import Record

WIDTH = 70
CUT = 100


def counted(texts: Iterable[str]) -> str:
    """Texts with their counts, as by ``sort | uniq -c | sort -rn``."""
    lines = sorted(Counter(texts).items(), key=lambda item: (item[1], item[0].encode(errors="surrogateescape")))
    return "".join(f"{n}\t{text}\n" for text, n in reversed(lines))


def unimplemented(log: str, device: str) -> str:
    """The log of operators that a device lacks, of a log of tests."""
    pattern = re.compile(rf"Could not run 'aten::([^']*)' with arguments from the '{re.escape(device)}' backend")
    found = [pattern.findall(line) for line in log.split("\n")]
    total = sum(map(bool, found))
    return counted(name for names in found for name in names) + f"\nTotal unimplemented operator failures: {total}\n"


def errors(log: str) -> str:
    """The log of errors, of a log of tests."""
    lines = [line for line in log.split("\n") if re.search("Error: (?!test).", line)]
    texts = [re.sub(r"^\(.*Error\): ", "", line)[:CUT] for line in lines]
    return counted(texts) + f"\nTotal test errors failures: {len(lines)}\n"


def lacking(records: Iterable[Record], device: str) -> Counter[str]:
    """Operators that a device lacks, each with the number of tests whose errors name it."""
    pattern = re.compile(rf"Could not run '(?:aten::)?([^']*)' with arguments from the '{re.escape(device)}' backend")
    return Counter(
        name for r in records for name in sorted({n for _, _, text in r["blocks"] for n in pattern.findall(text)})
    )


def verbose(records: list[Record]) -> str:
    """The log that ``python PROGRAM --verbose`` writes: a line for each test, the errors, and the totals."""
    text = "".join(r["said"] for r in records) + "\n"
    for kind in ("ERROR", "FAIL"):
        for flavour, name, trace in (b for r in records for b in r["blocks"]):
            if flavour == kind:
                text += f"{'=' * WIDTH}\n{kind}: {name}\n{'-' * WIDTH}\n{trace}\n"
    count = Counter(r["status"] for r in records)
    if count["xpass"]:
        text += f"{'=' * WIDTH}\n"
        text += "".join(f"UNEXPECTED SUCCESS: {r['description']}\n" for r in records if r["status"] == "xpass")
    n = len(records)
    took = sum(r["seconds"] for r in records)
    text += f"{'-' * WIDTH}\nRan {n} test{'' if n == 1 else 's'} in {took:.3f}s\n\n"
    failures, mistakes = (sum(b[0] == kind for r in records for b in r["blocks"]) for kind in ("FAIL", "ERROR"))
    told = {
        "failures": failures, "errors": mistakes, "skipped": count["skip"],
        "expected failures": count["xfail"], "unexpected successes": count["xpass"],
    }  # fmt: skip
    details = ", ".join(f"{name}={n}" for name, n in told.items() if n)
    bad = failures or mistakes or count["xpass"]
    return text + ("FAILED" if bad else "OK") + (f" ({details})" if details else "") + "\n"
