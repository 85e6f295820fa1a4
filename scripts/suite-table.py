"""Writes the table of docs/emulated-gpu.md from the output of pytest -v -rs, of several runs for each device:

    scripts/on-device.sh cuda .venv/bin/python -m pytest -v -rs -m 'not long' python/zoom/tests > cuda.txt
    scripts/on-device.sh hip .venv/bin/python -m pytest -v -rs -m 'not long' python/zoom/tests > hip.txt
    python scripts/suite-table.py cuda=cuda.txt hip=hip.txt

The last run of a test counts."""

import collections
import pathlib
import re
import sys

RESULT = re.compile(
    r"(?:\[gw\d+\] \[ *\d+%\] )?(PASSED|FAILED|ERROR|SKIPPED)? ?(\S+/(test_\w+)\.py::\S.*?)"
    r"(?: (PASSED|FAILED|ERROR|SKIPPED).*)?$"
)
REASON = re.compile(r"SKIPPED \[\d+\] (?:\S+/)?(test_\w+)\.py:\d+: (?:left out: )?(.*)")

results = collections.defaultdict(dict)  # of each device and file, by test
reasons = collections.defaultdict(set)  # of each file
for device, path in (a.split("=") for a in sys.argv[1:]):
    for line in pathlib.Path(path).read_text(errors="replace").splitlines():
        if found := RESULT.match(line):
            if result := found[1] or found[4]:
                results[device, found[3]][found[2].partition(" - ")[0].strip()] = result
        elif found := REASON.match(line):
            reasons[found[1]].add(found[2])

devices = list(dict.fromkeys(device for device, _ in results))
files = sorted({file for _, file in results} | set(reasons))
print("| file |" + "".join(f" on `{d}`, passed | failed |" for d in devices) + " left out |")
print("|---|" + "---|---|" * len(devices) + "---|")
for file in files:
    row = [file]
    for device in devices:
        all = list(results[device, file].values())
        row += [str(all.count("PASSED")), str(all.count("FAILED") + all.count("ERROR"))]
    print("| " + " | ".join([*row, "; ".join(sorted(reasons[file]))]) + " |")
