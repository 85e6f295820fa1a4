"""The checks of :mod:`chorus_device.check`: functions that raise if something is wrong with a device."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import importlib
import io
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch


class Unfit(Exception):
    """This machine can't run a check: it has too few devices."""


@dataclasses.dataclass
class Subject:
    """The device under test."""

    name: str
    plugin: str | None = None  # the module whose import registers it, if PyTorch doesn't

    def device(self, index: int = 0) -> torch.device:
        return torch.device(self.name, index)

    @property
    def module(self) -> Any:
        return getattr(torch, self.name)

    def pair(self) -> tuple[torch.device, torch.device]:
        if self.module.device_count() < 2:
            raise Unfit("it takes two devices")
        return self.device(0), self.device(1)


@dataclasses.dataclass(frozen=True)
class Check:
    group: str
    name: str
    required: bool
    run: Callable[[Subject], None]


CHECKS: list[Check] = []


def check(
    group: str, name: str, required: bool = True
) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    def note(run: Callable[[Subject], None]) -> Callable[[Subject], None]:
        CHECKS.append(Check(group, name, required, run))
        return run

    return note


def optional(group: str, name: str) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    return check(group, name, required=False)


def want(truth: Any, what: str) -> None:
    if not truth:
        raise AssertionError(what)


def same(got: Any, wanted: torch.Tensor, what: str = "the result", exact: bool = False) -> None:
    want(got.dtype == wanted.dtype and got.shape == wanted.shape, f"{what} is {got.dtype} {tuple(got.shape)}, on the "
         f"CPU {wanted.dtype} {tuple(wanted.shape)}")  # fmt: skip
    host = got.cpu()
    if exact or not wanted.is_floating_point():
        want(torch.equal(host, wanted), f"{what} differs from the CPU's")
    else:
        torch.testing.assert_close(host, wanted, rtol=1e-4, atol=1e-5)


