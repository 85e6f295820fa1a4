"""Each family of kernels on ``torch.device("zoom")``: its share of what limits it, and its time beside PyTorch's own
device."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

SECONDS = 160  # after which no family is begun, so that the last one ends within the check's time
COPY, PRODUCT = "copy", "matmul f16"  # whose rates are the limits of bytes and of operations

Make = Callable[[torch.device], Callable[[], object]]
Seconds = float | Exception | None  # None: not measured


@dataclasses.dataclass(frozen=True)
class Family:
    """An operator: ``make`` gives a call on a device, which must move an amount of bytes, or has so many operations."""

    name: str
    amount: int
    make: Make
    operations: bool = False


def families(n: int) -> Iterator[Family]:
    """The families, with tensors of n elements, which is a power of two from 2^12 on."""
    side, heads = math.isqrt(n) // 2, 16 if n >= 1 << 20 else 1
    channels, image = 4 * heads, max(side // 64, 4)

    def normal(*sizes: int, dtype: torch.dtype = torch.float32) -> Callable[[torch.device], torch.Tensor]:
        return lambda device: torch.randn(sizes, device=device, dtype=dtype)

    def of(call: Callable[..., object], *inputs: Callable[[torch.device], torch.Tensor]) -> Make:
        def make(device: torch.device) -> Callable[[], object]:
            tensors = [x(device) for x in inputs]
            return lambda: call(*tensors)

        return make

    def rows(device: torch.device) -> torch.Tensor:
        return torch.randint(n // 256, (n // 256,), device=device)

    def backward(device: torch.device) -> Callable[[], object]:
        q, k, v = (normal(1, heads, side, 64, dtype=torch.float16)(device).requires_grad_() for _ in range(3))
        out = F.scaled_dot_product_attention(q, k, v)
        return lambda: torch.autograd.grad(out, (q, k, v), out.detach(), retain_graph=True)

    def compiled(device: torch.device) -> Callable[[], object]:
        call = torch.compile(lambda x, y: (x * 2 + y).relu().sum(1))
        x, y = (normal(n // 256, 256)(device) for _ in range(2))
        return lambda: call(x, y)

    half, line = torch.float16, normal(n)
    yield Family(COPY, 8 * n, of(lambda x, y: y.copy_(x), line, line))
    yield Family("add f32", 12 * n, of(lambda x, y, z: torch.add(x, y, out=z), line, line, line))
    short = normal(n, dtype=half)
    yield Family("add f16", 6 * n, of(lambda x, y, z: torch.add(x, y, out=z), short, short, short))
    yield Family("sum", 4 * n, of(torch.sum, line))
    yield Family("sum of columns", 4 * n, of(lambda x: x.sum(0), normal(n // 64, 64)))
    yield Family("softmax of 64", 4 * n, of(lambda x: x.softmax(1), normal(n // 64, 64, dtype=half)))
    wide = normal(n // 1024, 1024, dtype=half)
    yield Family("layer_norm", 4 * n, of(lambda x: F.layer_norm(x, (1024,)), wide))
    yield Family("cumsum", 8 * n, of(lambda x: x.cumsum(0), line))
    yield Family("sort", 2 * n, of(torch.sort, normal(n // 8)))
    table = normal(n // 256, 256)
    yield Family("index_select", 8 * n, of(lambda x, i: x.index_select(0, i), table, rows))
    yield Family("index_add", 12 * n, of(lambda x, i, y: x.index_add_(0, i, y), table, rows, table))
    yield Family("compiled", 8 * n, compiled)
    square = normal(side, side, dtype=half)
    yield Family(PRODUCT, 2 * side**3, of(torch.matmul, square, square), True)
    head = normal(1, heads, side, 64, dtype=half)
    work = 4 * heads * side**2 * 64
    yield Family("attention f16", work, of(F.scaled_dot_product_attention, head, head, head), True)
    yield Family("its gradients", work * 5 // 2, backward, True)
    images, weight = (
        normal(heads, channels, image, image, dtype=half),
        normal(channels, channels, 3, 3, dtype=half),
    )
    yield Family(
        "conv2d f16",
        2 * heads * channels**2 * 9 * image**2,
        of(lambda x, w: F.conv2d(x, w, padding=1), images, weight),
        True,
    )


def seconds_of(call: Callable[[], object], device: torch.device, rounds: int) -> float:
    """The median time of a call by the device's events, after one that compiles its kernels."""
    module = getattr(torch, device.type)
    call()
    times: list[float] = []
    for _ in range(rounds):
        begin, end = (module.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return max(statistics.median(times), 1e-9)


def measured(
    device: torch.device, own: torch.device | None, n: int, rounds: int
) -> Iterator[tuple[Family, Seconds, Seconds]]:
    """Each family with its seconds on the device, and on PyTorch's own, or with the error that it had there."""
    ends = time.monotonic() + SECONDS
    for family in families(n):
        came: list[Seconds] = []
        for where in (device, own):
            if where is None or time.monotonic() > ends:
                came.append(None)
                continue
            try:
                came.append(seconds_of(family.make(where), where, rounds))
            except Exception as error:  # of the operator, or of what compiles it
                came.append(error)
        yield family, came[0], came[1]


def report(device: torch.device, own: torch.device | None, n: int, rounds: int = 5) -> tuple[list[str], list[str]]:
    """The lines of all families, and the names of those that raise an error. The limit of bytes is the rate
    of a copy on the device, that of operations the rate of the product, on PyTorch's own device where there is one."""
    limits: dict[bool, float] = {}
    said, failed = [], []
    for family, ours, theirs in measured(device, own, n, rounds):
        if isinstance(ours, Exception):
            print(f"{family.name}: {ours}")
            failed.append(family.name)
            continue
        if ours is None:
            said.append(f"{family.name} left out, for want of time")
            continue
        if family.name in (COPY, PRODUCT):
            best = theirs if family.name == PRODUCT and isinstance(theirs, float) else ours
            limits[family.operations] = family.amount / best
        rate, limit = family.amount / ours, limits.get(family.operations)
        line = f"{family.name} {rate / limit:.2f}" if limit else f"{family.name}, whose limit isn't known"
        if isinstance(theirs, float):
            line += f" x{ours / theirs:.2f}"
        print(f"{line}: {ours * 1e3:.3f} ms, {rate / 1e9:.0f} G/s; PyTorch's own: {theirs}")
        said.append(line)
    return said, failed
