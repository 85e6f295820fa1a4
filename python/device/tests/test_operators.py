"""A part of PyTorch's database of operators, on the device and on the CPU. `python -m chorus_device.sweep accinte` runs
all of it."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from chorus_device import sweep
from slow import busy
from worlds import longest

D = "accinte"


def test_sweep():
    todo = sweep.cases(["float32", "int64", "bfloat16"], every=29)
    crash = (-1_000_000, "float32")  # one line of the report; another process runs the next cases
    first, *answers = sorted(sweep.run(D, [crash, *todo], most=3, workers=2), key=lambda a: a["op"])
    assert first["why"].startswith("crashes: exit status 1"), first
    assert len(answers) == len(todo) >= 50
    bad = [a for a in answers if a["status"] == "fail"]
    assert not bad, sweep.report(bad)
    assert sum(a["status"] == "ok" for a in answers) > 0.9 * len(todo)


@longest
@pytest.mark.long
def test_sweep_of_layouts_and_forms():
    todo = sweep.cases(["float32", "bfloat16"], every=13)
    bad = [a for a in sweep.run(D, todo, 2, 2, ["--layouts", "--forms"]) if a["status"] == "fail"]
    assert not bad, sweep.report(bad)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
def test_histograms_of_integers(dtype):
    """The device counts integers, as CUDA does, and the CPU doesn't."""
    h = torch.randint(0, 100, (257,), dtype=dtype)
    x = h.to(D)
    for bins, low, high in ((7, 0, 0), (10, 0, 9), (3, 20, 80), (100, 0, 100)):
        want = h.double().histc(bins, low, high).to(dtype)
        with busy(D, 0.01):
            got = x.histc(bins, low, high), torch.histc(x, bins, low, high, out=torch.empty(0, dtype=dtype, device=D))
        assert all(torch.equal(g.cpu(), want) and g.dtype == dtype for g in got)
    assert torch.equal(x[:0].histc(4).cpu(), torch.zeros(4, dtype=dtype))
    with pytest.raises(RuntimeError, match="histc: the result has to be of the input's type and device"):
        torch.histc(x, 4, out=torch.empty(4, device=D))
    with pytest.raises(RuntimeError, match="bins must be > 0"):
        x.histc(0)


@pytest.mark.parametrize("given", sweep.GIVEN)
def test_given_results_keep_their_strides(given):
    """Given results keep their strides. Some Meta kernels, such as that of sort, change them, and a busy stream uses
    the Meta kernel."""
    h = torch.randn(4, 5, 6).transpose(0, 1)
    x, want = h.to(D), h.sort(dim=1)
    out = [sweep.GIVEN[given](torch.zeros(t.shape, dtype=t.dtype, device=D)) for t in want]
    strides = [t.stride() for t in out]
    with busy(D, 0.05):
        torch.sort(x, dim=1, out=tuple(out))
    assert given == "empty" or strides == [t.stride() for t in out]
    assert torch.equal(out[0].cpu(), want[0]) and torch.equal(out[1].cpu(), want[1])


def test_sweep_reports_failures(monkeypatch):
    kept_busy = []
    monkeypatch.setattr(sweep, "busy", kept_busy.append)

    class Wrong:
        """An operator with wrong results on the device."""

        name, supports_autograd = "wrong", False

        def __init__(self, f):
            self.f = f

        def sample_inputs(self, device, dtype, requires_grad):
            from torch.testing._internal.opinfo.core import SampleInput

            yield SampleInput(torch.ones(2, 3, device=device))

        def __call__(self, x):
            return self.f(x) if x.device.type == D else x + 1

    def otherwise(x):
        return (x + 1).t().contiguous().t() if kept_busy else (x + 1)

    for f, told in (
        (lambda x: x + 2, "idle: Differ: idle forward: Tensor-likes are not close"),
        (lambda x: (x + 1).double(), "idle forward: torch.float64"),
        (lambda x: (x + 1).t().contiguous().t(), "idle forward: strides"),
        (lambda x: (x + 1)[0], "(3,)"),
        (otherwise, "busy: strides"),
        (lambda x: x if kept_busy else (x + 1), "busy: Differ: busy forward"),
    ):
        kept_busy.clear()
        answer = sweep.one(Wrong(f), "float32", D, 1)
        assert answer["status"] == "fail" and told in answer["why"], answer
    assert sweep.one(Wrong(lambda x: x + 1), "float32", D, 1)["status"] == "ok"


