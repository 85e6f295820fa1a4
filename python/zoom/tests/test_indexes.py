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


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.long
def test_deterministic_sums(deterministic):
    """Sums at indexes are those of the CPU, bit for bit: kernels add in the order of the indexes."""
    numbers = torch.Generator().manual_seed(0)
    index = torch.randint(7, (20000,), generator=numbers)
    source = torch.randn(20000, 3, generator=numbers) * 10.0 ** torch.randint(-3, 4, (20000, 1), generator=numbers)
    want = torch.zeros(7, 3).index_add_(0, index, source)
    at, to, zeros = index.to("zoom"), source.to("zoom"), torch.zeros(7, 3, device="zoom")
    places = (at[:, None] * 3 + torch.arange(3, device="zoom"), at[:, None].expand(-1, 3))
    before = dict(torch.zoom.fallback_counts())
    got = {
        "index_add": zeros.index_add(0, at, to),
        "index_add, strided": zeros.t().contiguous().index_add_(1, at, to.t()).t(),
        "index_put": zeros.index_put((at,), to, accumulate=True),
        "index_put of two": zeros.index_put((places[1], torch.arange(-3, 0, device="zoom")), to, accumulate=True),
        "put": zeros.clone().put_(places[0], to, accumulate=True),
        "scatter_add": zeros.scatter_add(0, places[1], to),
        "scatter_reduce": zeros.scatter_reduce(0, places[1], to, "sum"),
    }
    again = [torch.bincount(at, weights=to[:, 0]) for _ in range(5)]
    assert torch.zoom.fallback_counts() == before
    for name, x in got.items():
        assert x.cpu().equal(want), name
    assert all(x.equal(again[0]) for x in again)
    torch.testing.assert_close(again[0].cpu(), want[:, 0], rtol=1e-4, atol=1e-2)
    half = torch.full((2, 4), -0.0, dtype=torch.float16, device="zoom")
    half[:, 1:].index_add_(1, torch.tensor([1, 1], device="zoom"), torch.ones(2, 2, dtype=torch.float16, device="zoom"))
    assert half.tolist() == [[0, 0, 2, 0]] * 2 and half.signbit().tolist() == [[True, True, False, True]] * 2
    far = torch.tensor([1, 7], device="zoom")
    with pytest.raises(IndexError, match="aten::index_add"):
        zeros.index_add_(0, far, to[:2]).cpu()
    assert zeros.cpu()[[0, 2, 3, 4, 5, 6]].count_nonzero() == 0


def test_deterministic_writes(deterministic):
    # Of elements that are written to one place the last stays, as on the CPU: whole rows, and single elements.
    numbers = torch.Generator().manual_seed(0)
    rows = torch.randint(-5, 5, (4000,), generator=numbers)
    places = torch.randint(5, (4000, 3), generator=numbers)
    columns = torch.randint(3, (4000, 1), generator=numbers)
    source = torch.randn(4000, 3, generator=numbers)
    cases = {
        "index_put": lambda x, r, p, c, s: x.index_put((r,), s),
        "index_put, strided": lambda x, r, p, c, s: x.t().clone().t().index_put((r,), s),
        "index_put of two": lambda x, r, p, c, s: x.index_put((r, c[:, 0]), s[:, 0]),
        "index_put of a cube": lambda x, r, p, c, s: x.index_put((r[:, None], c.expand(-1, 3)), s),
        "index_put of a line": lambda x, r, p, c, s: x.flatten().index_put((p * 3 - 15,), s),
        "scatter": lambda x, r, p, c, s: x.scatter(0, p, s),
        "scatter, fewer columns": lambda x, r, p, c, s: x.scatter(0, p[:, :2], s),
        "scatter of rows": lambda x, r, p, c, s: x.scatter(0, p[:, :1].expand(-1, 3), s),
        "index_copy": lambda x, r, p, c, s: x.index_copy(0, p[:, 0], s),
        "index_copy, strided": lambda x, r, p, c, s: x.t().contiguous().index_copy_(1, p[:, 0], s.t()).t(),
    }
    before = dict(torch.zoom.fallback_counts())
    on_zoom = [x.to("zoom") for x in (rows, places, columns, source)]
    got = {name: f(torch.zeros(5, 3, device="zoom"), *on_zoom) for name, f in cases.items()}
    assert torch.zoom.fallback_counts() == before
    for name, x in got.items():
        assert x.cpu().equal(cases[name](torch.zeros(5, 3), rows, places, columns, source)), name
    put = torch.zeros(5, 3, device="zoom").put_(on_zoom[1] * 3 - 15, on_zoom[3])  # an error of the CPU
    assert put.flatten().equal(got["index_put of a line"])


@pytest.mark.long
def test_deterministic_writes_of_any_order(deterministic):
    """Equal elements, and the places of a mask, take no more kernels than without deterministic algorithms."""
    numbers = torch.Generator().manual_seed(0)
    given = torch.randint(5, (40,), generator=numbers), torch.rand(5, 3, generator=numbers) > 0.4, torch.tensor(2.5)
    cases = {
        "an element at indexes": lambda x, r, m, s: x.index_put((r,), s),
        "an element, scattered": lambda x, r, m, s: x.scatter(0, r[:3, None].expand(3, 3), s.expand(3, 3)),
        "an element of a mask": lambda x, r, m, s: x.index_put((m,), s),
        "elements of a mask": lambda x, r, m, s: x.index_put((m,), x[m] + s),
        "sums of a mask": lambda x, r, m, s: x.index_put((m[:, 0],), x[m[:, 0]] + s, accumulate=True),
    }
    x, *on_zoom = [v.to("zoom") for v in (torch.randn(5, 3, generator=numbers), *given)]
    for name, f in cases.items():
        launched = []
        for algorithms in (False, True):
            torch.use_deterministic_algorithms(algorithms)
            f(x, *on_zoom)
            before = c().kernel_counts(0)["launched"]
            got = f(x, *on_zoom)
            launched.append(c().kernel_counts(0)["launched"] - before)
            assert got.cpu().equal(f(x.cpu(), *given)), name
        assert launched[0] == launched[1], name


def test_deterministic_errors(deterministic):
    """An operator without a kernel in an order raises PyTorch's error, and products are the CPU's."""
    weight = torch.randn(5, 3, device="zoom", requires_grad=True)
    bags = torch.nn.functional.embedding_bag(torch.tensor([[1, 1], [2, 1]], device="zoom"), weight, mode="max")
    with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
        bags.sum().backward()
    product = torch.ones(2, device="zoom").scatter_reduce(
        0, torch.tensor([0, 0], device="zoom"), torch.tensor([3.0, 2.0], device="zoom"), "prod"
    )
    assert product.tolist() == [6, 1]
