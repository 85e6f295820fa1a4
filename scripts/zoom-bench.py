"""The costs of torch.device("zoom"): operators beside PyTorch's on the processor, a launch, a process's first one, and
the import.

    CHORUS_OPENCL_LIBRARY=.venvs/opencl-intel/lib/libintelocl.so .venv/bin/python scripts/zoom-bench.py [SECTION ...]

The sections are operators, launches, fused, first, imports; without one all are run. --only PART runs operators that
have it in their names.

An operator's line has PyTorch's time by ours: of the least times and of the medians. Both run in turns, in one process
with as many threads, and the first runs of a turn don't count. A line ends with the operators that ran PyTorch's
kernels on the processor instead of ours, and how often. A launch is compared with that of a program in C
(opencl-enqueue.c). Imports are in the processor's time, which other programs hardly change.
"""

import argparse
import ctypes
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python" / "zoom" / "tests"))
os.environ.setdefault("CHORUS_ZOOM_DRIVER", "opencl")

import installed

ROUNDS, LAUNCHES, STARTS = 300, 16, 5
TURNS, TURN, WARM = 6, 0.02, 0.006  # of an operator: turns, and seconds of a turn and of its runs that don't count

FIRST = """
import time, torch
x = torch.empty(64, device="zoom"); torch.zoom.synchronize()
a = time.perf_counter()
y = x + x; torch.zoom.synchronize()
print((time.perf_counter() - a) * 1e3)
"""
IMPORT = "import time, torch; print(time.process_time() * 1e3)"

# Statements of x, y and r of n elements, X, Y, R and Z of rows of 1024, of which Z has gradients, and a row w.
SIZED = {
    "add": "torch.add(x, y, out=r)",
    "mul by a number": "torch.mul(x, 1.5, out=r)",
    "add a row": "torch.add(X, w, out=R)",
    "exp": "torch.exp(x, out=r)",
    "gelu": "F.gelu(x)",
    "where": "torch.where(x > 0, x, y)",
    "copy transposed": "R.view(1024, -1).copy_(X.T)",
    "add transposed": "torch.add(R.view(1024, -1), X.T, out=Y.view(1024, -1))",
    "sum": "x.sum()",
    "amax": "x.amax()",
    "argmax": "x.argmax()",
    "sum of rows": "X.sum(1)",
    "sum of columns": "X.sum(0)",
    "variance of rows": "X.var(1)",
    "softmax": "torch.softmax(X, 1)",
    "log_softmax": "torch.log_softmax(X, 1)",
    "softmax of 64": "torch.softmax(x.view(-1, 64), 1)",
    "layer_norm": "F.layer_norm(X, (1024,), w, w)",
    "layer_norm of 64": "F.layer_norm(x.view(-1, 64), (64,), w[:64], w[:64])",
    "softmax, its gradient": "torch.softmax(Z, 1).backward(Y); Z.grad = None",
    "layer_norm, its gradient": "F.layer_norm(Z, (1024,), w, w).backward(Y); Z.grad = None",
}

LAST = ".contiguous(memory_format=torch.channels_last)"

