import pytest
import torch
from chorus_device import sweep
from slow import busy
from torch.utils.checkpoint import checkpoint
from versions import since

D = "accinte"


def test_bits_are_those_of_the_cpu():
    """A device's numbers are those of a CPU generator with the same seed."""
    for draw in (torch.rand, torch.randn, lambda n, **k: torch.randint(1000, (n,), **k), torch.randperm):
        torch.manual_seed(7)
        got = draw(1000, device="accinte")
        assert torch.equal(got.cpu(), draw(1000, generator=torch.Generator().manual_seed(7)))


def test_each_device_has_its_own():
    torch.manual_seed(3)
    x, y = torch.rand(5, device="accinte:0"), torch.rand(5, device="accinte:1")
    h = torch.rand(5)
    assert torch.equal(x.cpu(), y.cpu()) and torch.equal(x.cpu(), h)
    assert not torch.equal(torch.rand(5, device="accinte:0"), x)
    assert torch.equal(torch.rand(5), torch.rand(5, device="accinte:1").cpu())  # both drew once more


def test_states():
    state = torch.accinte.get_rng_state()
    x = torch.rand(5, device="accinte")
    torch.accinte.set_rng_state(state)
    assert torch.equal(torch.rand(5, device="accinte"), x)
    states = torch.accinte.get_rng_state_all()
    assert len(states) == 2
    y = [torch.rand(3, device=f"accinte:{i}") for i in range(2)]
    torch.accinte.set_rng_state_all(states)
    assert all(torch.equal(torch.rand(3, device=f"accinte:{i}"), y[i]) for i in range(2))
    with torch.random.fork_rng(devices=[0], device_type="accinte"):
        torch.rand(9, device="accinte")
    again = torch.accinte.get_rng_state()
    assert torch.equal(again, torch.accinte.get_rng_state())


def test_generators():
    g = torch.Generator(device="accinte:1")
    assert g.device == torch.device("accinte:1")
    g.manual_seed(5)
    x = torch.rand(4, device="accinte:1", generator=g)
    assert g.initial_seed() == 5
    assert torch.equal(torch.rand(4, device="accinte:1", generator=g.manual_seed(5)), x)
    copy = g.clone_state() if hasattr(g, "clone_state") else None
    if copy is not None:
        assert torch.equal(copy.get_state(), g.get_state())
    with pytest.raises(RuntimeError, match="does not support get_offset.*use_philox"):
        torch.accinte.get_offset()
    with pytest.raises(RuntimeError, match="does not support set_offset.*use_philox"):
        torch.accinte.set_offset(4)


def test_seeds():
    torch.accinte.manual_seed_all(11)
    assert torch.accinte.initial_seed() == 11
    with torch.accinte.device(1):
        torch.accinte.manual_seed(12)
        assert torch.accinte.initial_seed() == 12
    assert torch.accinte.initial_seed() == 11
    assert torch.accinte.seed() == torch.accinte.initial_seed()
    torch.accinte.seed_all()
    assert torch.accinte.default_generators[1].initial_seed() == torch.accinte.initial_seed()


def test_dropout():
    x = torch.ones(1000, device="accinte", requires_grad=True)
    torch.manual_seed(1)
    y = torch.nn.functional.dropout(x, 0.5)
    torch.manual_seed(1)
    assert torch.equal(torch.nn.functional.dropout(x, 0.5), y) and 0 < (y == 0).sum() < 1000
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


@pytest.mark.parametrize("philox", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant, philox):
    """A recomputed pass draws the same numbers."""
    torch.accinte.use_philox(philox)
    try:
        x = torch.randn(32, 32, device=D, requires_grad=True)
        grads = []
        for run in (lambda f, x: f(x), lambda f, x: checkpoint(f, x, use_reentrant=reentrant)):
            torch.manual_seed(1)
            y = run(lambda x: torch.nn.functional.dropout(x.sin(), 0.5), x)
            torch.rand(7, device=D)
            y.sum().backward()
            grads.append(x.grad)
            x.grad = None
        assert torch.equal(*(g.cpu() for g in grads)) and grads[0].count_nonzero() < x.numel()
    finally:
        torch.accinte.use_philox(False)


