"""A small transformer of PyTorch's own layers learns to reverse sequences of different lengths.

    python transformer.py                # on zoom
    python transformer.py --device cpu   # the same losses, but for rounding
"""

import argparse
import collections
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Layer(nn.Module):
    """Attention, then two linear layers, each with a normalization before and a shortcut around."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, mask)
        x = x + F.dropout(self.out(y.transpose(1, 2).flatten(2)), self.dropout, self.training)
        return x + self.wide(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self, vocabulary: int, length: int, width: int = 64, heads: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads, dropout) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor, there: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x, there[:, None, None])
        return self.head(self.norm(x))


def sequences(n: int, length: int, vocabulary: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, which of them are there, and what to say. They are made on the CPU: the same ones for every device."""
    lengths = torch.randint(length // 2, length + 1, (n,))
    tokens = torch.randint(1, vocabulary, (n, length))
    there = torch.arange(length) < lengths[:, None]
    back = (lengths[:, None] - 1 - torch.arange(length)).clamp(min=0)
    return tokens * there, there, tokens.gather(1, back).masked_fill(~there, -100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="zoom")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--dropout", type=float, default=0.0)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Transformer(16, 12, dropout=options.dropout).to(options.device)
    tokens, there, wanted = (t.to(options.device) for t in sequences(32, 12, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    begun = time.perf_counter()
    before: collections.Counter[str] = collections.Counter()
    for step in range(options.steps):
        if options.device == "zoom":
            before = collections.Counter(torch.zoom.fallback_counts())
        loss = F.cross_entropy(model(tokens, there).flatten(0, 1), wanted.flatten(), ignore_index=-100)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if options.device == "zoom" and step == options.steps - 1:
            last = collections.Counter(torch.zoom.fallback_counts()) - before
            print(f"fallbacks of step {step}: {last.total()}", *sorted(last))
        print(f"step {step}: loss {loss.item():.5f}")
    print(f"{time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    main()