# Statements of their own tensors.
OTHER = {
    **{f"matmul {n}{name}": (f"a, b, c = (t({n}, {n}) for _ in range(3))", f"torch.mm({a}, {b}, out=c)")
        for n in (512, 1024, 2048)
        for name, a, b in (("", "a", "b"), (", a.T", "a.T", "b"), (", b.T", "a", "b.T"))
        if n == 1024 or name == ""},
    "max_pool2d": ("a = t(8, 64, 56, 56)", "F.max_pool2d(a, 3, 2, 1)"),
    "max_pool2d backward": ("""a = t(8, 64, 56, 56).requires_grad_()
b = F.max_pool2d(a, 3, 2, 1); g = torch.ones_like(b)""",
        "torch.autograd.grad(b, a, g, retain_graph=True)"),
    "avg_pool2d": ("a = t(8, 64, 56, 56)", "F.avg_pool2d(a, 3, 2, 1)"),
    "depthwise convolution": ("a, w = t(8, 64, 56, 56), t(64, 1, 3, 3)", "F.conv2d(a, w, padding=1, groups=64)"),
    "depthwise backward": ("""a, w = t(8, 64, 56, 56).requires_grad_(), t(64, 1, 3, 3).requires_grad_()
b = F.conv2d(a, w, padding=1, groups=64); g = torch.ones_like(b)""",
        "torch.autograd.grad(b, (a, w), g, retain_graph=True)"),
    **{f"convolution {name}{order}{back}": (
        f"""a, w = t(8, {c}, 56, 56){order and LAST}, t({d}, {c}, {k}, {k}){order and LAST}
a.requires_grad_(), w.requires_grad_()
b = F.conv2d(a, w, stride={s}, padding={k // 2}); g = torch.ones_like(b)""",
        "torch.autograd.grad(b, (a, w), g, retain_graph=True)" if back
        else f"with torch.no_grad(): F.conv2d(a, w, stride={s}, padding={k // 2})")
        for order in ("", ", channels last")
        for name, c, d, k, s in (("3x3", 64, 64, 3, 1), ("3x3 by 2", 64, 128, 3, 2), ("1x1", 256, 64, 1, 1))
        for back in ("", " backward")},
    **{f"{name}, channels last": (f"a, w = t(8, 64, 56, 56){LAST}, t(64, 1, 3, 3)", line) for name, line in (
        ("max_pool2d", "F.max_pool2d(a, 3, 2, 1)"),
        ("avg_pool2d", "F.avg_pool2d(a, 3, 2, 1)"),
        ("bilinear", "F.interpolate(a, scale_factor=2, mode='bilinear')"),
        ("depthwise convolution", "F.conv2d(a, w, padding=1, groups=64)"))},
    "max_pool2d backward, channels last": (f"""a = t(8, 64, 56, 56){LAST}.requires_grad_()
b = F.max_pool2d(a, 3, 2, 1); g = torch.ones_like(b)""",
        "torch.autograd.grad(b, a, g, retain_graph=True)"),
    "avg_pool2d backward": ("""a = t(8, 64, 56, 56).requires_grad_()
b = F.avg_pool2d(a, 3, 2, 1); g = torch.ones_like(b)""", "torch.autograd.grad(b, a, g, retain_graph=True)"),
    "bilinear backward": ("""a = t(8, 64, 28, 28).requires_grad_()
b = F.interpolate(a, scale_factor=2, mode='bilinear'); g = torch.ones_like(b)""",
        "torch.autograd.grad(b, a, g, retain_graph=True)"),
    "bilinear": ("a = t(8, 64, 28, 28)", "F.interpolate(a, scale_factor=2, mode='bilinear')"),
    "bicubic": ("a = t(8, 64, 28, 28)", "F.interpolate(a, scale_factor=2, mode='bicubic')"),
    "nearest": ("a = t(8, 64, 28, 28)", "F.interpolate(a, scale_factor=2)"),
}  # fmt: skip