@contextlib.contextmanager
def refused(what: str, *kinds: type[BaseException]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if kinds and not isinstance(error, kinds):
            raise
        return
    raise AssertionError(f"{what} is not refused")


# ---- registration ----


@check("registration", "the name is PyTorch's")
def _(s: Subject) -> None:
    name = torch._C._get_privateuse1_backend_name()
    want(name == s.name, f"rename_privateuse1_backend({s.name!r}) was not called: the name is {name!r}")
    want(torch.device(s.name).type == s.name and torch.device(s.name).index is None, "torch.device has another type")


@check("registration", "torch.<name>: is_available, device_count")
def _(s: Subject) -> None:
    want(s.module.is_available() and s.module.device_count() > 0, "there is no device")


@check("registration", "methods: tensor.<name>(), is_<name>, module.<name>()")
def _(s: Subject) -> None:
    x: Any = torch.ones(2)
    want(not getattr(x, f"is_{s.name}") and getattr(getattr(x, s.name)(), f"is_{s.name}"), "it's another device")
    layer: Any = torch.nn.Linear(2, 2)
    want(getattr(layer, s.name)().weight.device.type == s.name, "nn.Module's moves nothing")
    storage: Any = x.to(s.name).untyped_storage()
    want(getattr(storage, f"is_{s.name}"), "storages have none (for_storage=True)")


@check("registration", "torch.accelerator knows it")
def _(s: Subject) -> None:
    a: Any = torch.accelerator
    want(a.is_available() and a.device_count() == s.module.device_count(), "it has other devices")
    want(a.current_accelerator().type == s.name, f"the accelerator is {a.current_accelerator()}")
    a.synchronize()


@optional("registration", "torch.accelerator.get_device_capability")
def _(s: Subject) -> None:
    want(torch.float32 in torch.accelerator.get_device_capability(s.name)["supported_dtypes"], "no float32 in it")


@optional("autoload", "import torch is enough")
def _(s: Subject) -> None:
    program = f"import torch; torch.ones(1, device={s.name!r}) + 1"
    env = {k: v for k, v in os.environ.items() if k != "TORCH_DEVICE_BACKEND_AUTOLOAD"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, timeout=100)
    said = done.stderr.strip().splitlines() or [""]
    want(done.returncode == 0, f"the entry point of the group torch.backends: {said[-1]}")


@optional("autoload", "a child made by fork can tell that it can't use the device")
def _(s: Subject) -> None:
    torch.ones(1, device=s.name)
    sent, got = os.pipe()[::-1]
    child = os.fork()
    if child == 0:
        try:
            told = bool(s.module._is_in_bad_fork())
        except BaseException:
            told = False
        os.write(sent, b"y" if told else b"n")
        os._exit(0)
    os.waitpid(child, 0)
    want(os.read(got, 1) == b"y", "_is_in_bad_fork() is false in it")
    for end in (sent, got):
        os.close(end)


# ---- the current device ----


@check("devices", "current_device, set_device, and a context")
def _(s: Subject) -> None:
    _, second = s.pair()
    want(s.module.current_device() == 0, "it isn't the first one at the beginning")
    s.module.set_device(1)
    try:
        want(torch.empty(1, device=s.name).device == second, "tensors are made elsewhere")
        want(torch.accelerator.current_device_index() == 1, "torch.accelerator has another one")
        with s.module.device(0):
            want(s.module.current_device() == 0, "the context changes nothing")
        want(s.module.current_device() == 1, "the context does not restore it")
    finally:
        s.module.set_device(0)


@check("devices", "torch.accelerator.device_index")
def _(s: Subject) -> None:
    s.pair()
    with torch.accelerator.device_index(1):
        want(torch.empty(1, device=s.name).device.index == 1, "it changes nothing")
    want(torch.accelerator.current_device_index() == 0, "it does not restore it")


@check("devices", "each thread has its own")
def _(s: Subject) -> None:
    s.pair()
    seen: list[int] = []
    with s.module.device(1):
        thread = threading.Thread(target=lambda: seen.append(s.module.current_device()))
        thread.start()
        thread.join()
    want(seen == [0], "a new thread begins with another thread's")


@check("devices", "an index that is out of range is refused")
def _(s: Subject) -> None:
    with refused("set_device(100)", RuntimeError, ValueError, AssertionError):
        s.module.set_device(100)
    with refused("a tensor on device 100", RuntimeError):
        torch.empty(1, device=s.device(100))


@check("devices", "the guard of operators: a tensor's device, and not the current one")
def _(s: Subject) -> None:
    first, second = s.pair()
    x = torch.ones(3, device=second)
    want((x + 1).device == second and torch.zeros_like(x).device == second, "results are elsewhere")
    want(s.module.current_device() == 0, "the current device is changed")


# ---- memory ----


@check("memory", "tensors to the device and back, of every type")
def _(s: Subject) -> None:
    kinds = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32]
    for dtype in [*kinds, torch.int64, torch.uint8, torch.bool, torch.complex64]:
        h = torch.arange(-3, 4).to(dtype)
        same(h.to(s.name), h, str(dtype), exact=True)
    for shape in ((), (0,), (1,), (3, 0, 2), (2, 3, 4)):
        h = torch.ones(shape)
        same(h.to(s.name), h, f"shape {shape}", exact=True)


@check("memory", "strides, and copies that convert")
def _(s: Subject) -> None:
    h = torch.arange(24.0).view(2, 3, 4)
    for v in (h.transpose(0, 2), h[:, ::2], h.expand(2, 2, 3, 4), h.permute(2, 0, 1)[1:]):
        x = v.to(s.name)
        same(x, v, exact=True)
        same(x.double(), v.double(), exact=True)
        out = torch.zeros(v.shape[::-1]).to(s.name).permute(*range(v.dim() - 1, -1, -1))
        out.copy_(v)
        same(out, v, exact=True)


@check("memory", "copies between devices")
def _(s: Subject) -> None:
    first, second = s.pair()
    x = torch.arange(1000.0).to(first)
    y = x.to(second)
    want(y.device == second, "it stays where it is")
    same(y.to(first), torch.arange(1000.0), exact=True)
    y.t().copy_(x.double())
    same(y, torch.arange(1000.0), exact=True)


@check("memory", "freed memory is reused")
def _(s: Subject) -> None:
    for _ in range(5000):  # 20 GiB
        torch.empty(1 << 20, device=s.name)


@check("memory", "an allocation that is too large raises an error")
def _(s: Subject) -> None:
    with refused("1 PiB", RuntimeError):
        torch.empty(1 << 50, dtype=torch.uint8, device=s.name)
    torch.ones(3, device=s.name) + 1


