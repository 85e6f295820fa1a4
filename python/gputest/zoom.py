"""The process of one rank on ``torch.device("zoom")``, and its checks: results beside the CPU's, collectives, and speed
beside a copy and beside PyTorch's own device."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from gputest import check as _check
from gputest.check import Came, Check

CHECKS: list[Check] = []
ENVIRONMENT = {"CHORUS_TORCH_DEVICE": "zoom"}  # chorus_device registers one device, and others may be installed
ELEMENTS = 64 << 20  # of a tensor whose operators are timed: more than any cache has
BANDWIDTH, LAUNCH = 0.9, 1.3  # of a copy's; of the time of PyTorch's own
ROUNDS, CALLS = 9, 200


def check(name: str, title: str, expected: str, **options: Any) -> Any:
    """Decorates a function: makes it the next check of this module."""
    return _check.check(name, title, expected, CHECKS, environment=ENVIRONMENT, **options)


class Rank:
    """The argument of a check's function: the rank's device, and PyTorch's own for the same GPU if it has one."""

    def __init__(self, index: int, elements: int = ELEMENTS) -> None:
        import torch_zoom  # PyTorch finds the device by itself only if the package is installed

        self.versions = torch_zoom.version
        self.device, self.elements = torch.device("zoom", index), elements
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.own = torch.device("cuda", index) if torch.cuda.is_available() else None
        torch.zoom.set_device(index)
        torch.ones(1, device=self.device).item()


@check("Z1", "the device", "a GPU, by HIP or CUDA")
def device(rank: Rank) -> Came:
    by = {name: getattr(rank.versions, name) for name in ("hip", "cuda", "opencl")}
    said = ", ".join(f"{name} {version}" for name, version in by.items() if version)
    return bool(by["hip"] or by["cuda"]), f"{torch.zoom.get_device_name(rank.device)}, {said}"


# Functions of tensors with 129 x 257 elements, whose gradients are compared as well.
FUNCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "elementwise": lambda x, y: torch.exp(-x * x) + torch.sin(y),
    "sum": lambda x, y: (x * y).sum(1),
    "softmax": lambda x, y: torch.softmax(x, 1) * y,
    "layer_norm": lambda x, y: F.layer_norm(x, (257,)) * y,
    "matmul": lambda x, y: x @ y.T,
    "transposed": lambda x, y: x.T.contiguous() * y.T,
    "index_select": lambda x, y: x[torch.arange(0, 129, 2, device=x.device)] + y[::2],
    "cumsum": lambda x, y: torch.cumsum(x, 1) * y,
    "sort": lambda x, y: torch.sort(x, 1).values * y,
    "conv2d": lambda x, y: F.conv2d(x[:128, :256].reshape(2, 16, 32, 32), y[:16, :144].reshape(16, 16, 3, 3)),
    "max_pool2d": lambda x, y: F.max_pool2d(x[:128, :256].reshape(2, 16, 32, 32), 2),
    "attention": lambda x, y: F.scaled_dot_product_attention(*(z[:128, :256].reshape(2, 4, 64, 64) for z in (x, y, x))),
}


@check("Z2", "operators, forward and backward", "the CPU's results", seconds=180)
def results(rank: Rank) -> Came:
    wrong = []
    x, y = (torch.randn(129, 257, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    for name, function in FUNCTIONS.items():
        came = []
        for where in (torch.device("cpu"), rank.device):
            a, b = (z.clone().to(where).requires_grad_() for z in (x, y))
            out = function(a, b)
            out.backward(torch.ones_like(out))
            came.append([z.cpu() for z in (out.detach(), a.grad, b.grad) if z is not None])
        if len(came[0]) != len(came[1]) or not all(
            torch.allclose(p, q, 1e-3, 1e-3) for p, q in zip(came[0], came[1])
        ):
            wrong.append(name)
    return not wrong, ", ".join(wrong) or "all of them"


@check("Z3", "20 steps of training", "the CPU's loss", seconds=120)
def training(rank: Rank) -> Came:
    losses = []
    for where in (torch.device("cpu"), rank.device):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 10))
        x, y = torch.randn(256, 64).to(where), (torch.arange(256) % 10).to(where)
        optimizer = torch.optim.AdamW(model.to(where).parameters(), lr=1e-2)
        for _ in range(20):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    return abs(losses[0] - losses[1]) <= 1e-3 * losses[0], f"{losses[1]:.5f}, and the CPU's {losses[0]:.5f}"


