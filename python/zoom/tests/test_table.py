"""docs/zoom-operators.md, which the tests of operators write, says what the device does."""

import pathlib
import re
import zlib

import pytest
import torch
from chorus_device._device import c
from chorus_device.devtests import notes, opinfo, table

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "zoom-operators.md"
COMMAND = "python -m chorus_device.devtests zoom -k test_compare_cpu --table docs/zoom-operators.md"
LETTERS = dict(zip("NCFRX", table.KINDS, strict=True))


def rows():
    """The kind of each operator and type of the page."""
    lines = PAGE.read_text().splitlines()
    (head,) = (i for i, line in enumerate(lines) if line.startswith("| operator | float32"))
    types = lines[head].split(" | ")[1:-1]
    found = {}
    for line in lines[head + 2 :]:
        name, *cells = (cell.strip() for cell in line.strip("|").split(" | "))
        found |= {(name.strip("`"), t): LETTERS[cell] for t, cell in zip(types, cells) if cell}
    return found


@pytest.mark.anywhere
def test_counts():
    """The page's numbers are those of its rows, and at least 97 of a hundred pairs agree."""
    text, kinds = PAGE.read_text(), rows()
    agree = sum(kind in table.KINDS[:3] for kind in kinds.values())
    assert COMMAND in text
    assert f"Of {len(kinds)} pairs of an operator and a type that the CPU supports, {agree} agree with the CPU" in text
    assert agree > 0.97 * len(kinds) > 5000
    all_of = "| all | " + str(len(kinds)) + "".join(f" | {sum(k == of for k in kinds.values())}" for of in table.KINDS)
    assert all_of + " |" in text


def test_operators_are_pytorchs():
    """Each operator that kernels compute is one of this version of PyTorch."""
    torch.ones(1, device="zoom")
    assert c().absent_operators() == set()


@pytest.mark.long
def test_kinds():
    """A sample of the page's pairs runs as the page says, or better: what it claims to be native is."""
    assert (torch.ones(1, device="zoom") + 1).item() == 2
    counts = c().kernel_counts(0)
    if counts["refused"] or not counts["launched"]:
        pytest.skip("left out: the device compiles no kernels")
    assert len(c().native_operators()) >= 400
    version = re.search(r"of PyTorch ([\w.]+), OpInfo", PAGE.read_text()).group(1)
    if not torch.__version__.startswith(version):
        pytest.skip(f"left out: the page is about PyTorch {version}")
    from torch.testing._internal.common_methods_invocations import op_db

    operators = {opinfo.sweep.name_of(op): op for op in op_db}
    pairs = sorted(rows().items(), key=lambda item: zlib.crc32(repr(item[0]).encode()))
    sample = [p for p in pairs if p[1] == "native"][:12] + [p for p in pairs if p[1] in ("composed", "fallback")][:6]
    for (name, of), kind in sample:
        op, dtype = operators[name], getattr(torch, of)
        opinfo.compare(op, dtype, "zoom")
        if op.supports_autograd and dtype in op.supported_backward_dtypes("cpu") and dtype.is_floating_point:
            opinfo.compare(op, dtype, "zoom", backward=True)
        for note in notes.taken():
            assert table.KINDS.index(note["kind"]) <= table.KINDS.index(kind), (name, of, kind, note, COMMAND)