@optional("memory", "it's torch.OutOfMemoryError")
def _(s: Subject) -> None:
    with refused("1 PiB", torch.OutOfMemoryError):
        torch.empty(1 << 50, dtype=torch.uint8, device=s.name)


@check("memory", "storages: resize_, set_, clone, bytes")
def _(s: Subject) -> None:
    x = torch.arange(6.0).to(s.name)
    storage = x.untyped_storage()
    want(storage.nbytes() == 24 and storage.device.type == s.name, "a storage has another size or device")
    storage.resize_(48)
    want(storage.nbytes() == 48, "resize_ of a storage")
    same(x, torch.arange(6.0), "a tensor whose storage was resized", exact=True)
    y = torch.empty(0, device=s.name).set_(storage, 2, (2, 2), (1, 2))
    same(y, torch.tensor([[2.0, 4], [3, 5]]), "set_", exact=True)
    x.resize_(2, 2)
    same(x, torch.arange(4.0).view(2, 2), "resize_", exact=True)
    want(storage.clone().data_ptr() != storage.data_ptr() and storage.cpu().nbytes() == 48, "clone or cpu of a storage")


@optional("memory", "figures: memory_stats, memory_allocated, peaks, empty_cache")
def _(s: Subject) -> None:
    a: Any = torch.accelerator
    x = torch.empty(1 << 20, device=s.name)
    have = a.memory_allocated()
    want(have >= x.nbytes and a.memory_reserved() >= have, "a tensor of 4 MiB is not counted")
    a.reset_peak_memory_stats()
    del x
    want(a.memory_allocated() <= have - (4 << 20) and a.max_memory_allocated() >= have, "it's counted after its end")
    want("allocated_bytes.all.current" in a.memory_stats(), "memory_stats has other names")
    a.reset_accumulated_memory_stats()
    a.empty_cache()


@optional("memory", "torch.accelerator.get_memory_info")
def _(s: Subject) -> None:
    free, total = torch.accelerator.get_memory_info()
    want(0 < free <= total, f"{free} of {total} bytes are free")


@optional("memory", "a caching allocator: the same size has the same address again")
def _(s: Subject) -> None:
    x = torch.empty(12345, device=s.name)
    at = x.data_ptr()
    del x
    want(torch.empty(12345, device=s.name).data_ptr() == at, "it's another one")


@optional("memory", "record_stream")
def _(s: Subject) -> None:
    stream = torch.Stream(s.device())
    x = torch.ones(1000, device=s.name)
    x.record_stream(stream)


@optional("host memory", "pin_memory, is_pinned")
def _(s: Subject) -> None:
    x = torch.arange(5.0).pin_memory()
    want(x.is_pinned() and not torch.ones(2).is_pinned() and x[1:].is_pinned(), "is_pinned is wrong")
    want(torch.empty(3, pin_memory=True).is_pinned(), "torch.empty(pin_memory=True) is not pinned")


@optional("host memory", "copies that don't wait")
def _(s: Subject) -> None:
    x = torch.arange(1000.0).pin_memory()
    y = x.to(s.name, non_blocking=True)
    z = torch.empty(1000).pin_memory().copy_(y + 1, non_blocking=True)
    torch.accelerator.synchronize()
    want(torch.equal(z, torch.arange(1000.0) + 1), "they are wrong")


@optional("host memory", "DataLoader(pin_memory=True)")
def _(s: Subject) -> None:
    data = torch.utils.data.TensorDataset(torch.arange(6.0))
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=3, pin_memory=True):
        want(batch.is_pinned(), "its batches are not pinned")


# ---- streams, events ----


@check("streams", "current, context, query, synchronize, equality")
def _(s: Subject) -> None:
    a: Any = torch.accelerator
    outer, stream = a.current_stream(), torch.Stream(s.device())
    want(outer.device.type == s.name and stream != outer, "a new stream is the current one")
    with stream:
        want(a.current_stream() == stream, "a context does not make it current")
    want(a.current_stream() == outer, "a context does not restore it")
    a.set_stream(stream)
    want(a.current_stream() == stream, "set_stream does not make it current")
    a.set_stream(outer)
    stream.synchronize()
    want(stream.query() is True, "it isn't idle after synchronize")


