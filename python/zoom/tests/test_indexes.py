"""Indexes that are out of range: the error names the operator, and is that of the thread that called it."""

import os
import subprocess
import sys
import threading
import time

import pytest
import torch
from chorus_device._device import c

D = "zoom"
BAD = {
    "index": lambda x, i: x[i],
    "_index_put_impl_": lambda x, i: x.index_put((i,), torch.tensor(1.0, device=D)),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "scatter": lambda x, i: x.scatter(0, i[:, None], 1.0),
    "index_add": lambda x, i: x.index_add(0, i, x[:1]),
    "take": lambda x, i: x.take(i),
    "index_select": lambda x, i: torch.nn.functional.embedding(i, x),
}


@pytest.fixture(scope="module", autouse=True)
def _compiles():
    assert (torch.ones(1, device=D) + 1).item() == 2
    if not c().kernel_counts(0)["launched"]:
        pytest.skip("left out: the device compiles no kernels")


def tensors():
    return torch.zeros(2, 3, device=D), torch.tensor([9], device=D)


@pytest.mark.parametrize("name", BAD)
def test_the_operator_is_named(name):
    y = BAD[name](*tensors())
    with pytest.raises(IndexError, match=rf"index out of range in aten::\w*{name.strip('_')}\w* on zoom:0: it read 0"):
        torch.zoom.synchronize()
    assert y.cpu() is not None  # the error comes once


def test_lists_that_fit_not():
    """The class of the CPU's errors."""
    x, _ = tensors()
    with pytest.raises(IndexError, match="shape mismatch: indexing tensors could not be broadcast"):
        x[[0, 1], [0, 1, 2]] = 0
    with pytest.raises(IndexError, match="shape mismatch: indexing tensors could not be broadcast"):
        x[[0, 1], [0, 1, 2]]
    with pytest.raises(RuntimeError, match="same device"):
        x[torch.tensor([0], device=D)] = torch.ones(3)


def other_thread(f):
    told = []

    def run():
        try:
            f()
        except Exception as error:
            told.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return told


def test_of_another_thread():
    """A thread doesn't get the error of another one, which gets it later; that of one that has ended isn't lost."""
    x, i = tensors()
    x[i]
    assert other_thread(torch.zoom.synchronize) == [] and other_thread(lambda: x.sum().item()) == []
    with pytest.raises(IndexError):
        torch.zoom.synchronize()
    assert other_thread(lambda: x[i]) == []
    until = time.monotonic() + 60
    with pytest.raises(IndexError):
        while time.monotonic() < until:  # the thread may still be about to end
            torch.zoom.synchronize()


def test_of_a_backward_pass():
    """It's of the thread that ran the forward pass, whatever thread runs the backward one."""
    x, _ = tensors()
    i = torch.tensor([1], device=D)
    y = x.requires_grad_().index_select(0, i)
    i.data.fill_(9)  # which the backward pass reads
    assert other_thread(lambda: (y.sum().backward(), torch.zoom.synchronize())) == []
    with pytest.raises(IndexError, match="index_add"):
        torch.zoom.synchronize()


LINE = """
import torch
x, i = torch.zeros(2, device="zoom"), torch.tensor([9], device="zoom")
try:
    x[i]
except IndexError as error:
    print(error)
"""


def test_at_the_call():
    done = subprocess.run(
        [sys.executable, "-c", LINE], env={**os.environ, "CHORUS_DEVICE_BLOCKING": "true"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.stdout == "index out of range in aten::index on zoom:0: it read 0 there, or wrote nothing\n", (
        done.stderr
    )
