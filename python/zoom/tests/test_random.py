"""Random numbers of torch.device("zoom"): those of torch.cuda."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

D = "zoom"


def near(x, *want):
    return torch.allclose(x.cpu(), torch.tensor(want), atol=0.51e-4, rtol=0)


def test_numbers_are_cudas():
    torch.manual_seed(0)
    assert near(torch.rand(5, device=D), 0.3990, 0.5167, 0.0249, 0.9401, 0.9459)
    assert torch.zoom.get_rng_state().tolist() == [0] * 8 + [4] + [0] * 7  # a seed and an offset
    torch.zoom.manual_seed(42)
    assert near(torch.randn(5, device=D), 0.1940, 2.1614, -0.1721, 0.8491, -1.9244)
    g = torch.Generator(D).manual_seed(0)
    assert near(torch.rand(2, device=D, generator=g), 0.3990, 0.5167) and g.get_offset() == 4
    assert torch.zoom.initial_seed() == 42 and g.initial_seed() == 0


def test_states():
    torch.zoom.manual_seed_all(5)
    torch.rand(3, device=D)
    states = torch.zoom.get_rng_state_all()
    assert len(states) == torch.zoom.device_count() and states[0][8] == 4
    want = torch.randn(4, device=D)
    with torch.random.fork_rng(devices=[0], device_type=D):
        torch.rand(9, device=D)
    assert torch.zoom.get_offset() == 8
    torch.zoom.set_rng_state_all(states)
    assert torch.equal(torch.randn(4, device=D), want)
    torch.zoom.set_rng_state(states[0], "zoom:0")
    assert torch.equal(torch.randn(4, device=D), want)
    torch.zoom.set_offset(4)
    assert torch.equal(torch.randn(4, device=D), want)
    with pytest.raises(RuntimeError, match="16 bytes"):
        torch.zoom.set_rng_state(torch.get_rng_state())


@pytest.mark.parametrize("reentrant", [False, pytest.param(True, marks=pytest.mark.long)])
def test_checkpoints(reentrant):
    """A recomputed pass drops the same elements."""
    x = torch.ones(500, device=D, requires_grad=True)
    y = checkpoint(lambda x: torch.nn.functional.dropout(x, 0.5), x, use_reentrant=reentrant)
    torch.rand(7, device=D)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach()) and 0 < x.grad.count_nonzero().item() < 500


def test_the_cpus_numbers():
    """They are there, too; either way generators restart from their seeds."""
    torch.manual_seed(3)
    first = torch.rand(4, device=D)
    torch.zoom.use_philox(False)
    try:
        assert torch.equal(torch.rand(4, device=D).cpu(), torch.rand(4, generator=torch.Generator().manual_seed(3)))
    finally:
        torch.zoom.use_philox()
    assert torch.equal(torch.rand(4, device=D), first)


@pytest.mark.long
def test_graphs_draw_new_numbers():
    """Each replay draws what the calls would have drawn: distributions, dropout, attention and its gradients."""
    x = torch.linspace(-1, 1, 2 * 3 * 8 * 16, device=D).reshape(2, 3, 8, 16).requires_grad_()

    def step():
        y = torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5)
        y = torch.nn.functional.dropout(y, 0.25)
        (grad,) = torch.autograd.grad(y.square().sum(), x)
        return y.detach(), grad, torch.rand(5, device=D), torch.bernoulli(torch.full((5,), 0.5, device=D))

    stream = torch.Stream(D)
    torch.zoom.synchronize()
    with stream:
        step()  # compiles the kernels
        graph = torch.zoom.Graph()
        with torch.zoom.graph(graph, stream=stream):
            got = step()
        torch.zoom.manual_seed(3)
        seen = []
        for _ in range(3):
            graph.replay()
            seen.append([t.clone() for t in got])
        torch.zoom.manual_seed(3)
        wanted = [step() for _ in range(3)]
    torch.zoom.synchronize()
    for a, b in zip(seen, wanted, strict=True):
        for t, u in zip(a, b, strict=True):
            torch.testing.assert_close(t, u)
    assert not torch.equal(seen[0][0], seen[1][0]) and not torch.equal(seen[0][2], seen[2][2])


def outcome(f):
    try:
        return f()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("bad", [1.5, -0.5, float("nan")])
def test_numbers_that_are_no_probabilities(bad):
    """They have the CPU's errors, at once."""
    number, aten = torch.tensor(bad), torch.ops.aten
    for f in (
        lambda x: x.clone().bernoulli_(bad),
        lambda x: torch.bernoulli(x, bad),
        lambda x: x.clone().bernoulli_(number),
        lambda x: x.clone().bernoulli_(number.double()),
        lambda x: x.clone().geometric_(bad),
        lambda x: torch.nn.functional.dropout(x, bad),
        lambda x: torch.dropout(x, bad, True),
        lambda x: torch.dropout_(x.clone(), bad, True),
        lambda x: torch.feature_dropout(x, bad, True),
        lambda x: torch.alpha_dropout(x, bad, True),
        lambda x: torch.native_dropout(x, bad, True),
        lambda x: torch.native_dropout(x, bad, None),
        lambda x: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=bad),
        lambda x: aten.rrelu_with_noise(x, x.clone(), 1.0, bad, True) if bad < 1 else torch.rrelu(x, bad, 1.0, True),
    ):
        want = outcome(lambda f=f: f(torch.ones(2, 4, 8)))
        got = outcome(lambda f=f: f(torch.ones(2, 4, 8, device=D)))
        if not isinstance(want, tuple) or isinstance(want[0], torch.Tensor):
            want, got = type(want), type(got)
        assert got == want
    for f in (
        lambda x: x.bernoulli_(number),
        lambda x: torch.native_dropout(x, bad, True)[0],
        lambda x: torch.native_dropout(x + 1, bad, False)[0],
    ):
        assert f(torch.empty(0, device=D)).shape == (0,)
    assert torch.native_dropout(torch.ones(3, device=D), bad, False)[0].tolist() == [1, 1, 1]


def test_tensors_that_are_no_probabilities():
    """Kernels take what is less than 0 or no number as 0, and what is more than 1 as 1."""
    p = torch.tensor([-0.5, 1.5, float("nan"), 0.0, 1.0], device=D)
    for dtype in (torch.float32, torch.float64, torch.float16):
        assert torch.bernoulli(p.to(dtype)).tolist() == [0, 1, 0, 0, 1]
    assert torch.zeros(5, dtype=torch.int64, device=D).bernoulli_(p).tolist() == [0, 1, 0, 0, 1]