@check("Z4", "an all-reduce", "the sum", ranks=2, seconds=120)
def collective(rank: Rank) -> Came:
    import torch.distributed as dist

    import chorus

    chorus.register()
    dist.init_process_group("chorus")
    x = torch.full((1 << 20,), rank.rank + 1.0, device=rank.device)
    dist.all_reduce(x)
    total = rank.size * (rank.size + 1) / 2
    right = bool((x == total).all())
    dist.destroy_process_group()
    return right, f"{x[0].item():g} of {total:g}"


@check(
    "Z5",
    f"elementwise operators of {ELEMENTS >> 20} Mi elements, beside a copy",
    f"at least {BANDWIDTH} of its bytes in a second",
)
def elementwise(rank: Rank) -> Came:
    x, y, out = (torch.ones(rank.elements, device=rank.device) for _ in range(3))
    calls: dict[str, tuple[int, Callable[[], Any]]] = {  # with the tensors that are read and written
        "a copy": (2, lambda: out.copy_(x)),
        "add": (3, lambda: torch.add(x, y, out=out)),
        "mul by a number": (2, lambda: torch.mul(x, 1.5, out=out)),
        "exp": (2, lambda: torch.exp(x, out=out)),
    }
    rates: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, (tensors, call) in calls.items():
            begin, end = (torch.zoom.Event(enable_timing=True) for _ in range(2))
            call()
            begin.record()
            for _ in range(5):
                call()
            end.record()
            end.synchronize()
            rates[name].append(5 * tensors * 4 * rank.elements / begin.elapsed_time(end) / 1e6)
    median = {name: statistics.median(r) for name, r in rates.items()}
    worst = min(median.values()) / median["a copy"]
    said = (f"{name} {m:.0f} GB/s, {m / median['a copy']:.2f}" for name, m in median.items())
    return worst >= BANDWIDTH, "; ".join(said)


@check("Z6", "a launch of 64 elements from Python, beside PyTorch's own device", f"at most {LAUNCH} of its time")
def launch(rank: Rank) -> Came:
    modules = {"zoom": torch.zoom} | ({"cuda": torch.cuda} if rank.own else {})
    tensors = {name: [torch.ones(64, device=name) for _ in range(3)] for name in modules}
    times: dict[str, list[float]] = {name: [] for name in modules}
    for _ in range(ROUNDS):
        for name, module in modules.items():
            x, y, out = tensors[name]
            module.synchronize()
            began = time.perf_counter()
            for _ in range(CALLS):
                torch.add(x, y, out=out)
            times[name].append((time.perf_counter() - began) / CALLS * 1e6)
            module.synchronize()
    ours = statistics.median(times["zoom"])
    if not rank.own:
        return True, f"{ours:.1f} us; this PyTorch has no device of its own for the GPU"
    theirs = statistics.median(times["cuda"])
    return ours <= LAUNCH * theirs, f"{ours:.1f} us, and PyTorch's {theirs:.1f} us"


@check(
    "Z8",
    "each family: its share of a copy's bandwidth, or of a product's rate; x: of the time of PyTorch's own device",
    "none raises an error",
    seconds=240,
)
def families(rank: Rank) -> Came:
    from gputest.families import report

    said, failed = report(rank.device, rank.own, rank.elements)
    return not failed, "; ".join([*said, *(f"{name}: an error" for name in failed)])


@check("Z7", "python -m chorus_device.check zoom", "nothing required is missing", seconds=400)
def mechanisms(rank: Rank) -> Came:
    if rank.rank:
        return True, ""
    command = [sys.executable, "-m", "chorus_device.check", "zoom", "--import", "torch_zoom"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=380)
    print(done.stdout, done.stderr, sep="\n")
    lines = done.stdout.strip().splitlines()
    return done.returncode == 0, lines[-1] if lines else done.stderr[-300:]


if __name__ == "__main__":
    from gputest.rank import serve

    serve(lambda: Rank(int(os.environ["GPU"])), {c.name: c for c in CHECKS})
