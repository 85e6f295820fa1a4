"""Shared by the tests of training: a model, data, and two runs side by side."""

import torch


def model(seed=0, width=16, buffers=False):
    torch.manual_seed(seed)
    norm = [torch.nn.BatchNorm1d(width)] if buffers else []
    return torch.nn.Sequential(
        torch.nn.Linear(8, width), *norm, torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU(),
        torch.nn.Linear(width, 4),
    )  # fmt: skip


def batch(rank, step, rows=6):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(rows, 8, generator=generator), torch.randn(rows, 4, generator=generator)


def steps(module, parameters, rank, n=4, lr=0.1, loss_of=None):
    """Train and return the parameters after each step."""
    optimizer = torch.optim.SGD(module.parameters(), lr=lr)
    history = []
    for step in range(n):
        x, y = batch(rank, step)
        loss = torch.nn.functional.mse_loss(module(x), y) if loss_of is None else loss_of(module, x, y, step)
        if loss is not None:
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        history.append([p.detach().clone() for p in parameters()])
    return history


def compare(ours, theirs, world_size):
    """Compare parameters: two ranks have one possible order of sums; with more the last bit may differ."""
    assert len(ours) == len(theirs) > 0
    for step, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        for x, y in zip(a, b, strict=True):
            if world_size <= 2:
                assert torch.equal(x, y), f"step {step}: off by {(x - y).abs().max()}"
            else:
                torch.testing.assert_close(x, y)