def test_states_are_shared():
    """A "graphsafe" state is shared, not copied: both generators continue the same sequence."""
    g = torch.Generator(D).manual_seed(5)
    want = torch.rand(12, generator=torch.Generator().manual_seed(5))
    other = torch.Generator(D)
    got = [torch.rand(4, device=D, generator=g)]
    other.graphsafe_set_state(g.graphsafe_get_state())
    got += [torch.rand(4, device=D, generator=other), torch.rand(4, device=D, generator=g)]
    assert torch.equal(torch.cat(got).cpu(), want)
    with pytest.raises(RuntimeError, match="Expected a 'accinte:0' generator device but found 'accinte:1'"):
        g.graphsafe_set_state(torch.Generator("accinte:1"))
    own = torch.accinte.default_generators[0]
    torch.accinte.manual_seed(6)
    kept = own.graphsafe_get_state()
    own.graphsafe_set_state(g.manual_seed(5))
    with busy(D, 0.02):  # draws from the state at the time of the call
        lent = torch.rand(4, device=D)
        own.graphsafe_set_state(kept)
        mine = torch.rand(4, device=D)
    assert torch.equal(lent.cpu(), want[:4])
    assert torch.equal(mine.cpu(), torch.rand(4, generator=torch.Generator().manual_seed(6)))


def test_a_cpu_generator():
    """The CPU and a busy device draw from it in the order of the program."""
    g = torch.Generator().manual_seed(5)
    with busy(D, 0.05):
        x = torch.rand(4, device=D, generator=g)
        y = torch.rand(4, generator=g)
    assert torch.equal(torch.cat([x.cpu(), y]), torch.rand(8, generator=g.manual_seed(5)))


@since(2, 13, "PyTorch has no graphs of such devices")
def test_a_cpu_generator_in_a_capture():
    g = torch.Generator()
    with pytest.raises(RuntimeError, match="can't be captured: .* a generator of the CPU's: give it one of accinte's"):
        with torch.accinte.graph(torch.accinte.Graph()):
            torch.rand(4, device=D, generator=g)


@pytest.mark.parametrize("layout", sweep.LAYOUTS[1:], ids=lambda f: f.__name__)
def test_dropout_by_layout(layout):
    """The CPU's dropout uses other operators than a device's, which must drop the same elements."""
    h = layout(torch.rand(2, 3, 4, 5))
    x = layout(torch.rand(2, 3, 4, 5).to(D)).copy_(h)
    assert x.stride() == h.stride()
    torch.manual_seed(7)
    want = torch.nn.functional.dropout(h, 0.3)
    torch.manual_seed(7)
    got = torch.nn.functional.dropout(x, 0.3)
    assert torch.equal(got.cpu(), want) and got.stride() == want.stride()


