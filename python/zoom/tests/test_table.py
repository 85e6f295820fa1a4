"""docs/zoom-operators.md, which the tests of operators write, says what the device does."""

import pathlib
import re
import unittest
import zlib

import pytest
import torch
from chorus_device._device import c
from chorus_device.devtests import notes, opinfo, table
from worlds import sample

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "zoom-operators.md"
COMMAND = "python -m chorus_device.devtests zoom -k test_compare_cpu --table docs/zoom-operators.md"


@pytest.mark.anywhere
def test_counts():
    """The page's numbers are those of its rows, and at least 97 of a hundred pairs agree."""
    text = PAGE.read_text()
    kinds = table.kinds(text)
    agree = sum(kind in table.KINDS[:3] for kind in kinds.values())
    assert COMMAND in text
    assert f"Of {len(kinds)} pairs of an operator and a type that the CPU supports, {agree} agree with the CPU" in text
    assert agree > 0.97 * len(kinds) > 5000
    all_of = "| all | " + str(len(kinds)) + "".join(f" | {sum(k == of for k in kinds.values())}" for of in table.KINDS)
    assert all_of + " |" in text


@pytest.mark.anywhere
def test_plain_buffers():
    """The section about plain buffers says where they differ from the rows, and nearly all of its pairs agree."""
    text = PAGE.read_text()
    section = text.split("## On plain buffers\n")[1].split("\n## ")[0]
    n, agree = map(int, re.search(r"Of (\d+) pairs that ran on plain buffers, (\d+) agree", section).groups())
    numbers = re.search(r"^\| all \| (.*) \|$", section, re.M).group(1).split(" | ")
    of = [int(cell.split()[0]) for cell in numbers]
    assert of[0] == n == sum(of[1:]) and sum(of[1:4]) == agree > 0.97 * n > 100
    kinds = table.kinds(text)
    for op, dtype, here, there in re.findall(r"^\| `(\S+)` \| (\w+) \| (\w*) \| (\w+) \|$", section, re.M):
        assert kinds.get((op, dtype), "") == here != there


def test_operators_are_pytorchs():
    """Each operator that kernels compute is one of this version of PyTorch."""
    torch.ones(1, device="zoom")
    assert c().absent_operators() == set()


PARTS = 32


@pytest.fixture
def _numbers_of_the_cpu():
    """The comparisons have the device draw them, for the rest of the process."""
    yield
    torch.zoom.use_philox()
    opinfo.draws_as_the_cpu.cache_clear()


@pytest.mark.long
@pytest.mark.usefixtures("_numbers_of_the_cpu")
@pytest.mark.parametrize("part", sample(range(PARTS), 0))
def test_kinds(part):
    """The page's pairs run as it says, or better: what it claims to be native is. Part 0 is a sample, and the others
    have all that agree with the CPU."""
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
    known = table.kinds(PAGE.read_text())
    pairs = sorted((p for p in known.items() if p[1] != "differs"), key=lambda p: zlib.crc32(repr(p[0]).encode()))
    if part == 0:
        pairs = [p for p in pairs if p[1] == "native"][:12] + [p for p in pairs if p[1] != "native"][:6]
    else:
        pairs = pairs[part - 1 :: PARTS - 1]
    wrong = []
    for (name, of), kind in pairs:
        op, dtype = operators[name], getattr(torch, of)
        ways = [False]
        if op.supports_autograd and dtype in op.supported_backward_dtypes("cpu") and dtype.is_floating_point:
            ways.append(True)
        for backward in ways:
            try:
                opinfo.compare(op, dtype, "zoom", backward=backward)
            except unittest.SkipTest:
                pass  # there is nothing to compare
            except Exception as error:
                wrong.append((name, of, backward, str(error)[:500]))
        worse = [note for note in notes.taken() if table.KINDS.index(note["kind"]) > table.KINDS.index(kind)]
        wrong += [(name, of, kind, note, COMMAND) for note in worse]
    assert not wrong, wrong
