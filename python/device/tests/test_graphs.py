"""Graphs: work that is captured once and replayed many times."""

import warnings

import pytest
import torch
from versions import since

pytestmark = since(2, 13, "PyTorch has no graphs of such devices")

D = "accinte"


def test_replay():
    x = torch.ones(4, device=D)
    g = torch.accinte.Graph()
    with torch.accinte.graph(g):
        assert torch.accinte.is_current_stream_capturing()
        y = x * 2 + 1
        parts = torch._foreach_add([x, y], 1)
        y[0] = 0
    assert not torch.accinte.is_current_stream_capturing()
    for value in (3.0, 5.0):
        x.fill_(value)
        g.replay()
        torch.accinte.synchronize()
        assert y.tolist() == [0] + 3 * [value * 2 + 1] and parts[1].tolist() == 4 * [value * 2 + 2]


def test_results_with_other_strides_on_the_cpu():
    """A captured operator's results have the Meta kernel's strides, also for the CPU's padding, which has others."""
    F = torch.nn.functional
    images = torch.zeros(2, 3, 4, 4, device=D).contiguous(memory_format=torch.channels_last)
    weight = torch.rand(3, 3, 2, 2)
    own = weight.to(D)
    g = torch.accinte.Graph()
    with torch.accinte.graph(g):
        padded = F.pad(images, (1, 1, 1, 1), mode="replicate"), F.pad(images, (1, 2, 1, 1), mode="reflect")
        convolved = F.conv2d(images, own)
        rolled = torch.roll(images, 1, 1)
        less = torch.logical_and(images > 0.5, images.transpose(2, 3) < 0.5)
    for _ in range(2):
        h = torch.rand(2, 3, 4, 4)
        images.copy_(h)
        g.replay()
        assert torch.equal(padded[0].cpu(), F.pad(h, (1, 1, 1, 1), mode="replicate"))
        assert torch.equal(padded[1].cpu(), F.pad(h, (1, 2, 1, 1), mode="reflect"))
        torch.testing.assert_close(convolved.cpu(), F.conv2d(h, weight))
        assert torch.equal(rolled.cpu(), torch.roll(h, 1, 1))
        assert torch.equal(less.cpu(), torch.logical_and(h > 0.5, h.transpose(2, 3) < 0.5))


def test_random_numbers_are_new_at_each_replay():
    g = torch.accinte.Graph()
    with torch.accinte.graph(g):
        r = torch.rand(3, device=D)
    torch.manual_seed(5)
    want = [torch.rand(3) for _ in range(3)]
    torch.accinte.manual_seed(5)
    got = []
    for _ in range(2):
        g.replay()
        got.append(r.cpu())
    got.append(torch.rand(3, device=D).cpu())
    assert all(torch.equal(a, b) for a, b in zip(got, want))


def test_a_training_step():
    def build():
        torch.manual_seed(2)
        model = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.GELU(), torch.nn.Linear(8, 1)
        ).to(D)
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    def step(model, optimizer, x):
        optimizer.zero_grad(set_to_none=False)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    data = [torch.randn(6, 4, device=D) for _ in range(4)]
    model, optimizer = build()
    want = [step(model, optimizer, x).item() for x in data]
    model, optimizer = build()
    first = step(model, optimizer, data[0]).item()  # makes the gradients
    x = data[1].clone()
    g = torch.accinte.Graph()
    with torch.accinte.graph(g):
        loss = step(model, optimizer, x)
    got = [first]
    for d in data[1:]:
        x.copy_(d)
        g.replay()
        got.append(loss.item())
    assert got == want


def test_pools():
    pool = torch.accinte.graph_pool_handle()
    x = torch.ones(1 << 16, device=D)
    first, second = torch.accinte.Graph(), torch.accinte.Graph()
    with torch.accinte.graph(first, pool=pool):
        (x + 1).sum()  # dropped in the capture
    with torch.accinte.graph(second, pool=pool):
        y = x + 2
    assert first.pool() == second.pool() == pool
    first.replay()
    second.replay()
    assert y[0].item() == 3 and torch.accinte.memory_snapshot(pool)
    assert torch.accinte.memory_snapshot(torch.accinte.graph_pool_handle()) == []


