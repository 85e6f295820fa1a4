"""Models that are trained as compiled programs with generated kernels, beside eager mode on the same device."""

import copy
import importlib.util
import pathlib

import chorus_device
import pytest
import torch
import torch.nn.functional as F
from chorus_device.codegen.launching import Source
from torch import nn

pytestmark = pytest.mark.long

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture(autouse=True)
def _generated(monkeypatch):
    monkeypatch.setenv("CHORUS_COMPILED_KERNELS", "device")
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Block(nn.Module):
    """Two convolutions with a shortcut around."""

    def __init__(self, channels, to, stride):
        super().__init__()
        self.first = nn.Conv2d(channels, to, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(to, to, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(to) for _ in range(3))
        self.shortcut = nn.Conv2d(channels, to, 1, stride, bias=False)

    def forward(self, x):
        y = self.norms[0](self.first(x)).relu()
        return (self.norms[1](self.second(y)) + self.norms[2](self.shortcut(x))).relu()


def images():
    """A small ResNet, and what it's trained on."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), Block(8, 8, 1), Block(8, 16, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5),
    )  # fmt: skip
    return model, F.cross_entropy, (torch.randn(8, 3, 16, 16),), torch.randint(5, (8,))


def sentences():
    """The transformer of the examples, with dropout."""
    spec = importlib.util.spec_from_file_location("transformer", EXAMPLES / "transformer.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    tokens, there, wanted = example.sequences(8, 12, 16)
    loss = lambda y, wanted: F.cross_entropy(y.flatten(0, 1), wanted.flatten())  # noqa: E731
    return example.Transformer(16, 12, dropout=0.1), loss, (tokens, there), wanted


def steps(model, called, loss, given, wanted):
    """Ten steps: their losses, and the launches of the last one."""
    torch.manual_seed(5)
    losses = []
    for _ in range(10):
        before = chorus_device.kernels()["launched"]
        now = loss(called(*given), wanted)
        now.backward()
        losses.append(now.detach())
        launched = chorus_device.kernels()["launched"] - before
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.05 * p.grad
                p.grad = None
    return torch.stack(losses).cpu(), launched


@pytest.mark.parametrize("made", [sentences, images])
def test_ten_steps(made, monkeypatch):
    """Generated kernels are at most half as many as the launches in eager mode that they stand for: all but those of
    operators that both call, such as products and convolutions."""
    names, run = [], Source.run
    monkeypatch.setattr(Source, "run", lambda self, *given: (names.append(self.title), run(self, *given)))
    torch.manual_seed(1)
    model, loss, given, wanted = made()
    eager = model.to("zoom")
    own = copy.deepcopy(eager)
    given, wanted = [x.to("zoom") for x in given], wanted.to("zoom")
    want, launched = steps(eager, eager, loss, given, wanted)
    before = torch.zoom.fallback_counts()
    got, fewer = steps(own, torch.compile(own, fullgraph=True), loss, given, wanted)
    assert torch.zoom.fallback_counts() == before
    assert want[-1] < want[0]
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    for (name, a), b in zip(own.state_dict().items(), eager.state_dict().values(), strict=True):
        torch.testing.assert_close(a.cpu(), b.cpu(), rtol=1e-3, atol=1e-4, msg=lambda m, name=name: f"{name}: {m}")
    generated = len(names) // 10
    both = fewer - generated
    assert 0 < generated <= (launched - both) / 2, (launched, fewer, generated)
