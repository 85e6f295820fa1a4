"""A small language model of Llama 3's form: it learns a text by heart, and continues its beginning.

    python llama3.py                # on zoom
    python llama3.py --device cpu   # the same losses, but for rounding
"""

import argparse
import dataclasses
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TEXT = "A kernel is written once, and compiled for the device on which it runs. " * 4


@dataclasses.dataclass
class Config:
    vocabulary: int = 128
    width: int = 64
    layers: int = 2
    heads: int = 8
    key_heads: int = 4  # each serves heads / key_heads heads
    hidden: int = 176
    theta: float = 500000.0
    length: int = 256  # tokens at most


def rotations(c: Config) -> Tensor:
    """The rotary embedding: an angle for each position and pair of elements of a head, as complex numbers."""
    size = c.width // c.heads
    frequencies = c.theta ** (-torch.arange(0, size, 2).float() / size)
    angles = torch.outer(torch.arange(c.length).float(), frequencies)
    return torch.polar(torch.ones_like(angles), angles)


def rotated(x: Tensor, by: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * by[:, None]).flatten(-2).type_as(x)


class Attention(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c, size = c, c.width // c.heads
        self.query = nn.Linear(c.width, c.heads * size, bias=False)
        self.key = nn.Linear(c.width, c.key_heads * size, bias=False)
        self.value = nn.Linear(c.width, c.key_heads * size, bias=False)
        self.out = nn.Linear(c.heads * size, c.width, bias=False)

    def forward(self, x: Tensor, by: Tensor, past: list[Tensor]) -> Tensor:
        size = self.c.width // self.c.heads
        q, k, v = (f(x).unflatten(-1, (-1, size)) for f in (self.query, self.key, self.value))
        q, k = rotated(q, by), rotated(k, by)
        if past:
            k, v = torch.cat([past[0], k], 1), torch.cat([past[1], v], 1)
        seen = [k, v]
        k, v = (t.repeat_interleave(self.c.heads // self.c.key_heads, 2) for t in seen)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=not past)
        past[:] = seen
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.attention, self.attention_norm = Attention(c), nn.RMSNorm(c.width, eps=1e-5)
        self.norm = nn.RMSNorm(c.width, eps=1e-5)
        self.gate, self.up = (nn.Linear(c.width, c.hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(c.hidden, c.width, bias=False)

    def forward(self, x: Tensor, by: Tensor, past: list[Tensor]) -> Tensor:
        x = x + self.attention(self.attention_norm(x), by, past)
        h = self.norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    rotations: Tensor

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.embedding = nn.Embedding(c.vocabulary, c.width)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.norm = nn.RMSNorm(c.width, eps=1e-5)
        self.head = nn.Linear(c.width, c.vocabulary, bias=False)
        self.register_buffer("rotations", rotations(c), persistent=False)

    def forward(self, tokens: Tensor, past: list[list[Tensor]] | None = None) -> Tensor:
        """The logits of each next token. ``past`` has the keys and values of earlier tokens, and takes these ones'."""
        past = [[] for _ in self.blocks] if past is None else past
        begin = past[0][0].shape[1] if past[0] else 0
        x = self.embedding(tokens)
        for block, own in zip(self.blocks, past):
            x = block(x, self.rotations[begin : begin + tokens.shape[1]], own)
        return self.head(self.norm(x))

    @torch.no_grad()
    def generate(self, tokens: Tensor, n: int) -> Tensor:
        """The tokens with the n most likely ones after them."""
        past: list[list[Tensor]] = [[] for _ in self.blocks]
        new = tokens
        for _ in range(n):
            new = self(new, past)[:, -1:].argmax(-1)
            tokens = torch.cat([tokens, new], 1)
        return tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="zoom")
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Llama(Config()).to(options.device)
    tokens = torch.tensor([list(TEXT[: Config.length].encode())], device=options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    begun = time.perf_counter()
    for step in range(options.steps):
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0 or step == options.steps - 1:
            print(f"step {step}: loss {loss.item():.4f}")
    print(f"{time.perf_counter() - begun:.1f} s")
    prompt = TEXT[:24]
    got = model.generate(torch.tensor([list(prompt.encode())], device=options.device), 48)
    print(bytes(got[0].tolist()).decode())


if __name__ == "__main__":
    main()
