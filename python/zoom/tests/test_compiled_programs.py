"""Random programs that torch.compile makes generated kernels of, beside the CPU's eager mode. A program is drawn from a
seed; several are one function, so that kernels fuse them as inductor likes."""

import random

import pytest
import torch

pytestmark = [pytest.mark.usefixtures("_generated"), pytest.mark.long]

TOGETHER = 10  # programs of a function


@pytest.fixture
def _generated(monkeypatch):
    monkeypatch.setenv("CHORUS_COMPILED_KERNELS", "device")
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


# Results are continuous in the operands, and have their shape.
STEPS = {
    "sin": lambda x, y, i: torch.sin(x * 3),
    "gelu": lambda x, y, i: torch.nn.functional.gelu(x),
    "exp": lambda x, y, i: torch.exp(-x.abs()) - 0.5,
    "add": lambda x, y, i: x * 0.5 + y,
    "maximum": lambda x, y, i: torch.maximum(x, -y),
    "where": lambda x, y, i: torch.where(i.unsqueeze(-1) > 3, x, y),
    "flip": lambda x, y, i: x.flip(0) + y.flip(1),
    "roll": lambda x, y, i: x.roll(5, 1) - y,
    "transpose": lambda x, y, i: x.t().contiguous().reshape(x.shape) + y,
    "cat": lambda x, y, i: torch.cat([y[:, 1:], x[:, :1]], 1),
    "pad": lambda x, y, i: torch.nn.functional.pad(x, (2, 0, 0, 1))[1:, :-2] * y,
    "strided": lambda x, y, i: x[:, ::2].repeat_interleave(2, 1)[:, : x.shape[1]] * y,
    "gather": lambda x, y, i: x[i] + y,
    "columns": lambda x, y, i: x.gather(1, (i % x.shape[1]).unsqueeze(1)) - y,
    "index_add": lambda x, y, i: x.index_add(0, i, y) / 8,
    "softmax": lambda x, y, i: x.softmax(-1) * y * 4,
    "log_softmax": lambda x, y, i: y.log_softmax(0) / 8 + x,
    "layer_norm": lambda x, y, i: torch.nn.functional.layer_norm(x * 4, x.shape[1:]) * 0.2,
    "sum": lambda x, y, i: x.mean(0, keepdim=True) + y,
    "amax": lambda x, y, i: x - y.amax(1, keepdim=True),
    "var": lambda x, y, i: x.var(1, keepdim=True) * y,
    "prod": lambda x, y, i: (x[:, :5] + 1).prod(1, keepdim=True).tanh() * y,
    "all": lambda x, y, i: x + (y * y).sum() / y.numel(),
    "cumsum": lambda x, y, i: x.cumsum(1) / x.shape[1] + y,
    "bfloat16": lambda x, y, i: (x.bfloat16() * y.bfloat16()).float(),
    "half": lambda x, y, i: x.half().float() + y,
    "double": lambda x, y, i: (x.double().cos() * y).float(),
}


def drawn(seed):
    """A program's function and the names of its steps."""
    r = random.Random(seed)
    names = r.choices(list(STEPS), k=r.randint(2, 7))
    steps = [STEPS[n] for n in names]
    swaps = [r.random() < 0.4 for _ in steps]

    def run(x, y, i):
        for step, swap in zip(steps, swaps, strict=True):
            x, y = (y, step(x, y, i)) if swap else (step(x, y, i), y)
            x, y = x.clamp(-1, 1), y.clamp(-1, 1)
        return x, y

    return run, names


def operands(seed):
    r = random.Random(seed)
    rows, columns = r.choice([1, 3, 17, 64, 129]), r.choice([5, 31, 33, 100, 256, 700])
    g = torch.Generator().manual_seed(seed)
    values = [torch.rand(rows, columns, generator=g) * 2 - 1 for _ in range(2)]
    return [*values, torch.randint(0, rows, (rows,), generator=g)]


@pytest.mark.parametrize("first", range(0, 500, TOGETHER))
def test_programs(first):
    seeds = range(first, first + TOGETHER)
    programs = [drawn(s)[0] for s in seeds]
    given = operands(first)
    results = torch.compile(lambda *given: [p(*given) for p in programs])(*[x.to("zoom") for x in given])
    for seed, program, got in zip(seeds, programs, results, strict=True):
        for a, b in zip(got, program(*given), strict=True):
            said = f"seed {seed}, {tuple(given[0].shape)}: {drawn(seed)[1]}"
            torch.testing.assert_close(a.cpu(), b, rtol=1e-2, atol=1e-2, msg=lambda m, said=said: f"{said}\n{m}")
