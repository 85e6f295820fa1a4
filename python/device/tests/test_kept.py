"""A CPU kernel may keep its tensors beyond the call: what it keeps has memory of its own."""

import contextlib

import pytest
import torch
from slow import busy, held

D = torch.device("accinte")


def reuse(n):
    """Tensors that get the memory that was freed last."""
    return [torch.full((n,), -1.0, device=D) for _ in range(8)]


@pytest.fixture
def library():
    library = torch.library.Library("kept", "DEF")
    yield library
    library._destroy()


def keeping(library, keep):
    """An operator whose CPU kernel puts keep(x) into a list."""
    kept = []

    def kernel(x):
        kept.append(keep(x))
        return x + 1

    library.define("keeps(Tensor x) -> Tensor")
    library.impl("keeps", kernel, "CPU")
    library.impl("keeps", torch.empty_like, "Meta")
    return torch.ops.kept.keeps, kept


@pytest.mark.parametrize("idle", [True, False])
@pytest.mark.parametrize("keep", [lambda x: x, lambda x: x[2:], lambda x: x.view(2, -1), lambda x: (x, x[:3])])
def test_an_input(library, keep, idle):
    op, kept = keeping(library, keep)
    x = torch.arange(256.0, device=D)
    with contextlib.nullcontext() if idle else held(D):
        y = op(x)
        x.fill_(7)
        del x
        others = reuse(256)
    torch.accinte.synchronize()
    want, got = keep(torch.arange(256.0)), kept.pop()
    for g, w in zip(got, want) if isinstance(want, tuple) else [(got, want)]:
        assert g.device.type == "cpu" and torch.equal(g, w)
    (got[0] if isinstance(want, tuple) else got).fill_(3)
    assert torch.equal(y.cpu(), torch.arange(1.0, 257)) and all((t == -1).all() for t in others)


def test_an_input_of_a_call_that_fails(library):
    kept = []

    def kernel(x):
        kept.append(x)
        raise ValueError("no")

    library.define("fails(Tensor x) -> Tensor")
    library.impl("fails", kernel, "CPU")
    x = torch.arange(256.0, device=D)
    with pytest.raises(ValueError, match="no"):
        torch.ops.kept.fails(x)
    del x
    others = reuse(256)
    assert torch.equal(kept[0], torch.arange(256.0)) and len(others) == 8


def test_an_input_of_a_graph(library):
    """Each replay of a graph keeps the input as it was then."""
    op, kept = keeping(library, lambda x: x)
    x = torch.zeros(64, device=D)
    graph = torch.accinte.Graph()
    with torch.accinte.graph(graph):
        y = op(x)
    for i in range(3):
        x.fill_(i)
        graph.replay()
        assert y.tolist() == [i + 1] * 64
    assert [t[0].item() for t in kept] == [0, 1, 2]


@pytest.mark.parametrize("idle", [True, False])
def test_a_temporary(library, idle):
    """A tensor of the size of the result, which the kernel makes first and keeps."""
    kept = []

    def kernel(x):
        kept.append(x * 2)
        return kept[-1] + 1

    library.define("caches(Tensor x) -> Tensor")
    library.impl("caches", kernel, "CPU")
    library.impl("caches", torch.empty_like, "Meta")
    with contextlib.nullcontext() if idle else held(D):
        y = torch.ops.kept.caches(torch.ones(256, device=D))
        z = y * 1
        del y
        others = reuse(256)
    assert (kept.pop() == 2).all() and (z == 3).all() and len(others) == 8


def test_a_view_that_reads(library):
    """An operator that returns a view of its input may also read it, and so waits for the stream's work."""
    seen = []

    def kernel(x):
        seen.append(x.sum().item())
        return x[1:]

    library.define("peeks(Tensor(a) x) -> Tensor(a)")
    library.impl("peeks", kernel, "CPU")
    x = torch.zeros(4, device=D)
    with busy(D, 0.05):
        x.fill_(5)
        view = torch.ops.kept.peeks(x)
    assert seen == [20] and view.data_ptr() == x.data_ptr() + 4


def test_prepacked_weights(monkeypatch):
    """The packed weights of a quantized layer keep the bias."""
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        pytest.skip("left out: this processor has no fbgemm")
    monkeypatch.setattr(torch.backends.quantized, "engine", "fbgemm")
    w = torch.quantize_per_tensor(torch.eye(4), 0.5, 0, torch.qint8).to(D)
    b = torch.full((4,), 8.0, device=D)
    packed = torch.ops.quantized.linear_prepack(w, b)
    x = torch.quantize_per_tensor(torch.zeros(1, 4), 0.5, 0, torch.quint8).to(D)
    del b
    others = reuse(4)
    for _ in range(2):
        assert torch.ops.quantized.linear(x, packed, 0.5, 0).dequantize().tolist() == [[8.0] * 4]
    assert len(others) == 8