@check("streams", "one waits for another")
def _(s: Subject) -> None:
    streams = [torch.Stream(s.device()) for _ in range(3)]
    x = torch.zeros(1 << 12, device=s.name)
    streams[0].wait_stream(torch.accelerator.current_stream())
    for i in range(60):
        with streams[i % 3]:
            x.add_(1).mul_(1)
        streams[(i + 1) % 3].wait_stream(streams[i % 3])
    streams[0].synchronize()
    same(x, torch.full((1 << 12,), 60.0), exact=True)


@check("streams", "each thread and device has its own current one")
def _(s: Subject) -> None:
    outer = torch.accelerator.current_stream()
    seen: list[Any] = []
    with torch.Stream(s.device()):
        thread = threading.Thread(target=lambda: seen.append(torch.accelerator.current_stream()))
        thread.start()
        thread.join()
    want(seen == [outer], "a new thread begins with another thread's")


@optional("streams", "priorities")
def _(s: Subject) -> None:
    torch.Stream(s.device(), priority=-1).synchronize()


@check("events", "record, query, synchronize, wait")
def _(s: Subject) -> None:
    event = torch.Event(s.name)
    want(event.query() and event.event_id == 0, "an event that was never recorded is pending")
    first, second = torch.Stream(s.device()), torch.Stream(s.device())
    with first:
        x = torch.ones(1 << 12, device=s.name)
        for _ in range(20):
            x.add_(1)
        event.record()
    second.wait_event(event)
    with second:
        y = x * 2
    second.synchronize()
    want(event.query(), "it's pending though a stream that waited for it is done")
    same(y, torch.full((1 << 12,), 42.0), exact=True)
    first.record_event().synchronize()


@check("events", "timing")
def _(s: Subject) -> None:
    begin, end = (torch.Event(s.name, enable_timing=True) for _ in range(2))
    begin.record()
    torch.ones(1 << 16, device=s.name).sin_().cos_()
    end.record()
    end.synchronize()
    want(begin.elapsed_time(end) > 0, "no time passes between two events")
    with refused("the time of an event without timing"):
        torch.Event(s.name).elapsed_time(end)


@optional("events", "between devices")
def _(s: Subject) -> None:
    first, second = s.pair()
    event = torch.accelerator.current_stream(first).record_event()
    torch.Stream(second).wait_event(event)
    torch.accelerator.synchronize(second)


# ---- random numbers ----


@check("generators", "torch.manual_seed seeds the device")
def _(s: Subject) -> None:
    torch.manual_seed(7)
    x = torch.rand(100, device=s.name)
    torch.manual_seed(7)
    y, z = torch.rand(100, device=s.name), torch.rand(100, device=s.name)
    want(torch.equal(x.cpu(), y.cpu()), "the same seed gives other numbers (torch.<name>.manual_seed_all)")
    want(not torch.equal(y.cpu(), z.cpu()) and 0 <= x.min().item() and x.max().item() < 1, "they aren't random")


@check("generators", "get_rng_state, set_rng_state")
def _(s: Subject) -> None:
    state = s.module.get_rng_state()
    x = torch.randn(50, device=s.name)
    s.module.set_rng_state(state)
    want(torch.equal(torch.randn(50, device=s.name).cpu(), x.cpu()), "a state that is set again gives other numbers")


@check("generators", "torch.Generator(device)")
def _(s: Subject) -> None:
    g = torch.Generator(device=s.device())
    want(g.device.type == s.name, "it's of another device")
    x = torch.rand(20, device=s.name, generator=g.manual_seed(3))
    want(torch.equal(torch.rand(20, device=s.name, generator=g.manual_seed(3)).cpu(), x.cpu()), "the seed is ignored")
    want(g.initial_seed() == 3, "it forgets its seed")


@optional("generators", "fork_rng, seed, seed_all, states of all devices")
def _(s: Subject) -> None:
    states = s.module.get_rng_state_all()
    with torch.random.fork_rng(devices=[0], device_type=s.name):
        torch.rand(9, device=s.name)
    want(torch.equal(s.module.get_rng_state(), states[0]), "fork_rng does not restore the state")
    s.module.seed(), s.module.seed_all(), s.module.set_rng_state_all(states)


