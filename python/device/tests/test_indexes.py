"""Indexing by tensors: from TorchScript, with wrong indexes, and with tensors of the host."""

import contextlib

import pytest
import torch
from slow import held

D = torch.device("accinte")


def select(x, i):
    return x[i]


def mask(x):
    return x[x > 2]


def put(x, i):
    x[i] = 7
    return x


def fill(x):
    x[x < 2] = 1
    return x


def rows(x, i, j):
    return x.view(2, 3)[i, j]


def join(x):
    return torch.cat([x, x]) + torch.stack([x, x]).sum()


@pytest.mark.parametrize("idle", [True, False])
@pytest.mark.parametrize("f", [select, mask, put, fill, rows, join])
def test_scripts(f, idle):
    """TorchScript's lists of indexes have a type of their own."""
    i, j = torch.tensor([1, 0]), torch.tensor([2, 1])
    arguments = {select: (i,), put: (i,), rows: (i, j)}.get(f, ())
    scripted = torch.jit.script(f)
    want = scripted(torch.arange(6.0), *arguments)
    x, arguments = torch.arange(6.0).to(D), [a.to(D) for a in arguments]
    with contextlib.nullcontext() if idle or f is mask else held(D):
        got = scripted(x, *arguments)
    assert got.device.type == "accinte" and torch.equal(got.cpu(), want)


WRONG = {
    "lists": lambda x: x[[0, 1], [0, 1, 2]],
    "lists, written": lambda x: x.__setitem__(([0, 1], [0, 1, 2]), 0),
    "out of range": lambda x: x[torch.tensor([5], device=x.device)],
    "out of range, written": lambda x: x.__setitem__(torch.tensor([5], device=x.device), 1),
    "a mask": lambda x: x[torch.ones(4, dtype=torch.bool, device=x.device)],
    "too many": lambda x: x[torch.zeros(1, 3, dtype=torch.int64, device=x.device).unbind(1)],
    "a type": lambda x: x[torch.zeros(1, device=x.device)],
    "a dimension": lambda x: x.gather(5, torch.zeros(1, 1, dtype=torch.int64, device=x.device)),
    "index_select": lambda x: x.index_select(4, torch.zeros(1, dtype=torch.int64, device=x.device)),
    "take": lambda x: x.take(torch.tensor([99], device=x.device)),
    "a value": lambda x: x.__setitem__(torch.tensor([0], device=x.device), torch.ones(4, device=x.device)),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors(name):
    """They have the CPU's class and text."""
    with pytest.raises((IndexError, RuntimeError)) as want:
        WRONG[name](torch.zeros(2, 3))
    with pytest.raises(type(want.value)) as got:
        WRONG[name](torch.zeros(2, 3, device=D))
    assert str(got.value).splitlines()[0] == str(want.value).splitlines()[0]


def test_values_of_the_host():
    """A value of the host is refused, as on other devices, unless it's a number, or the one value for a mask."""
    x, i = torch.zeros(2, 3, device=D), torch.tensor([0], device=D)
    for write in (
        lambda: x.__setitem__(i, torch.ones(3)),
        lambda: x.__setitem__(x >= 0, torch.ones(6)),
        lambda: x.index_put_((i,), torch.ones(3), accumulate=True),
        lambda: torch.zeros(2, 3)[i],
    ):
        with pytest.raises(RuntimeError, match="same device"):
            write()
    assert not x.any()
    x[i] = torch.tensor(1.0)
    x[torch.tensor([1])] = 2
    assert x.tolist() == [[1] * 3, [2] * 3]
    x[x > 1] = torch.tensor([3.0])
    x[0] = torch.full((3,), 4.0)  # a copy
    assert x.tolist() == [[4] * 3, [3] * 3] and x[[1, 0]][0, 0].item() == 3
