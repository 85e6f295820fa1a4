"""A small ResNet of basic blocks learns to tell patterns apart: stripes, squares, and rings, with noise.

    python resnet.py                # on zoom
    python resnet.py --device cpu   # the same losses, but for rounding
"""

import argparse
import collections
import functools
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

norm = functools.partial(nn.BatchNorm2d, momentum=0.3)


class Block(nn.Module):
    """Two convolutions with a shortcut around them, as in He et al., Deep Residual Learning."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, padding=1, bias=False)
        self.norm1 = norm(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.norm2 = norm(out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), norm(out))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, classes: int, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False), norm(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        blocks = [Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2)]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def pictures(n: int, size: int = 32) -> tuple[Tensor, Tensor]:
    """Pictures of four classes, which are made on the CPU: the same ones for every device."""
    at = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(at, at, indexing="ij")
    shapes = [torch.sin(9 * x), torch.sin(9 * y), (x.abs() + y.abs() < 0.7).float(), torch.cos(12 * (x * x + y * y))]
    classes = torch.arange(n) % len(shapes)
    pure = torch.stack([shapes[int(k)] for k in classes])[:, None]
    return pure * torch.rand(n, 3, 1, 1) + 0.3 * torch.randn(n, 3, size, size), classes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="zoom")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = ResNet(4).to(options.device)
    images, classes = (t.to(options.device) for t in pictures(16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    begun = time.perf_counter()
    before: collections.Counter[str] = collections.Counter()
    for step in range(options.steps):
        if options.device == "zoom":
            before = collections.Counter(torch.zoom.fallback_counts())
        loss = F.cross_entropy(model(images), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if options.device == "zoom" and step == options.steps - 1:
            last = collections.Counter(torch.zoom.fallback_counts()) - before
            print(f"fallbacks of step {step}: {last.total()}", *sorted(last))
        print(f"step {step}: loss {loss.item():.5f}")
    model.eval()
    right = (model(images).argmax(1) == classes).sum().item()
    print(f"{right} of {len(classes)} are right, in {time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    main()