@check("generators", "dropout")
def _(s: Subject) -> None:
    x = torch.ones(1000, device=s.name, requires_grad=True)
    y = torch.nn.functional.dropout(x, 0.5)
    y.sum().backward()
    want(
        x.grad is not None and torch.equal(x.grad.cpu(), y.detach().cpu()) and 0 < int((y == 0).sum()) < 1000,
        "it's wrong",
    )


# ---- operators ----

REQUIRED = (
    "empty.memory_format empty_strided as_strided resize_ _reshape_alias _copy_from _copy_from_and_resize "
    "_local_scalar_dense set_.source_Tensor set_.source_Storage set_.source_Storage_storage_offset view"
).split()


@check("operators", "the kernels that every device must have")
def _(s: Subject) -> None:
    has: Any = torch._C._dispatch_has_computed_kernel_for_dispatch_key
    lacks = [name for name in REQUIRED if not has(f"aten::{name}", "PrivateUse1")]
    want(not lacks, "none for " + ", ".join(lacks))


@check("operators", "views share memory")
def _(s: Subject) -> None:
    x = torch.arange(24.0).to(s.name).view(2, 3, 4)
    at = x.untyped_storage().data_ptr()
    for v in (
        x[1],
        x.transpose(0, 1),
        x.unfold(2, 2, 1),
        x.diagonal(),
        x.expand(5, 2, 3, 4),
        x.detach(),
        x.view(-1)[3:],
    ):
        want(v.untyped_storage().data_ptr() == at, "a view has memory of its own")
    x[1].zero_()
    same(x, torch.cat([torch.arange(12.0), torch.zeros(12)]).view(2, 3, 4), exact=True)


@check("operators", "in place, out=, and scalars")
def _(s: Subject) -> None:
    h = torch.arange(12.0).view(3, 4)
    x = h.clone().to(s.name)
    at = x.data_ptr()
    x.add_(1).t()[0].mul_(2)
    wanted = h + 1
    wanted.t()[0].mul_(2)
    same(x, wanted, exact=True)
    want(x.data_ptr() == at, "an operator in place moves the tensor")
    out = torch.empty(0, device=s.name)
    torch.mul(x, torch.tensor(2.0), out=out)
    same(out, wanted * 2, "out=", exact=True)
    want(x.sum().item() == wanted.sum().item() and bool((x == x).all()), "item() is wrong")


@check("operators", "printing")
def _(s: Subject) -> None:
    text = repr(torch.tensor([1.5, 2.0]).to(s.device()))
    want(text == f"tensor([1.5000, 2.0000], device='{s.name}:0')", f"it's {text}")


def operators(name: str, f: Callable[[Callable[..., torch.Tensor]], Any]) -> None:
    """Register a check that compares with the CPU. f gets a function that moves a tensor to the device or to the
    host."""

    def run(s: Subject) -> None:
        torch.manual_seed(1)
        made = [torch.randn(6, 5), torch.randn(5, 7), torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3)]

        def of(device: str) -> list[Any]:
            results = f(lambda i: made[i].to(device))
            return [t for t in (results if isinstance(results, (list, tuple)) else [results])]

        for i, (got, wanted) in enumerate(zip(of(s.name), of("cpu"), strict=True)):
            want(got.device.type == s.name, f"result {i} is on {got.device}")
            same(got, wanted, f"result {i}")

    CHECKS.append(Check("operators", name, True, run))


