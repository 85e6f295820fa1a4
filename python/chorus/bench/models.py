"""Steps of models, and the cost of communication in them."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from chorus import ddp_hook
from chorus.bench.harness import GLOO, KIB, ORDINARY, SHARED, Row, rounds, sample, size_text, tensor, time_text

_WORDS, _WIDTH, _LAYERS, _TOKENS = 2048, 256, 12, 32
HOOK, BARRIER = "hook", "barrier"
_DDP_KINDS = {
    GLOO: "Gloo",
    ORDINARY: "Chorus",
    HOOK: "Chorus, `chorus.ddp_hook`",
    BARRIER: "a barrier and nothing else",
}


def _transformer() -> torch.nn.Module:
    """10.5 M parameters."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(_WIDTH, 4, 4 * _WIDTH, dropout=0.0, batch_first=True)
    return torch.nn.Sequential(
        torch.nn.Embedding(_WORDS, _WIDTH),
        torch.nn.TransformerEncoder(layer, _LAYERS, enable_nested_tensor=False),
        torch.nn.Linear(_WIDTH, _WORDS),
    )


def ddp(gloo: Any, seconds: float) -> Row:
    """A step (forward, backward, SGD) of one sequence on every rank, by the process group of its gradients.

    "compute" is the step with a hook in DistributedDataParallel that divides the gradients, as its own does, and
    doesn't communicate. The other numbers are times on top of that: medians of the differences within a round. The
    kind "hook" is "ordinary" with all-reduces at the end of the backward pass. The kind "barrier" is the lower bound:
    ranks that wait for each other once.
    """
    x = torch.arange(_TOKENS).reshape(1, -1)

    def step_of(module: torch.nn.Module) -> Callable[[], object]:
        optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)

        def step() -> None:
            loss: Any = torch.nn.functional.cross_entropy(module(x).flatten(0, 1), x.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return step

    def divide(_, bucket):  # type: ignore[no-untyped-def]  # PyTorch refuses annotations that are strings
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer().div_(dist.get_world_size()))
        return future

    def divide_and_meet(_, bucket):  # type: ignore[no-untyped-def]
        if bucket.is_last():
            dist.barrier()
        return divide(_, bucket)  # type: ignore[no-untyped-call]

    hooks: dict[str, Any] = {"compute": divide, HOOK: ddp_hook, BARRIER: divide_and_meet}
    steps = {}
    for kind in ("compute", *_DDP_KINDS):
        group = gloo if kind == GLOO else None
        module = DistributedDataParallel(_transformer(), process_group=group, gradient_as_bucket_view=True)
        if kind in hooks:
            module.register_comm_hook(None, hooks[kind])
        steps[kind] = step_of(module)
    for step in steps.values():
        sample(step, 2)
    times = rounds({kind: functools.partial(sample, step, 1) for kind, step in steps.items()}, seconds, least=9)
    us = {"compute": statistics.median(times["compute"]) * 1e6}
    for kind in _DDP_KINDS:
        added = [t - c for t, c in zip(times[kind], times["compute"], strict=True)]
        us[kind] = statistics.median(added) * 1e6
    return Row("ddp", "step", 0, us)


def show_ddp(row: Row) -> Iterator[str]:
    compute = row.us["compute"]
    yield f"| DDP step, 10.5 M parameters; {time_text(compute)} without communication | added | share of the step | Gloo's share, times |"  # noqa: E501
    yield "|---|---:|---:|---:|"
    added = {kind: max(row.us[kind], 0) for kind in _DDP_KINDS}  # differences: noise can make them negative
    share = {kind: us / (compute + us) for kind, us in added.items()}
    for kind, title in _DDP_KINDS.items():
        times = f"{share[kind] / share[GLOO]:.2f}" if share[GLOO] > 0 else ""  # Gloo's time is within the noise
        yield f"| {title} | {time_text(added[kind])} | {share[kind]:.1%} | {times} |"


def inference(gloo: Any, seconds: float) -> Iterator[Row]:
    """The time that a tensor-parallel step spends in its all-reduces: two in each of eight layers.

    The weights of a layer are split between the ranks, and their results, of ``bytes``, are added up. Medians of the
    sum over a step. Each all-reduce counts with the time of the rank that enters it last: the others also wait for
    that rank's computation.
    """
    width, layers = 1024, 8
    size = dist.get_world_size()
    shapes = [(width, width // size), (width // size, width), (width, 4 * width // size), (4 * width // size, width)]
    weights = [[torch.randn(s) * 0.01 for s in shapes] for _ in range(layers)]
    for nbytes in (16 * KIB, 64 * KIB, 256 * KIB):
        tokens = nbytes // 4 // width

        def take(kind: str, tokens: int = tokens) -> Callable[[], float]:
            group = gloo if kind == GLOO else None
            out = tensor(tokens * width, kind).reshape(tokens, width)

            def step() -> float:
                x, spent = torch.ones(tokens, width), []
                dist.barrier()
                for layer in weights:
                    for into, back in (layer[:2], layer[2:]):
                        torch.mm(torch.relu(x @ into), back, out=out)
                        begin = time.perf_counter()
                        dist.all_reduce(out, group=group)
                        spent.append(time.perf_counter() - begin)
                        x = x + out
                least = torch.tensor(spent, dtype=torch.float64)
                dist.all_reduce(least, op=dist.ReduceOp.MIN)
                return float(least.sum())

            return step

        times = rounds({kind: take(kind) for kind in (GLOO, ORDINARY, SHARED)}, seconds)
        yield Row("inference", "step", nbytes, {kind: statistics.median(t) * 1e6 for kind, t in times.items()})


def show_inference(rows: list[Row]) -> Iterator[str]:
    yield "| in 16 all_reduce of a tensor-parallel step, of | Gloo | Chorus | faster | `chorus.empty` | faster |"
    yield "|---|---:|---:|---:|---:|---:|"
    for row in rows:
        cells = [time_text(row.us[GLOO])]
        for kind in (ORDINARY, SHARED):
            cells += [time_text(row.us[kind]), f"{row.us[GLOO] / row.us[kind]:.1f}x"]
        yield f"| {size_text(row.bytes)} | {' | '.join(cells)} |"