def test_an_operator_without_a_generator():
    """It draws from the device's generator, with the CPU's bits, and leaves the CPU's generator alone."""
    h = torch.rand(3, 50)
    torch.manual_seed(7)
    want = torch.native_dropout(h, 0.3, True)
    torch.manual_seed(7)
    state = torch.get_rng_state()
    got = torch.native_dropout(h.to(D), 0.3, True)
    assert all(torch.equal(a.cpu(), b) for a, b in zip(got, want, strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    kept, mask = torch.native_dropout(h.to(D), 0.3, False)
    assert torch.equal(kept.cpu(), h) and mask.all()


def test_seeds_wait_for_pending_draws():
    """A program's numbers don't depend on how busy the stream is."""
    torch.manual_seed(3)
    want = [torch.randn(5), torch.randn(5)]
    state = torch.get_rng_state()
    torch.manual_seed(4)
    want.append(torch.randn(5))
    torch.accinte.manual_seed(3)
    with busy("accinte", 0.05):
        got = [torch.randn(5, device="accinte"), torch.randn(5, device="accinte")]
        assert torch.equal(torch.accinte.get_rng_state(), state)
    with busy("accinte", 0.05):
        torch.accinte.manual_seed(3)
        torch.randn(10, device="accinte")
        torch.accinte.manual_seed(4)
        got.append(torch.randn(5, device="accinte"))
    for a, b in zip(got, want):
        assert torch.equal(a.cpu(), b)


def test_streams_draw_in_the_order_of_the_program():
    torch.manual_seed(3)
    want = [torch.rand(5) for _ in range(3)]
    torch.accinte.manual_seed(3)
    got = []
    with torch.Stream("accinte"), busy("accinte", 0.05):
        got.append(torch.rand(5, device="accinte"))
        with torch.Stream("accinte"):
            got.append(torch.rand(5, device="accinte"))
        got.append(torch.rand(5, device="accinte"))
    torch.accinte.synchronize()
    for a, b in zip(got, want):
        assert torch.equal(a.cpu(), b)


@pytest.fixture
def philox():
    torch.accinte.use_philox()
    yield
    torch.accinte.use_philox(False)


def near(x, *want):
    return torch.allclose(x.cpu(), torch.tensor(want), atol=0.51e-4, rtol=0)


def test_numbers_of_cuda(philox):
    """The numbers of PyTorch on CUDA with the seeds 0 and 42."""
    for seed, rand, randn in (
        (0, (0.3990, 0.5167, 0.0249, 0.9401, 0.9459), (-0.9247, -0.4253, -2.6438, 0.1452, -0.1209)),
        (42, (0.6130, 0.0101, 0.3984, 0.0403, 0.1563), (0.1940, 2.1614, -0.1721, 0.8491, -1.9244)),
    ):
        torch.manual_seed(seed)
        assert near(torch.rand(5, device=D), *rand) and torch.accinte.get_offset() == 4
        g = torch.Generator("accinte:1").manual_seed(seed)
        assert near(torch.randn(5, device="accinte:1", generator=g), *randn) and torch.accinte.get_offset(1) == 0
    torch.manual_seed(0)
    x = torch.rand(5, 7, device=D)
    torch.manual_seed(0)
    assert torch.equal(torch.empty(5, 7, device=D).t().uniform_(), x.t())  # in the order of addresses


def test_states_of_cuda(philox):
    torch.manual_seed(3)
    torch.rand(1000, device=D)
    state = torch.accinte.get_rng_state()
    assert state.tolist() == [3, *[0] * 7, 4, *[0] * 7]
    want = [torch.randn(9, device=D, dtype=t).tolist() for t in (torch.float64, torch.bfloat16)]
    want.append(torch.randint(1 << 40, (5,), device=D).tolist())
    torch.accinte.set_rng_state(state)
    got = [torch.randn(9, device=D, dtype=t).tolist() for t in (torch.float64, torch.bfloat16)]
    assert [*got, torch.randint(1 << 40, (5,), device=D).tolist()] == want
    g = torch.Generator(D).manual_seed(3)
    g.set_offset(4)
    assert torch.randn(9, device=D, dtype=torch.float64, generator=g).tolist() == want[0] and g.get_offset() > 4
    with pytest.raises(RuntimeError, match="multiple of 4"):
        g.set_offset(3)
    with pytest.raises(RuntimeError, match="16 bytes"):
        g.set_state(torch.Generator().get_state())


def test_distributions_of_cuda(philox):
    torch.manual_seed(1)
    x = torch.empty(20_000, device=D)
    for fill, low, high in (
        (lambda: x.uniform_(2, 4), 2.98, 3.02), (lambda: x.normal_(1, 2), 0.95, 1.05),
        (lambda: x.exponential_(2), 0.48, 0.52), (lambda: x.bernoulli_(0.3), 0.28, 0.32),
        (lambda: x.bernoulli_(torch.full_like(x, 0.7)), 0.68, 0.72), (lambda: x.geometric_(0.25), 3.9, 4.1),
        (lambda: x.random_(3, 8), 4.9, 5.1), (lambda: x.log_normal_(0, 0.1), 1.0, 1.01),
        (lambda: x.cauchy_().atan_(), -0.02, 0.02), (lambda: torch.bernoulli(torch.full_like(x, 0.1)), 0.09, 0.11),
        (lambda: torch.nn.functional.dropout(torch.ones_like(x), 0.5), 0.97, 1.03),
    ):  # fmt: skip
        assert low < fill().mean().item() < high, (low, high)
    assert torch.empty(1000, dtype=torch.int8, device=D).random_().min() >= 0
    assert torch.randn(4, dtype=torch.complex64, device=D).imag.ne(0).all()
    y = torch.zeros(4, 6, device=D)
    y[:, ::2].uniform_(1, 2)  # and nothing between
    assert y[:, ::2].ge(1).all() and y[:, 1::2].eq(0).all()
    whole = torch.empty(2000, dtype=torch.int64, device=D)
    assert 0.45 < whole.random_(-(1 << 63), None).lt(0).float().mean().item() < 0.55
    assert whole.random_(1 << 62, None).min().item() >= 1 << 62  # the largest integer is one of them
    mean = torch.tensor([0.0, 100.0], device=D).expand(20_000, 2)
    for got in (torch.normal(mean, 2.0), torch.normal(mean, mean / 100 + 1), torch.normal(100.0, mean / 100 + 1)):
        assert 99.95 < got[:, 1].mean().item() < 100.05
    with pytest.raises(RuntimeError, match="std >= 0"):
        x.normal_(0, -1)


def test_categories(philox):
    """A category is as frequent as its probability, and one of probability 0 never is drawn."""
    weights = torch.tensor([[1.0, 2.0, 0.0, 5.0], [0.0, 0.0, 3.0, 1.0]], device=D)
    for dtype in (torch.float32, torch.float64, torch.float16):
        got = torch.multinomial(weights.to(dtype), 8000, replacement=True)
        share = torch.nn.functional.one_hot(got.cpu(), 4).float().mean(1)
        assert (share - (weights / weights.sum(1, True)).cpu()).abs().max() < 0.03
        assert share.eq(0).equal(weights.cpu().eq(0))
    first = torch.stack([torch.multinomial(weights, 2) for _ in range(200)])
    assert first[:, 1].sort(-1)[0].eq(torch.tensor([2, 3], device=D)).all()  # no category twice
    assert 0.5 < first[:, 0, 0].eq(3).float().mean().item() < 0.75
    with pytest.raises(RuntimeError, match="invalid multinomial distribution"):
        torch.multinomial(torch.zeros(4, device=D), 1)


def test_numbers_of_the_host(philox):
    """Operators without CUDA's numbers draw new ones at each call, which the state determines."""
    rate = torch.full((1000,), 4.0, device=D)
    torch.manual_seed(3)
    one, two, permutation = torch.poisson(rate), torch.poisson(rate), torch.randperm(100, device=D)
    assert not torch.equal(one, two) and 3.7 < one.mean().item() < 4.3 and torch.accinte.get_offset() == 12
    assert torch.equal(permutation.sort()[0].cpu(), torch.arange(100))
    torch.manual_seed(3)
    with busy(D, 0.02):
        assert torch.equal(torch.poisson(rate), one) and torch.equal(torch.poisson(rate), two)
    g = torch.Generator(D).manual_seed(3)
    assert torch.equal(torch.poisson(rate, generator=g), one) and g.get_offset() == 4


def test_refused_types(philox):
    """Their errors are the CPU's."""
    for draw in ("normal_", "uniform_", "exponential_", "cauchy_", "log_normal_"):
        x = torch.ones(3, dtype=torch.int32)
        with pytest.raises((RuntimeError, NotImplementedError)) as want:
            getattr(x.clone(), draw)()
        with pytest.raises(type(want.value)) as got:
            getattr(x.to(D), draw)()
        assert str(got.value) == str(want.value)
    h = torch.rand(3, device=D, generator=torch.Generator().manual_seed(4))
    assert torch.equal(h.cpu(), torch.rand(3, generator=torch.Generator().manual_seed(4)))  # a generator of the host


@since(2, 13, "PyTorch has no graphs of such devices")
def test_graphs_draw_cudas_numbers(philox):
    x = torch.empty(5, device=D)
    g = torch.accinte.Graph()
    torch.manual_seed(0)
    with torch.accinte.graph(g):
        x.uniform_()
    seen = []
    for _ in range(2):
        g.replay()
        seen.append(x.tolist())
    torch.manual_seed(0)
    assert seen == [torch.rand(5, device=D).tolist() for _ in range(2)]
    with pytest.raises(RuntimeError, match="only from the device's own"), torch.accinte.graph(torch.accinte.Graph()):
        x.uniform_(generator=torch.Generator(D))


def test_philox_can_be_switched_off():
    torch.accinte.use_philox()
    torch.accinte.use_philox(False)
    assert torch.equal(
        torch.rand(4, device=D, generator=torch.Generator(D).manual_seed(1)).cpu(),
        torch.rand(4, generator=torch.Generator().manual_seed(1)),
    )