F = torch.nn.functional
operators(
    "elementwise",
    lambda t: [
        t(0) + t(0),
        t(0) * 2 - 1,
        t(0).sin(),
        t(0).exp().sqrt(),
        t(0).abs(),
        t(0) > 0,
        torch.where(t(0) > 0, t(0), -t(0)),
        t(0).clamp(-1, 1),
        t(0).to(torch.int32) % 3,
    ],
)
operators(
    "reductions",
    lambda t: [
        t(0).sum(),
        t(0).mean(1),
        t(0).amax(0),
        t(0).argmax(1),
        t(0).std(),
        t(0).cumsum(1),
        *t(0).max(1),
        t(0).norm(),
        (t(0) > 0).any(1),
        t(0).softmax(1),
        t(0).logsumexp(0),
    ],
)
operators(
    "matrices",
    lambda t: [
        t(0) @ t(1),
        torch.addmm(t(1), t(0)[:5], t(1)),
        t(0)[None] @ t(1)[None],
        t(0).mv(t(1)[:, 0]),
        torch.einsum("ij,jk->ik", t(0), t(1)),
        torch.linalg.inv(t(0)[:5] + 9 * t(0).new_ones(5).diag()),
    ],
)
operators(
    "indexing",
    lambda t: [
        t(0)[t(0) > 0],
        t(0)[[0, 2]],
        t(0).gather(1, t(0).argsort(1)),
        torch.nonzero(t(0) > 0),
        t(0).index_select(0, t(0)[:, 0].argsort()),
        t(0).masked_fill(t(0) > 0, 0),
        t(0).tril(),
        t(0).index_put((t(0)[:, 0].argsort(),), t(0)),
        t(0).scatter(1, t(0).argsort(1), 1.0),
    ],
)
operators(
    "shapes and lists",
    lambda t: [
        torch.cat([t(0), t(0)], 1),
        torch.stack([t(0), t(0)]),
        *t(0).split(2),
        t(0).flip(0),
        t(0).roll(1),
        t(0).repeat(2, 2),
        *torch._foreach_mul([t(0), t(1)], 2),
        *t(0).sort(1),
        t(0).unique().sort()[0],
        F.pad(t(0), (1, 1)),
        t(0).topk(2)[0],
    ],
)
operators(
    "networks",
    lambda t: [
        F.conv2d(t(2), t(3)),
        F.max_pool2d(t(2), 2),
        F.layer_norm(t(0), (5,)),
        F.relu(t(0)),
        F.gelu(t(0)),
        F.batch_norm(t(2), None, None, training=True),
        F.embedding(t(0).argsort(1), t(0)),
        F.cross_entropy(t(0), t(0)[:, 0].argsort() % 5),
        F.interpolate(t(2), scale_factor=2),
        F.scaled_dot_product_attention(t(2), t(2), t(2), is_causal=True),
    ],
)
operators(
    "factories",
    lambda t: [
        torch.arange(5, device=t(0).device),
        torch.eye(3, device=t(0).device),
        torch.zeros_like(t(0)),
        torch.full((2,), 7, device=t(0).device),
        torch.linspace(0, 1, 5, device=t(0).device),
    ],
)


@check("operators", "wrong arguments are refused, and work goes on")
def _(s: Subject) -> None:
    x = torch.ones(3, device=s.name)
    with refused("a sum of two sizes", RuntimeError):
        x + torch.ones(2, device=s.name)
    with refused("a sum with a tensor of the CPU", RuntimeError):
        x + torch.ones(3)
    same(x + 1, torch.full((3,), 2.0), exact=True)


# ---- autograd and training ----


@check("autograd", "a backward pass, its thread, and gradients")
def _(s: Subject) -> None:
    threads: list[bool] = []

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            threads.append(threading.current_thread() is threading.main_thread())
            return grad * 2

    x = torch.arange(3.0).to(s.name).requires_grad_()
    twice: Any = Twice.apply
    (twice(x) ** 2).sum().backward()
    want(x.grad is not None, "there is no gradient")
    same(x.grad, torch.arange(3.0) * 8, exact=True)
    want(threads == [False], "it runs in the caller's thread: the device has no threads of autograd")


@check("autograd", "across devices")
def _(s: Subject) -> None:
    x = torch.ones(3, requires_grad=True)
    (x.to(s.name) * 3).cpu().sum().backward()
    same(x.grad, torch.full((3,), 3.0), exact=True)


@check("autograd", ".data = and .grad =")
def _(s: Subject) -> None:
    layer = torch.nn.Linear(2, 2)
    layer.weight.data = layer.weight.data.to(s.name)
    want(layer.weight.device.type == s.name, "the tensor stays on the CPU")
    layer.weight.data = torch.ones(2, 2, device=s.name)
    same(layer.weight.detach(), torch.ones(2, 2), exact=True)