def show(what: str, times: list[float], unit: str) -> None:
    """Print a line of a list of times."""
    tenth = sorted(times)[len(times) // 10]
    median = statistics.median(times)
    print(f"{what:34} median {median:8.1f}, 10th percentile {tenth:8.1f}, least {min(times):8.1f} {unit}")


def more(unit: str, a: list[float], b: list[float]) -> None:
    """Print how much more the first list is."""
    median = statistics.median(a) - statistics.median(b)
    print(f"{'':34} median {median:8.1f}, least {min(a) - min(b):8.1f} {unit} more")


def child(program: str, **variables: str) -> float:
    """Run a program in another process, and return the number that it prints."""
    run = subprocess.run([sys.executable, "-c", program], env=os.environ | variables, capture_output=True, text=True,
        check=False, timeout=120)  # fmt: skip
    if run.returncode != 0:
        sys.exit(run.stderr)
    return float(run.stdout)


def in_c(folder: str):
    """Compile opencl-enqueue.c, and return its function."""
    library = f"{folder}/enqueue.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, HERE / "opencl-enqueue.c", "-ldl"], check=True)
    c = ctypes.CDLL(library)
    c.enqueue.restype = ctypes.c_double
    if failed := c.prepare(os.environ["CHORUS_OPENCL_LIBRARY"].encode()):
        sys.exit(f"opencl-enqueue.c: step {failed} failed")
    return c.enqueue


def names_on(device: str, setup: str) -> dict:
    """The names of statements, with the tensors of a device that setup makes by t(size, ...)."""
    import torch

    def t(*sizes: int):
        return torch.rand(*sizes, generator=torch.Generator().manual_seed(1)).to(device)

    names = {"torch": torch, "F": torch.nn.functional, "t": t}
    exec(setup, names)
    return names


def turn(code, names: dict, wait) -> list[float]:
    """Run a statement for a turn, and return the times of its runs in microseconds."""
    times, start = [], time.perf_counter()
    while True:
        before = time.perf_counter()
        exec(code, names)
        wait()
        after = time.perf_counter()
        if before - start > WARM or not times and after - start > TURN:
            times.append((after - before) * 1e6)
        if after - start > TURN and len(times) > 1:
            return times


def fell_back(before: dict) -> str:
    """The operators that have run PyTorch's kernels on the processor, and how often, since the counts were these."""
    import torch

    more = {name: n - before.get(name, 0) for name, n in torch.zoom.fallback_counts().items()}
    return "".join(f"  fallback: {name} {n}" for name, n in more.items() if n)


def compare(ours: tuple, theirs: tuple) -> tuple[list[float], list[float]]:
    """Run two statements in turns, each with its names and what waits for it, and return their times."""
    times: tuple[list[float], list[float]] = [], []
    for k in range(TURNS + 1):
        for side, (line, names, wait) in zip(times, (ours, theirs), strict=True):
            runs = turn(compile(line, line, "exec"), names, wait)
            if k > 0:  # compiled
                side.extend(runs)
    return times


def operators(part: str, threads: int) -> None:
    """Compare operators."""
    import torch

    torch.set_num_threads(threads)
    cases = [(f"{name}, {n >> 20} Mi", f"n = {n}; x, y, r = t(n), t(n), t(n); w = t(1024); "
        "X, Y, R = (v.view(-1, 1024) for v in (x, y, r)); Z = X.clone().requires_grad_()", line)
        for n in (1 << 20, 1 << 22, 1 << 24) for name, line in SIZED.items()]  # fmt: skip
    cases += [(name, *lines) for name, lines in OTHER.items()]
    print(f"{'':34} {'ratio':>8} {'of medians':>10} {'us':>10} {'PyTorch, us':>12}")
    for name, setup, line in cases:
        if part not in name:
            continue
        before = torch.zoom.fallback_counts()
        there = line, names_on("zoom", setup), torch.zoom.synchronize
        ours, theirs = compare(there, (line, names_on("cpu", setup), lambda: None))
        print(f"{name:34} {min(theirs) / min(ours):8.2f} {statistics.median(theirs) / statistics.median(ours):10.2f} "
            f"{min(ours):10.1f} {min(theirs):12.1f}{fell_back(before)}", flush=True)  # fmt: skip


def launches() -> None:
    """Compare launches."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        enqueue = in_c(folder)
    x, y, z = (torch.ones(64, device="zoom") for _ in range(3))
    ours, theirs = [], []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(LAUNCHES):
            torch.add(x, y, out=z)
        ours.append((time.perf_counter() - start) / LAUNCHES * 1e6)
        torch.zoom.synchronize()
        theirs.append(enqueue(LAUNCHES) / LAUNCHES / 1e3)
    show("a launch in C", theirs, "us")
    show('torch.add(x, y, out=z) on "zoom"', ours, "us")
    more("us", ours, theirs)


CHAIN = "template <typename T> T chain(T x, T y) { return std::exp(-(x * y + x)) - y; }"


def fused(threads: int) -> None:
    """Compare a chain of five operators in one kernel with PyTorch's own on the CPU."""
    import torch

    torch.set_num_threads(threads)
    chain = torch.zoom.jiterator._create_jit_fn(CHAIN)
    for mebi in (1, 4, 16):
        setup = f"x, y = t({mebi << 20}), t({mebi << 20})"
        host, there = names_on("cpu", setup), names_on("zoom", setup) | {"chain": chain}
        lines = "got = chain(x, y)", "got = torch.exp(-(x * y + x)) - y"
        ours, theirs = compare((lines[0], there, torch.zoom.synchronize), (lines[1], host, lambda: None))
        torch.testing.assert_close(there["got"].cpu(), host["got"])
        show(f"five operators of {mebi} Mi on the CPU", theirs, "us")
        show(f"one kernel by jiterator, of {mebi} Mi", ours, "us")
        ratio = statistics.median(theirs) / statistics.median(ours)
        print(f"{'':34} median {ratio:8.1f}, least {min(theirs) / min(ours):8.1f} times")


def first() -> None:
    """Time the first launch of processes."""
    child(FIRST)  # fills the cache of kernels
    show("the first launch, from the cache", [child(FIRST) for _ in range(STARTS)], "ms")


def imports() -> None:
    """Time imports."""
    written = {"PYTHONDONTWRITEBYTECODE": ""}  # as pip compiles what it installs
    child(IMPORT, **written)
    without, device = [], []
    for _ in range(STARTS):
        without.append(child(IMPORT, TORCH_DEVICE_BACKEND_AUTOLOAD="0"))
        device.append(child(IMPORT))
    show("import torch without devices", without, "ms")
    show("import torch with torch-zoom", device, "ms")
    more("ms", device, without)


SECTIONS = {"operators": operators, "launches": launches, "fused": fused, "first": first, "imports": imports}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--only", metavar="PART", default="", help="of an operator's name")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of operators, ours and PyTorch's")
    options = parser.parse_args()
    if unknown := set(options.sections) - set(SECTIONS):
        parser.error(f"there is no section {', '.join(sorted(unknown))}")
    os.environ["DPCPP_CPU_NUM_CUS"] = os.environ["OMP_NUM_THREADS"] = str(options.threads)
    installed.put()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    arguments = {"operators": (options.only, options.threads), "fused": (options.threads,)}
    for section in options.sections or SECTIONS:
        SECTIONS[section](*arguments.get(section, ()))
