import pytest
import torch
from slow import busy


def test_bits_are_those_of_the_cpu():
    """A device's numbers are what a CPU generator of the same seed would give."""
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
    with pytest.raises(RuntimeError, match="no offset"):
        torch.accinte.get_offset()
    with pytest.raises(RuntimeError, match="no offset"):
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


def test_seeds_wait_for_those_who_draw():
    """A program's numbers are the same however busy the stream is."""
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
