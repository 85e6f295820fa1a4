"""The table of operators and types: how a device runs each one, as a page of the documentation."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable

from chorus_device.devtests.state import Record

KINDS = ["native", "composed", "fallback", "refused", "differs"]  # from best to worst
LETTERS = {"native": "N", "composed": "C", "fallback": "F", "refused": "R", "differs": "X"}
TYPES = [
    "float32", "float64", "float16", "bfloat16", "complex64", "complex128", "complex32",
    "int64", "int32", "int16", "int8", "uint8", "bool",
]  # fmt: skip
LEGEND = """\
- **native**: the device has a kernel for it.
- **composed**: PyTorch or the device makes it of operators that have one, or of views.
- **fallback**: PyTorch's CPU kernel runs for it, or for an operator that it's made of.
- **refused**: it raises `NotImplementedError`.
- **differs**: its result isn't the CPU's, or it raises an error that the CPU doesn't have."""

EVERY = "## Every operator"


class Pair:
    """An operator with one type of element, forward and backward."""

    def __init__(self) -> None:
        self.kind = KINDS[0]
        self.fallbacks: Counter[str] = Counter()

    def is_also(self, kind: str, fallbacks: dict[str, int]) -> None:
        """Take the worse of two kinds, and add what fell back."""
        self.kind = max(self.kind, kind, key=KINDS.index)
        self.fallbacks.update(fallbacks)


def pairs(records: Iterable[Record]) -> dict[str, dict[str, Pair]]:
    """The pairs that were compared with the CPU, by operator and type."""
    found: dict[str, dict[str, Pair]] = defaultdict(lambda: defaultdict(Pair))
    for record in records:
        if record.get("died") and ".test_compare_cpu" in record["test"] and "op" in record:
            found[record["op"]][record["dtype"]].is_also("differs", {})
        for note in record["notes"]:
            if "kind" in note:
                found[note["op"]][note["dtype"]].is_also(note["kind"], note["fallbacks"])
    return found


def kernels(records: Iterable[Record]) -> set[str]:
    """The operators of ATen that the device's kernels computed, with their overloads."""
    notes = (note for record in records for note in record["notes"])
    return {name for note in notes for name in note.get("kernels", ()) if name.startswith("aten::")}


def types_of(types: Iterable[str]) -> list[str]:
    """The types in the order of the page."""
    all = set(types)
    return [t for t in TYPES if t in all] + sorted(all - set(TYPES))


def counted(types: list[str], cell: Callable[[str, str], str]) -> list[str]:
    """The table of how many pairs are of each kind, by type and, of type "", of all."""
    lines = ["| type | pairs | " + " | ".join(KINDS) + " |", "|---|" + "---:|" * (len(KINDS) + 1)]
    for t in [*types, ""]:
        cells = [cell(t, k) for k in KINDS]
        lines.append(f"| {t or 'all'} | {sum(int(c.split()[0]) for c in cells)} | " + " | ".join(cells) + " |")
    return lines