def test_operators_that_cannot_be_captured():
    x = torch.ones(4, device=D)
    g = torch.accinte.Graph()
    with pytest.raises(RuntimeError, match="can't be captured: the host needs its result, or the result's shape"):
        with torch.accinte.graph(g):
            x.nonzero()
    stream = torch.Stream(D)
    with stream:
        torch.rand(2, device=D)
    with pytest.raises(RuntimeError, match="can't be read or set while its draws are being captured"):
        with torch.accinte.graph(torch.accinte.Graph(), stream=stream):
            torch.rand(2, device=D)
            torch.accinte.get_rng_state()
    assert (x + 1).tolist() == [2, 2, 2, 2]
    with pytest.raises(RuntimeError, match="has not been captured"):
        torch.accinte.Graph().replay()


def test_work_that_is_not_joined():
    """The error says what the program lacks: a stream's wait, or that of an asynchronous operation."""
    x, side = torch.ones(4, device=D), torch.accinte.Stream()
    with pytest.raises(RuntimeError, match="was not joined: before the end, .* an event behind it, or for the Work of"):
        with torch.accinte.graph(torch.accinte.Graph()):
            side.wait_stream(torch.accinte.current_stream())
            with side:
                x.add_(1)


def test_reset(tmp_path):
    x = torch.ones(4, device=D)
    g = torch.accinte.Graph()
    with torch.accinte.graph(g):
        x.add_(1)
    g.debug_dump(str(tmp_path / "graph.dot"))
    assert "aten::add" in (tmp_path / "graph.dot").read_text()
    with pytest.raises(RuntimeError, match="reset"):
        g.capture_begin()
    g.reset()
    with torch.accinte.graph(g):
        x.add_(2)
    g.replay()
    assert x.tolist() == [3, 3, 3, 3]


def test_collectives(pair):
    for told in pair.run(collect):
        assert told == [[6.0, 6.0], [14.0, 14.0]]


def collect(peers):
    import torch.distributed as dist

    rank = peers.rank
    x = torch.zeros(2, device=f"accinte:{rank}")
    torch.accinte.set_device(rank)
    dist.all_reduce(x)  # binds the communicator to the device
    g = torch.accinte.Graph()
    with torch.accinte.graph(g):
        y = x * 2
        dist.all_reduce(y)
    told = []
    for value in (1.0, 3.0):
        x.fill_(value + rank)
        torch.accinte.synchronize()
        g.replay()
        told.append(y.tolist())
    torch.accinte.set_device(0)
    return told


def test_graphed_callables():
    """Training with modules whose passes are graphs equals training without, and autograd warns about no stream."""
    import copy

    torch.manual_seed(3)
    first = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()).to("accinte")
    second = torch.nn.Linear(8, 2).to("accinte")
    eager = copy.deepcopy(torch.nn.Sequential(first, second))
    sample = torch.randn(16, 4, device="accinte")
    inner = torch.randn(16, 8, device="accinte", requires_grad=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="The AccumulateGrad node's stream")
        torch.accinte.make_graphed_callables((first, second), ((sample,), (inner,)))
    graphed = torch.nn.Sequential(first, second)
    losses = []
    for model in (eager, graphed):
        steps = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(4)
        for _ in range(5):
            x, y = torch.randn(16, 4, device="accinte"), torch.randn(16, 2, device="accinte")
            steps.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            steps.step()
            losses.append(loss.item())
    assert losses[:5] == losses[5:]
    for a, b in zip(eager.parameters(), graphed.parameters()):
        assert torch.equal(a.cpu(), b.cpu())
    first.eval()  # the graphs are for training mode
    assert torch.equal(first(sample[:3]).cpu(), eager[0](sample[:3]).cpu())
    f = torch.accinte.make_graphed_callables(lambda a, b: {"sum": a + b, "product": a * b}, (sample, sample))
    got = f(sample, sample * 2)
    assert torch.equal(got["sum"].cpu(), (sample * 3).cpu())
    assert torch.equal(got["product"].cpu(), (2 * sample**2).cpu())
