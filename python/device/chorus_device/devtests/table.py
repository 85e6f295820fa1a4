"""The table of operators and types: how a device runs each one, as a page of the documentation."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable

from chorus_device.devtests.state import Record

KINDS = ["native", "composed", "fallback", "refused", "differs"]  # from best to worst
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


def page(device: str, version: str, found: dict[str, dict[str, Pair]], name: str, ran: Collection[str] = ()) -> str:
    """The table as a page of the documentation; ran are the operators of ATen that the device's kernels computed."""
    types = [t for t in TYPES if any(t in of for of in found.values())]
    types += sorted({t for of in found.values() for t in of} - set(types))
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
        "| type | pairs | " + " | ".join(KINDS) + " |",
        "|---|" + "---:|" * (len(KINDS) + 1),
    ]  # fmt: skip

    def row(title: str, kinds: Counter[str]) -> str:
        return f"| {title} | {kinds.total()} | " + " | ".join(str(kinds[k]) for k in KINDS) + " |"

    lines += [row(t, count[t]) for t in types] + [row("all", whole)]
    hit: Counter[str] = sum((p.fallbacks for of in found.values() for p in of.values()), Counter())
    if hit:
        lines += ["", "## CPU kernels", "", "These kernels of PyTorch's CPU ran most often.", ""]
        lines += ["| operator | calls |", "|---|---:|"]
        lines += [f"| `{o}` | {n} |" for o, n in sorted(hit.items(), key=lambda item: (-item[1], item[0]))[:40]]
    lines += [
        "",
        "## Every operator",
        "",
        "N is native, C composed, F fallback, R refused, and X differs. Where there's no letter, the CPU doesn't",
        "support the type, or the database has nothing to compare.",
        "The last column has the number of calls of CPU kernels.",
        "",
        "| operator | " + " | ".join(types) + " | CPU kernels |",
        "|---|" + "---|" * len(types) + "---:|",
    ]
    letters = {"native": "N", "composed": "C", "fallback": "F", "refused": "R", "differs": "X"}
    for op, of in sorted(found.items()):
        cells = [letters[of[t].kind] if t in of else "" for t in types]
        calls = sum(p.fallbacks.total() for p in of.values())
        lines.append(f"| `{op}` | " + " | ".join(cells) + f" | {calls or ''} |")
    return "\n".join(lines) + "\n"