def page(device: str, version: str, found: dict[str, dict[str, Pair]], name: str, ran: Collection[str] = ()) -> str:
    """The table as a page of the documentation; ran are the operators of ATen that the device's kernels computed."""
    types = types_of(t for of in found.values() for t in of)
    count = {t: Counter(of[t].kind for of in found.values() if t in of) for t in types}
    whole = sum(count.values(), Counter())
    n = whole.total()
    agree = n - whole["refused"] - whole["differs"]
    native = sum(any(p.kind == "native" for p in of.values()) for of in found.values())
    alone = sum(any(p.kind in KINDS[:2] for p in of.values()) for of in found.values())
    lines = [
        f"# Operators on {device}",
        "",
        f"For users of {device} who look up an operator.",
        "",
        f"`python -m chorus_device.devtests {device} -k test_compare_cpu --table {name}` writes this page",
        f"from the database of operators of PyTorch {version}, OpInfo.",
        "[device-tests.md](device-tests.md#the-table-of-operators) describes the command.",
        "",
        f"Of {n} pairs of an operator and a type that the CPU supports, {agree} agree with the CPU, "
        f"forward and backward: {100 * agree / n if n else 0:.2f} %.",
        f"Of {len(found)} operators, {native} are native for some type, and {alone} run without a kernel of the CPU, "
        "native or composed.",
        *([f"The device's kernels computed {len(ran)} operators of ATen, each overload counted."] if ran else []),
        "",
        LEGEND,
        "",
        *counted(types, lambda t, k: str((count[t] if t else whole)[k])),
    ]  # fmt: skip
    hit: Counter[str] = sum((p.fallbacks for of in found.values() for p in of.values()), Counter())
    if hit:
        lines += ["", "## CPU kernels", "", "These kernels of PyTorch's CPU ran most often.", ""]
        lines += ["| operator | calls |", "|---|---:|"]
        lines += [f"| `{o}` | {n} |" for o, n in sorted(hit.items(), key=lambda item: (-item[1], item[0]))[:40]]
    lines += [
        "",
        EVERY,
        "",
        "N is native, C composed, F fallback, R refused, and X differs. Where there's no letter, the CPU doesn't",
        "support the type, or the database has nothing to compare.",
        "The last column has the number of calls of CPU kernels.",
        "",
        "| operator | " + " | ".join(types) + " | CPU kernels |",
        "|---|" + "---|" * len(types) + "---:|",
    ]
    for op, of in sorted(found.items()):
        cells = [LETTERS[of[t].kind] if t in of else "" for t in types]
        calls = sum(p.fallbacks.total() for p in of.values())
        lines.append(f"| `{op}` | " + " | ".join(cells) + f" | {calls or ''} |")
    return "\n".join(lines) + "\n"


def kinds(text: str) -> dict[tuple[str, str], str]:
    """The kind of each operator and type of a page."""
    lines = text.split(EVERY + "\n")[1].splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("| operator | "))
    types = lines[head].split(" | ")[1:-1]
    of = {letter: kind for kind, letter in LETTERS.items()}
    found: dict[tuple[str, str], str] = {}
    for line in lines[head + 2 :]:
        name, *cells = (cell.strip() for cell in line.strip("|").split(" | "))
        found |= {(name.strip("`"), t): of[cell] for t, cell in zip(types, cells) if cell}
    return found


def with_sections_of(old: str, text: str) -> str:
    """A page with the old page's sections about other places, as they are."""
    before, every = text.split(EVERY + "\n")
    return "".join([before, *re.findall(r"^## On .*?\n(?=## )", old, flags=re.M | re.S), EVERY, "\n", every])


def with_section(text: str, place: str, found: dict[str, dict[str, Pair]]) -> str:
    """A page with a section about the device on memory, a driver or a machine of another kind: the pairs that ran
    there beside what the page says of them."""
    there = {(op, t): pair.kind for op, of in found.items() for t, pair in of.items()}
    here = {key: kind for key, kind in kinds(text).items() if key in there}

    def cell(t: str, kind: str) -> str:
        n, known = (sum(k == kind and t in ("", of) for (_, of), k in which.items()) for which in (there, here))
        return str(n) if n == known else f"{n} ({known})"

    agree = sum(kind in KINDS[:3] for kind in there.values())
    head = f"## On {place}"
    lines = [
        head,
        "",
        f"Of {len(there)} pairs that ran on {place}, {agree} agree with the CPU.",
        "Of forward and backward, what ran counts.",
        "A number in parentheses is that of the same pairs in the rest of the page, where it's another one.",
        "",
        *counted(types_of(t for _, t in there), cell),
    ]
    other = sorted((key, kind) for key, kind in there.items() if here.get(key) != kind)
    if other:
        lines += ["", "These pairs run otherwise.", "", "| operator | type | this page | there |", "|---|---|---|---|"]
        lines += [f"| `{op}` | {t} | {here.get((op, t), '')} | {kind} |" for (op, t), kind in other]
    before, every = text.split(EVERY + "\n")
    before = re.sub(rf"^{re.escape(head)}\n.*?(?=^## |\Z)", "", before, flags=re.M | re.S).rstrip("\n")
    return "\n".join([before, "", *lines, "", EVERY, every])