def test_results_with_other_strides_than_inferred():
    h = torch.randn(5, 5)
    with busy(D, 0.05):
        values, vectors = torch.linalg.eig(h.to(D))
    assert torch.allclose((vectors @ torch.diag(values) @ vectors.inverse()).cpu().real, h, atol=1e-3)


@pytest.mark.parametrize("slow", [False, True])
def test_results_that_a_kernel_leaves_conjugated(slow):
    """linalg_lu_solve sets the conjugate bit of its result."""
    a, b = torch.randn(3, 3, dtype=torch.complex64), torch.randn(4, 3, dtype=torch.complex64)
    lu, pivots = torch.linalg.lu_factor(a)
    want = torch.linalg.lu_solve(lu, pivots, b, left=False)
    out = torch.empty(4, 3, dtype=torch.complex64, device=D)
    with busy(D, 0.05) if slow else contextlib.nullcontext():
        got = torch.linalg.lu_solve(lu.to(D), pivots.to(D), b.to(D), left=False)
        torch.linalg.lu_solve(lu.to(D), pivots.to(D), b.to(D), left=False, out=out)
        solved = torch.linalg.solve(a.to(D), b.to(D), left=False)
    for x in (got, out, solved):
        assert torch.allclose(x.cpu(), want, atol=1e-4)


def test_conjugates_in_place():
    h = torch.randn(3, dtype=torch.complex64)
    assert torch.equal(h.to(D).conj_physical_().cpu(), h.conj_physical())


@pytest.mark.filterwarnings("error")
def test_no_warning_that_the_cpu_does_not_give():
    x = torch.ones(3, device=D, requires_grad=True)
    F.smooth_l1_loss(x, torch.zeros(3, device=D)).backward()
    assert x.grad.tolist() == pytest.approx([1 / 3] * 3)


def test_zeros_without_memory():
    x = torch.randn(3, 3, device=D, requires_grad=True)
    torch.sgn(x).sum().backward()
    assert torch.equal(x.grad.cpu(), torch.zeros(3, 3))
    zeros = torch._efficientzerotensor((2, 2), device=D)
    assert zeros._is_zerotensor() and zeros.device.type == D and torch.equal((zeros + 1).cpu(), torch.ones(2, 2))
    assert torch.equal(zeros.clone().cpu(), torch.zeros(2, 2)) and torch.equal(zeros.cpu(), torch.zeros(2, 2))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_statistics_of_normalizations(training, dtype):
    """The CPU's statistics have other types and sizes than the Meta kernel's."""
    h = torch.randn(4, 3, 2, dtype=dtype)
    x = h.to(D)

    def all_of(t):
        ones = torch.ones(3, dtype=dtype, device=t.device)
        return [
            *torch.native_batch_norm(t, None, None, ones.clone(), ones.clone(), training, 0.1, 1e-5),
            *torch.native_batch_norm(t, ones.float(), ones.float(), ones.float(), ones.float(), training, 0.1, 1e-5),
            *torch.native_layer_norm(t, (2,), None, None, 1e-5),
        ]

    with busy(D, 0.05):
        got = all_of(x)
    for a, b in zip(got, all_of(h)):
        assert a.dtype == b.dtype and a.shape == b.shape and torch.allclose(a.cpu(), b)


def test_attention_is_the_cpus():
    h = [torch.randn(2, 3, 8, 16, requires_grad=True) for _ in range(3)]
    x = [t.detach().to(D).requires_grad_() for t in h]
    out = F.scaled_dot_product_attention(*x, is_causal=True)
    want = F.scaled_dot_product_attention(*h, is_causal=True)
    assert torch.equal(out.cpu(), want) and "FusedAttentionOverrideable" in type(out.grad_fn).__name__
    out.sum().backward()
    want.sum().backward()
    for a, b in zip(x, h):
        assert torch.equal(a.grad.cpu(), b.grad)
    mask = torch.zeros(8, 8, device=D, requires_grad=True)
    F.scaled_dot_product_attention(*x, attn_mask=mask).sum().backward()
    assert mask.grad is not None