def _train(device: str, optimizer: Callable[..., Any], **options: Any) -> list[torch.Tensor]:
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    model.to(device)
    x, y = torch.randn(16, 4).to(device), torch.randn(16, 2).to(device)
    steps = optimizer(model.parameters(), lr=0.1, **options)
    for _ in range(3):
        steps.zero_grad()
        F.mse_loss(model(x), y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        steps.step()
    return [p.detach() for p in model.parameters()]


@check("autograd", "a model trains as on the CPU (SGD, AdamW)")
def _(s: Subject) -> None:
    for optimizer in (torch.optim.SGD, torch.optim.AdamW):
        for got, wanted in zip(_train(s.name, optimizer), _train("cpu", optimizer)):
            same(got, wanted, optimizer.__name__)


@optional("autograd", "optimizers that are fused, and by lists")
def _(s: Subject) -> None:
    for options in ({"fused": True}, {"foreach": True}):
        for got, wanted in zip(_train(s.name, torch.optim.AdamW, **options), _train("cpu", torch.optim.AdamW)):
            same(got, wanted, str(options))


# ---- mixed precision ----


@check("amp", "torch.<name>.get_amp_supported_dtype")
def _(s: Subject) -> None:
    want(s.module.get_amp_supported_dtype(), "it has none")


@check("amp", "autocast: lower precision, float32, and operators that aren't cast")
def _(s: Subject) -> None:
    x = torch.randn(4, 4, device=s.name)
    for dtype in s.module.get_amp_supported_dtype():
        with torch.autocast(s.name, dtype=dtype):
            y = x @ x
            want(y.dtype == dtype and (x + x).dtype == torch.float32, f"a product under {dtype} is {y.dtype}")
            want(F.layer_norm(y, (4,)).dtype == y.softmax(1).dtype == torch.float32, "float32's operators give less")


@check("amp", "autocast refuses binary_cross_entropy")
def _(s: Subject) -> None:
    x = torch.rand(4, device=s.name)
    with torch.autocast(s.name), refused("binary_cross_entropy", RuntimeError):
        F.binary_cross_entropy(x, x)


@optional("amp", "GradScaler")
def _(s: Subject) -> None:
    layer = torch.nn.Linear(2, 2).to(s.name)
    steps, scaler = torch.optim.SGD(layer.parameters(), lr=0.1), torch.amp.GradScaler(s.name)
    before = layer.weight.detach().clone()
    scaler.scale(layer(torch.full((1, 2), float("inf"), device=s.name)).sum()).backward()
    scaler.step(steps)
    scaler.update()
    same(layer.weight.detach(), before.cpu(), "a weight after a step that must be skipped", exact=True)


# ---- other uses of tensors in PyTorch ----


@check("serialization", "torch.save, torch.load with map_location")
def _(s: Subject) -> None:
    x = torch.randn(4).to(s.name)
    file = io.BytesIO()
    torch.save({"x": x, "view": x[1:]}, file)
    for where, kind in ((None, s.name), ("cpu", "cpu"), (s.name, s.name)):
        file.seek(0)
        got = torch.load(file, map_location=where, weights_only=True)
        want(got["x"].device.type == kind, f"map_location={where!r} gives {got['x'].device}")
        want(torch.equal(got["x"].cpu(), x.cpu()), "it's another tensor")
        want(got["view"].untyped_storage().data_ptr() == got["x"].untyped_storage().data_ptr(), "views are copies")


@check("serialization", "deepcopy, pickle")
def _(s: Subject) -> None:
    x = torch.randn(4).to(s.name)
    for again in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        want(again.device == x.device and torch.equal(again.cpu(), x.cpu()), "it's another tensor")


@optional("interchange", "DLPack")
def _(s: Subject) -> None:
    x = torch.arange(6.0).to(s.name).view(2, 3).t()
    y = torch.from_dlpack(x)
    want(y.device == x.device and y.data_ptr() == x.data_ptr() and y.stride() == x.stride(), "it's another tensor")


def _child(plugin: str | None, got: Any, answer: Any) -> None:
    """The child process: changes the tensor that it gets."""
    if plugin:
        importlib.import_module(plugin)
    x = got.get(timeout=60)
    x.mul_(2)
    torch.accelerator.synchronize()
    answer.put(str(x.device.type))
    del x
    got.get(timeout=60)


@optional("interchange", "tensors of other processes (torch.multiprocessing)")
def _(s: Subject) -> None:
    x = torch.arange(6.0).to(s.name)[1:]
    ForkingPickler.dumps(x)  # here, as an error would be lost in the queue's thread
    spawn = torch.multiprocessing.get_context("spawn")
    given, answer = spawn.Queue(), spawn.Queue()
    child = spawn.Process(target=_child, args=(s.plugin, given, answer), daemon=True)
    child.start()
    try:
        given.put(x)
        want(answer.get(timeout=60) == s.name, "it's of another device there")
        same(x, torch.arange(6.0)[1:] * 2, "a tensor that another process has changed", exact=True)
        given.put(None)
    finally:
        child.join(30)
        child.kill()


@optional("compiler", "fake tensors")
def _(s: Subject) -> None:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        y = torch.randn(2, 3, device=s.name) @ torch.randn(3, 4, device=s.name)
        want(y.device.type == s.name and y.shape == (2, 4), f"a product is on {y.device}")


def _compiled(s: Subject, backend: str) -> None:
    x: Any = torch.randn(4, 4).to(s.name).requires_grad_()
    torch.compile(lambda t: (t.sin() + t.cos()).sum(), backend=backend)(x).backward()
    want(x.grad is not None, "there is no gradient")
    torch.testing.assert_close(x.grad.cpu(), (x.cos() - x.sin()).detach().cpu())


@optional("compiler", "torch.compile(backend=eager)")
def _(s: Subject) -> None:
    _compiled(s, "eager")


@optional("compiler", "torch.compile(backend=aot_eager)")
def _(s: Subject) -> None:
    _compiled(s, "aot_eager")


@optional("profiler", "torch.profiler has the device's kernels")
def _(s: Subject) -> None:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as got:
        torch.ones(1000, device=s.name).sin_()
        torch.accelerator.synchronize()
    events: Any = got.events()
    want(any(e.device_type == torch.autograd.DeviceType.PrivateUse1 for e in events), "there is none of them")


@optional("profiler", "torch.autograd.profiler(use_device=...)")
def _(s: Subject) -> None:
    with torch.autograd.profiler.profile(use_device=s.name) as got:
        torch.ones(1000, device=s.name).sin_()
    want(any("sin" in e.key for e in got.key_averages()), "it has no operators")


@optional("graphs", "torch.accelerator.Graph")
def _(s: Subject) -> None:
    graph: Any = torch.accelerator.Graph()  # type: ignore[attr-defined,unused-ignore]
    x = torch.ones(4, device=s.name)
    with torch.Stream(s.device()), graph:
        x.mul_(2)
    for _ in range(3):
        graph.replay()
    torch.accelerator.synchronize()
    same(x, torch.full((4,), 8.0), exact=True)


# ---- torch.distributed ----


@contextlib.contextmanager
def _group(s: Subject) -> Iterator[Any]:
    import torch.distributed as dist

    serve = [b for b, kinds in dist.Backend.backend_capability.items() if s.name in kinds]
    want(serve, "no backend is registered for the device (Backend.register_backend(devices=...))")
    with tempfile.TemporaryDirectory() as where:
        store = dist.FileStore(os.path.join(where, "store"), 1)
        dist.init_process_group(f"cpu:gloo,{s.name}:{serve[-1]}", store=store, rank=0, world_size=1)
        try:
            yield dist
        finally:
            dist.destroy_process_group()


@optional("distributed", "a process group of one: collectives of tensors of the device")
def _(s: Subject) -> None:
    with _group(s) as dist:
        x = torch.arange(4.0).to(s.name)
        dist.all_reduce(x)
        dist.broadcast(x, 0)
        parts = [torch.empty(4, device=s.name)]
        dist.all_gather(parts, x)
        same(parts[0], torch.arange(4.0), exact=True)
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        dist.barrier()
        same(x, torch.arange(4.0), exact=True)


@optional("distributed", "DistributedDataParallel")
def _(s: Subject) -> None:
    with _group(s):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).to(s.name))
        model(torch.ones(1, 2, device=s.name)).sum().backward()
        same(model.module.weight.grad, torch.ones(2, 2), exact=True)


@optional("tests", "torch.testing's tests of device types")
def _(s: Subject) -> None:
    from torch.testing._internal import common_device_type

    kinds = [b.device_type for b in common_device_type.get_device_type_test_bases()]
    want(s.name in kinds or "privateuse1" in kinds, f"they are instantiated for {', '.join(kinds)} only")
