"""torch.compile on torch.device("zoom"): how long operators take in eager mode and as generated kernels, beside
inductor's C++ for the CPU. It prints a table in Markdown.

    python scripts/compile-bench.py [ROUNDS]

The three take turns, and each one's least time counts.
"""

import os
import sys
import time

os.environ["CHORUS_COMPILED_KERNELS"] = "device"
os.environ.setdefault("CHORUS_TORCH_DEVICE", "zoom")
os.environ.setdefault("CHORUS_ZOOM_DRIVER", "opencl")

import torch
import torch.nn.functional as F

if not hasattr(torch, "zoom"):
    import torch_zoom  # noqa: F401

ELEMENTS = 4 << 20


def pointwise(a, b):
    x = (a * 2 + b).relu() - 0.5 * a
    return torch.where(x > 1, x, x.abs()) * b + 3 - a


def trained(f):
    """A function with its gradients."""

    def step(*given):
        leaves = [x.detach().requires_grad_() if x.is_floating_point() else x for x in given]
        f(*leaves).sum().backward()
        return [x.grad for x in leaves if x.is_floating_point()]

    return step


def softmax(x):
    return x.softmax(-1) * x


def layer_norm(x, w, b):
    return F.layer_norm(x, x.shape[-1:], w, b) * x


CASES = {
    "ten operators of 4 Mi elements": (pointwise, False, lambda: [torch.randn(ELEMENTS), torch.randn(ELEMENTS)]),
    "softmax, 4,096 rows of 1,024": (softmax, True, lambda: [torch.randn(4096, 1024)]),
    "layer norm, 4,096 rows of 1,024": (
        layer_norm, True, lambda: [torch.randn(4096, 1024), torch.randn(1024), torch.randn(1024)],
    ),
    "cross entropy, 4,096 rows of 1,024": (
        F.cross_entropy, True, lambda: [torch.randn(4096, 1024), torch.randint(1024, (4096,))],
    ),
}  # fmt: skip


def seconds(call, given, wait):
    begin = time.perf_counter()
    call(*given)
    wait()
    return time.perf_counter() - begin


def measured(f, grads, make, rounds):
    """The least times in eager mode, of generated kernels and of inductor's C++."""
    torch.manual_seed(1)
    host = make()
    device = [x.to("zoom") for x in host]
    compiled = torch.compile(f, dynamic=False)
    whole = trained if grads else lambda g: g
    ways = [
        (whole(f), device, torch.zoom.synchronize),
        (whole(compiled), device, torch.zoom.synchronize),
        (whole(compiled), host, lambda: None),
    ]
    wanted = ways[2][0](*host)
    for got, want in zip(pairs(ways[1][0](*device)), pairs(wanted), strict=True):
        torch.testing.assert_close(got.cpu(), want, rtol=1e-3, atol=1e-3)
    times = [[seconds(*way) for way in ways] for _ in range(rounds + 2)][2:]
    return [min(t) for t in zip(*times, strict=True)]


def pairs(x):
    return x if isinstance(x, list) else [x]


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print(f"{torch.zoom.get_device_name()}, PyTorch {torch.__version__}, {torch.get_num_threads()} threads\n")
    print("| | eager, ms | generated, ms | C++, ms | eager / generated | C++ / generated |")
    print("|---|---|---|---|---|---|")
    for title, (f, grads, make) in CASES.items():
        eager, ours, cpp = (1000 * t for t in measured(f, grads, make, rounds))
        row = f"{eager:.2f} | {ours:.2f} | {cpp:.2f} | {eager / ours:.2f} | {cpp / ours:.2f}"
        print(f"| {title} | {row} |", flush=True)


main()
