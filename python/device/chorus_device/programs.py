"""Random programs, on a device from outside and on the CPU.

``python -m chorus_device.programs NAME`` draws programs from a seed: operators, views, types, random numbers, backward
passes, copies between devices and the host, streams and events, threads, graphs. Each runs on the device and on the
CPU, and the values that it reads on the way and at its end must have the same bits. ``--pressure`` uses tensors of
MiBs, for devices with little memory.

It's for any device whose kernels and random numbers are the CPU's. ``--rounded`` is for a device with kernels of its
own, whose results may differ in their last bits: results are rounded to quarters, and random numbers are drawn without
being kept.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from chorus_device import memory
from chorus_device._device import drain_autograd, make_kept_memory

FLOATS = (torch.float32, torch.float64, torch.bfloat16)
DTYPES = (*FLOATS, torch.int64, torch.int32, torch.bool)


class Memory:
    """The memory that tensors share, and the streams with work on it that other streams must wait for."""

    def __init__(self, home: Any) -> None:
        self.home = home  # the stream that it was allocated on
        self.writer = home
        self.readers: set[Any] = set()


class Slot:
    def __init__(self, tensor: Tensor, place: int, memory: Memory) -> None:
        self.tensor, self.place, self.memory = tensor, place, memory


class Host:
    """The CPU as two devices: its work is synchronous and needs no streams."""

    on_device = False

    def __init__(self) -> None:
        self.places = [torch.device("cpu")] * 2

    def streams(self, place: int) -> list[Any]:
        return [(place, 0), (place, 1), (place, 2)]

    def on(self, stream: Any) -> Any:
        return contextlib.nullcontext()


class Devices:
    """Two devices of a type, or one in both roles."""

    on_device = True

    def __init__(self, kind: str) -> None:
        n = torch.accelerator.device_count()
        self.places = [torch.device(kind, i % n) for i in range(2)]
        self._streams = []
        for d in self.places:
            default = torch.accelerator.current_stream(d)
            self._streams.append([default, torch.Stream(d), torch.Stream(d, priority=-1)])

    def streams(self, place: int) -> list[Any]:
        return self._streams[place]

    def on(self, stream: Any) -> Any:
        return stream


class Program:
    """One run of the program of a seed. It draws random choices in the same order on every device."""

    def __init__(
        self, seed: int, steps: int, machine: Any, most: int, rounded: bool = False, inner: bool = False
    ) -> None:
        self.rng = random.Random(seed)
        self.seed, self.steps, self.machine, self.most = seed, steps, machine, most
        self.rounded, self.inner = rounded, inner
        self.order = random.Random(seed + 1)  # draws how streams are ordered, which the CPU doesn't need
        self.slots: list[Slot] = []
        self.seen: list[tuple[str, Tensor]] = []
        self.log: list[str] = []
        self.graphs: list[Any] = []
        # Each device has a generator, seeded like these: see differ.
        own = inner or not machine.on_device
        self.of_host = torch.Generator().manual_seed(seed)
        self.generators = [torch.Generator(d).manual_seed(seed) for d in machine.places] if own else [None, None]

    # ---- values ----

    def tame(self, t: Tensor) -> Tensor:
        """Values in a range that further steps can use."""
        if not t.is_floating_point():
            return t
        t = t.nan_to_num(0.5, 2.0, -2.0).clamp(-4, 4)
        # Results of few different values aren't near where this rounds down instead of up.
        return t.double().mul(4).add(0.3137).floor().div(4).to(t.dtype) if self.rounded else t

    def rand(self, sizes: Any, place: int) -> Tensor:
        """Random numbers; with rounded results other numbers, and random ones are drawn beside them."""
        t = torch.rand(sizes, device=self.machine.places[place], generator=self.generators[place])
        if self.rounded:
            t = torch.arange(t.numel(), device=t.device).mul(7).remainder(17).div(16).reshape(sizes) + t.lt(0)
        return t

    # ---- order ----

    def after(self, stream: Any, others: set[Any]) -> None:
        """Make a stream wait for the others' work so far."""
        if not self.machine.on_device:
            return
        for other in others:
            if other == stream:
                continue
            how = self.order.randrange(5)
            if how == 0:
                stream.wait_stream(other)
            elif how == 1:
                event = torch.Event(other.device)
                event.record(other)
                event.wait(stream)
            elif how == 2:
                stream.wait_event(other.record_event())
            elif how == 3:
                other.synchronize()
            else:
                event = torch.Event(other.device, enable_timing=True)
                other.record_event(event)
                event.synchronize()
                assert event.query()

    def reads(self, stream: Any, *slots: Slot) -> None:
        for s in slots:
            self.after(stream, {s.memory.writer})
            s.memory.readers.add(stream)

    def writes(self, stream: Any, *slots: Slot) -> None:
        for s in slots:
            self.after(stream, {s.memory.writer, *s.memory.readers})
            s.memory.writer, s.memory.readers = stream, set()

    def drop(self, slot: Slot) -> None:
        """Free a slot by the rule of all devices: other streams that use its memory are recorded, or waited for."""
        memory = slot.memory
        if self.machine.on_device:
            for user in {memory.writer, *memory.readers}:
                if user == memory.home:
                    continue
                if user.device == memory.home.device and self.order.random() < 0.5:
                    slot.tensor.record_stream(user)
                else:
                    self.after(memory.home, {user})
        self.slots.remove(slot)

    # ---- slots ----

    def stream(self, place: int) -> Any:
        return self.machine.streams(place)[self.rng.randrange(3)]

    def keep(self, tensor: Tensor, place: int, stream: Any, memory: Memory | None = None) -> None:
        # A result may be a view of an argument only if the caller says so.
        if memory is None:
            memory = Memory(stream)
        self.slots.append(Slot(tensor, place, memory))
        while len(self.slots) > 14 or (len(self.slots) > 2 and self.bytes() > self.most):
            self.drop(self.slots[self.rng.randrange(len(self.slots) - 1)])

    def bytes(self) -> int:
        """An upper bound of the bytes of all slots' storages, from facts that are the same on both devices."""
        return sum({id(s.memory): s.tensor.untyped_storage().nbytes() for s in self.slots}.values())

    def pick(self, place: int | None = None, ok: Callable[[Tensor], bool] = lambda t: True) -> Slot | None:
        found = [s for s in self.slots if (place is None or s.place == place) and ok(s.tensor)]
        return self.rng.choice(found) if found else None

    def sizes(self) -> tuple[int, ...]:
        if self.most < 1 << 20:
            return tuple(self.rng.randrange(1, 9) for _ in range(self.rng.randrange(1, 4)))
        return self.rng.choice([(7,), (300, 500), (64, 64, 64), (1 << 18,), (512, 1024), (3, 5)])

    def make(self) -> str:
        place = self.rng.randrange(2)
        s = self.stream(place)
        dtype = self.rng.choice(DTYPES)
        sizes, d = self.sizes(), self.machine.places[place]
        how = self.rng.randrange(4)
        with self.machine.on(s):
            if how == 0:
                t = torch.arange(torch.Size(sizes).numel(), device=d).reshape(sizes).remainder(11).to(dtype)
            elif how == 1:
                host = torch.full(sizes, self.rng.randrange(3), dtype=dtype)
                t = host.to(d, copy=True)
            else:
                t = self.rand(sizes, place).mul(4).sub(1).to(dtype)
        self.keep(t, place, s)
        return f"make {place} {dtype} {sizes}"

    # ---- steps ----

    def step(self) -> str:
        if len(self.slots) < 3:
            return self.make()
        steps: list[tuple[int, Callable[[], str | None]]] = [
            (3, self.make), (8, self.unary), (8, self.binary), (5, self.in_place), (3, self.out), (4, self.view),
            (4, self.reduce), (3, self.index), (3, self.depends), (3, self.several), (3, self.layer),
            (3, self.number), (2, self.measure), (1, self.drawn_by_host), (3, self.backward), (4, self.across),
            (3, self.through_host), (2, self.pinned), (2, self.look),
            (2, self.grow), (1, self.forget), (1, self.wait),
        ]  # fmt: skip
        if not self.inner:
            steps += [(2, self.graph), (1, self.threads), (1, self.too_much)]
        for _ in range(20):
            told = self.rng.choices([f for _, f in steps], [n for n, _ in steps])[0]()
            if told is not None:
                return told
        return self.make()

    def one(self, f: Callable[[Tensor], Tensor], name: str, slot: Slot | None) -> str | None:
        if slot is None:
            return None
        s = self.stream(slot.place)
        self.reads(s, slot)
        with self.machine.on(s):
            t = self.tame(f(slot.tensor)).clone()
        self.keep(t, slot.place, s)
        return f"{name} {slot.place} {slot.tensor.dtype} {tuple(slot.tensor.shape)}"

    def unary(self) -> str | None:
        slot = self.pick()
        assert slot is not None
        if slot.tensor.is_floating_point():
            name = self.rng.choice(["sin", "exp", "sigmoid", "abs", "neg", "tanh", "square", "floor", "relu", "isnan"])
        else:
            name = self.rng.choice(["abs", "sign", "isnan", "logical_not"])
            if slot.tensor.dtype is torch.bool:
                name = "logical_not"
        return self.one(getattr(torch, name), name, slot)

    def pair(self) -> tuple[Slot, Slot] | None:
        a = self.pick()
        assert a is not None
        b = self.pick(a.place, lambda t: t.shape == a.tensor.shape or t.dim() == 0 or a.tensor.dim() == 0)
        return None if b is None else (a, b)

    def binary(self) -> str | None:
        both = self.pair()
        if both is None:
            return None
        a, b = both
        name = self.rng.choice(["add", "mul", "maximum", "where", "eq", "sub", "lerp", "outer"])
        s = self.stream(a.place)
        self.reads(s, a, b)
        x, y = a.tensor, b.tensor
        with self.machine.on(s):
            if name == "where":
                t = torch.where(x > 0, x, y)
            elif name == "sub":
                t = x.float() - y.float()
            elif name == "lerp":
                t = torch.lerp(x.double(), y.double(), 0.25)
            elif name == "outer":
                t = torch.outer(x.flatten()[:16].float(), y.flatten()[:16].float())
            else:
                t = getattr(torch, name)(x, y)
            t = self.tame(t).clone()
        self.keep(t, a.place, s)
        return f"{name} {a.place} {x.dtype} {y.dtype} {tuple(x.shape)}"

    def in_place(self) -> str | None:
        both = self.pair()
        if both is None:
            return None
        a, b = both
        x, y = a.tensor, b.tensor
        if x.shape != y.shape or (a.memory is b.memory and a is not b):
            return None
        s = self.stream(a.place)
        self.reads(s, b)
        self.writes(s, a)
        name = self.rng.choice(["copy_", "add_", "zero_", "fill_", "masked_fill_", "uniform_", "clamp_"])
        with self.machine.on(s):
            if name == "copy_":
                x.copy_(y)
            elif name == "add_":
                x.add_(y.to(x.dtype)) if x.dtype is not torch.bool else x.logical_or_(y)
                x.copy_(self.tame(x))
            elif name in ("zero_", "fill_"):
                x.zero_() if name == "zero_" else x.fill_(1)
            elif name == "masked_fill_":
                x.masked_fill_(y > 0, 1)
            elif name == "uniform_" and x.is_floating_point():
                x.uniform_(-1, 1, generator=self.generators[a.place])
                if self.rounded:
                    x.lt_(2)
            elif x.dtype is not torch.bool:
                x.clamp_(-1, 1)
        return f"{name} {a.place} {x.dtype} {tuple(x.shape)} {x.stride()}"

    def out(self) -> str | None:
        both = self.pair()
        if both is None or both[0].tensor.shape != both[1].tensor.shape:
            return None
        a, b = both
        target = self.pick(a.place, lambda t: t.shape == a.tensor.shape and t.dtype == torch.float32)
        if target is None or target.memory in (a.memory, b.memory) or not target.tensor.is_contiguous():
            return None
        s = self.stream(a.place)
        self.reads(s, a, b)
        self.writes(s, target)
        with self.machine.on(s):
            torch.sub(self.tame(a.tensor.float()), self.tame(b.tensor.float()), out=target.tensor)
            target.tensor.copy_(self.tame(target.tensor))
        return f"sub out= {a.place} {tuple(a.tensor.shape)}"

    def number(self) -> str | None:
        """A number in a tensor of the host's, which changes as soon as the operator was called."""
        slot = self.pick()
        assert slot is not None
        name = self.rng.choice(["add", "mul", "sub", "div", "minimum", "eq", "pow", "lerp", "addcmul", "where"])
        n = torch.tensor(self.rng.randrange(3), dtype=self.rng.choice(FLOATS + (torch.int64,)))
        first, given = self.rng.random() < 0.5, self.rng.random() < 0.3

        def f(x: Tensor) -> Tensor:
            x = x.to(n.dtype)
            if name == "lerp" and x.is_floating_point():
                t = torch.lerp(n, x, 0.25) if first else torch.lerp(x, x + 1, n)
            elif name == "addcmul":
                t = torch.addcmul(n, x, x)
            elif name == "where":
                t = torch.where(x > 0, n, x)
            else:
                call = torch.add if name == "lerp" else getattr(torch, name)
                pair = (n, x) if first else (x, n)
                t = call(*pair)
                if given:
                    t = call(*pair, out=torch.empty_like(t))
            n.add_(1)
            return t

        return self.one(f, f"number {name} {n.dtype}", slot)

    def measure(self) -> str | None:
        """Copy a value of the device into a tensor of the host's."""
        slot = self.pick(ok=lambda t: t.numel() > 0)
        if slot is None:
            return None
        s, how = self.stream(slot.place), self.rng.randrange(3)
        self.reads(s, slot)
        held = torch.zeros(3)
        with self.machine.on(s):
            x = self.tame(slot.tensor.double()).sum().float()
            if how == 0:
                held[1].fill_(x)
            elif how == 1:
                torch.sum(x, 0, out=held[1])
            else:
                torch._amp_foreach_non_finite_check_and_unscale_([x.reshape(1)], held[1], torch.ones_like(x))
        self.seen.append((f"{len(self.log)}: measure", held))
        return f"measure {how} {slot.place}"

    def drawn_by_host(self) -> str | None:
        """Random numbers from the host's generator."""
        g = self.of_host
        return self.one(lambda x: torch.rand(x.shape, device=x.device, generator=g), "drawn by the host", self.pick())

    def view(self) -> str | None:
        slot = self.pick(ok=lambda t: t.dim() > 0 and t.numel() > 1)
        if slot is None:
            return None
        x, how = slot.tensor, self.rng.randrange(5)
        if how == 0:
            t = x.transpose(0, -1)
        elif how == 1:
            t = x[:: 1 + self.rng.randrange(2)]
        elif how == 2:
            t = x.narrow(-1, x.shape[-1] // 2, x.shape[-1] - x.shape[-1] // 2)
        elif how == 3:
            t = x.unsqueeze(0)
        else:
            t = x.select(0, self.rng.randrange(x.shape[0]))
        self.keep(t, slot.place, slot.memory.writer, slot.memory)
        return f"view {how} {slot.place} {tuple(x.shape)}"

    def reduce(self) -> str | None:
        slot = self.pick(ok=lambda t: t.dim() > 0 and t.numel() > 0 and t.dtype is not torch.bool)
        d = self.rng.randrange(4)
        name = self.rng.choice(["sum", "amax", "cumsum", "mean", "argsort", "any", "softmax", "var"])

        def f(x: Tensor) -> Tensor:
            dim = d % x.dim()
            if name == "argsort":
                return torch.argsort(x, dim=dim, stable=True)
            if name in ("mean", "softmax"):
                return getattr(torch, name)(x.float(), dim)  # type: ignore[no-any-return]
            if name == "var":
                return torch.var(x.float(), dim, correction=0)
            return getattr(torch, name)(x, dim)  # type: ignore[no-any-return]

        return self.one(f, name, slot)

    def index(self) -> str | None:
        # Three indices of the first dimension. If that's shorter, a large tensor's result would be many times its size.
        slot = self.pick(ok=lambda t: t.dim() > 0 and (t.shape[0] > 2 or 0 < t.numel() <= 1 << 18))
        at = [self.rng.randrange(1 << 20) for _ in range(3)]
        how = self.rng.randrange(4)

        def f(x: Tensor) -> Tensor:
            where = torch.tensor([i % x.shape[0] for i in at], device=x.device)
            if how == 0:
                return x.index_select(0, where)
            if how == 1:
                return x[where]
            y = x.clone()
            if how == 2:
                y.index_fill_(0, where, 1)
            else:
                y[where[:1]] = y[where[1:2]]
            return y

        return self.one(f, f"index {how}", slot)

    def depends(self) -> str | None:
        slot = self.pick(ok=lambda t: 0 < t.numel() <= 1 << 18)
        how = self.rng.randrange(4)

        def f(x: Tensor) -> Tensor:
            if how == 0:
                return x.nonzero()[:50]
            if how == 1:
                return x.flatten()[:1000].argwhere()
            if how == 2:
                return x[x > 0][:200]
            return torch.full((2,), float(x.flatten()[0].item()), device=x.device)

        return self.one(f, f"depends {how}", slot)

    def several(self) -> str | None:
        a = self.pick(ok=lambda t: t.is_floating_point())
        if a is None:
            return None
        group = [s for s in self.slots if s.place == a.place and s.tensor.is_floating_point()][:4]
        s = self.stream(a.place)
        self.reads(s, *group)
        with self.machine.on(s):
            made = [self.tame(t) for t in torch._foreach_add([g.tensor for g in group], 0.5)]
            if self.rng.random() < 0.5:
                made = [torch.cat([t.flatten().float()[:100] for t in made])]
        for t in made[:2]:
            self.keep(t, a.place, s)
        return f"several {len(group)}"

    def layer(self) -> str | None:
        slot = self.pick(ok=lambda t: t.dim() > 1 and 0 < t.numel() <= 1 << 18 and t.shape[-1] <= 512)
        how = self.rng.randrange(6)
        generator = None if slot is None else self.generators[slot.place]

        def f(x: Tensor) -> Tensor:
            x = x.float().flatten(0, -2)[:64]
            n = x.shape[-1]
            if how == 0:
                return F.layer_norm(x, (n,))
            if how == 1:
                return F.linear(x, torch.linspace(-1, 1, 4 * n, device=x.device).view(4, n))
            if how == 2:
                return F.embedding((x.abs() * 2).long().clamp(0, 4), torch.eye(5, 3, device=x.device))
            if how == 3:
                chosen = torch.empty_like(x).bernoulli_(0.5, generator=generator)
                return x * (chosen.ge(0) if self.rounded else chosen)
            if how == 4:
                return F.scaled_dot_product_attention(x[None], x[None], x[None])[0]
            return F.conv1d(x[:, None], torch.ones(2, 1, 1, device=x.device))

        return self.one(f, f"layer {how}", slot)

    def backward(self) -> str | None:
        slot = self.pick(ok=lambda t: t.is_floating_point() and 0 < t.numel() <= 1 << 18)

        def f(x: Tensor) -> Tensor:
            leaf = x.detach().float().requires_grad_()
            (grad,) = torch.autograd.grad((leaf.sin() * leaf + leaf.sum() * 1e-3).square().mean(), leaf)
            return grad

        return self.one(f, "backward", slot)

    def across(self) -> str | None:
        slot = self.pick()
        assert slot is not None
        there = 1 - slot.place
        source, target = self.stream(slot.place), self.stream(there)
        if self.machine.places[0] == self.machine.places[1]:
            source = target  # one device has one current stream, which copies
        existing = self.pick(there, lambda t: t.shape == slot.tensor.shape) if self.rng.random() < 0.3 else None
        self.reads(source, slot)
        if existing is not None:
            self.writes(target, existing)
        with self.machine.on(source), self.machine.on(target):
            if existing is not None:
                existing.tensor.copy_(slot.tensor)
            else:
                t = slot.tensor.to(self.machine.places[there], non_blocking=True, copy=True)
        if existing is None:
            self.keep(t, there, target)
        return f"across {slot.place} {slot.tensor.dtype} {tuple(slot.tensor.shape)} {slot.tensor.stride()}"

    def through_host(self) -> str | None:
        slot = self.pick()
        assert slot is not None
        dtype = self.rng.choice(DTYPES)
        return self.one(lambda x: self.tame(x.cpu()).to(dtype).to(x.device, copy=True), "through host", slot)

    def pinned(self) -> str | None:
        slot = self.pick(ok=lambda t: t.numel() > 0)
        assert slot is not None

        def f(x: Tensor) -> Tensor:
            if x.device.type == "cpu":
                return torch.empty(x.shape, dtype=x.dtype).copy_(x)
            host = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
            host.copy_(x, non_blocking=True)
            torch.accelerator.current_stream(x.device).synchronize()
            again = torch.empty(x.shape, dtype=x.dtype, pin_memory=True).copy_(host)
            return again.to(x.device, non_blocking=True)  # `again` has no other reference from here on

        return self.one(f, "pinned", slot)

    def look(self) -> str | None:
        slot = self.pick()
        assert slot is not None
        s = self.stream(slot.place)
        self.reads(s, slot)
        with self.machine.on(s):
            self.seen.append((f"{len(self.log)}: look", slot.tensor.cpu().clone()))
        return "look"

    def grow(self) -> str | None:
        slot = self.pick(ok=lambda t: t.dim() == 1 and t.is_contiguous())
        if slot is None or slot.tensor._is_view() or slot.tensor.numel() > 1 << 16:
            return None
        if any(s is not slot and s.memory is slot.memory for s in self.slots):
            return None
        s = slot.memory.home  # the stream to which it returns memory
        self.writes(s, slot)
        with self.machine.on(s):
            n = slot.tensor.shape[0]
            slot.tensor.resize_(n + 3)
            slot.tensor[n:].fill_(1)
        return f"grow {slot.place} {n}"

    def forget(self) -> str | None:
        self.drop(self.rng.choice(self.slots))
        return "forget"

    def wait(self) -> str | None:
        place, empty = self.rng.randrange(2), self.rng.random() < 0.5
        if self.machine.on_device:
            torch.accelerator.synchronize(self.machine.places[place])
            if empty:
                torch.accelerator.empty_cache()
        return "wait"

    def too_much(self) -> str | None:
        """An allocation that is too large, which raises and changes nothing."""
        place = self.rng.randrange(2)
        if self.machine.on_device:
            total = memory.mem_get_info(self.machine.places[place])[1]
            try:
                torch.empty(total + 1, dtype=torch.int8, device=self.machine.places[place])
            except torch.OutOfMemoryError:
                return "too much"
            raise AssertionError("more memory was given than there is")
        return "too much"

    def graph(self) -> str | None:
        """A graph, captured once and replayed with other values."""
        both = self.pair()
        if both is None or not hasattr(torch.accelerator, "Graph"):
            return None
        a, b = both
        x, y = a.tensor, b.tensor
        if a.memory is b.memory or x.shape != y.shape or not x.is_floating_point() or x.numel() == 0:
            return None
        draws, times, back = self.rng.random() < 0.3, self.rng.randrange(1, 4), self.rng.random() < 0.3
        s = self.stream(a.place)
        self.reads(s, b)
        self.writes(s, a)

        def body() -> None:
            t = (x.float().sin() + y.float()).clamp(-2, 2)
            if draws:
                t = t + self.rand(t.shape, a.place)
            if back:
                leaf = t.detach().requires_grad_()
                (t,) = torch.autograd.grad(leaf.square().sum(), leaf)
            t = self.tame(t) if self.rounded else t
            parts = torch._foreach_mul([t, t.flatten()[:3]], 0.5)
            x.copy_(parts[0])
            x.flatten()[:1].add_(parts[1].sum().to(x.dtype))

        if self.machine.on_device:
            s.synchronize()
            g = torch.accelerator.Graph()
            with torch.accelerator.device_index(x.device.index), self.capture(g):
                body()
            with self.machine.on(s):
                for i in range(times):
                    x.add_(i)
                    g.replay()
            if self.order.random() < 0.5:
                self.graphs.append(g)
            else:
                s.synchronize()
        else:
            for i in range(times):
                x.add_(i)
                body()
        return f"graph {a.place} {x.dtype} {y.dtype} {tuple(x.shape)} {x.stride()} draws={draws} times={times} {back}"

    @contextlib.contextmanager
    def capture(self, g: Any) -> Any:
        stream = torch.Stream(torch.accelerator.current_stream().device)
        with stream, g:
            yield

    def threads(self) -> str | None:
        """Programs in two threads, each with tensors of its own, which this program takes over."""
        n = self.rng.randrange(4, 12)
        parts = [
            Program(self.rng.randrange(1 << 30), n, self.machine, self.most // 4, self.rounded, inner=True)
            for _ in range(2)
        ]
        failed: list[BaseException] = []

        def work(part: Program) -> None:
            try:
                part.go()
            except BaseException as error:
                error.add_note("in a thread, after " + "; ".join(part.log[-8:]))
                failed.append(error)

        workers = [threading.Thread(target=work, args=(p,)) for p in parts]
        for w in workers:
            w.start()
            if not self.machine.on_device:
                w.join()
        for w in workers:
            w.join()
        if failed:
            raise failed[0]
        for p in parts:
            self.seen += p.seen
            for slot in p.slots[-2:]:
                self.keep(slot.tensor, slot.place, slot.memory.home, slot.memory)
            for slot in list(p.slots[:-2]):
                p.drop(slot)
        return "threads: " + "; ".join(f"({', '.join(p.log)})" for p in parts)

    def go(self) -> None:
        for _ in range(self.steps):
            self.log.append("?")
            self.log[-1] = self.step()

    def end(self) -> None:
        """Compare all remaining tensors."""
        for i, slot in enumerate(self.slots):
            s = slot.memory.home
            self.reads(s, slot)
            with self.machine.on(s):
                self.seen.append((f"at the end, slot {i}", slot.tensor.cpu().clone()))
        if self.machine.on_device:
            for d in self.machine.places:
                torch.accelerator.synchronize(d)
        self.slots.clear()
        self.graphs.clear()


def bits(a: Tensor, b: Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bool(torch.equal(a, b) or torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(), b.nan_to_num()))


def differ(
    seed: int, steps: int, kind: str, pressure: bool, rounded: bool = False, total: int | None = None
) -> str:
    """The difference between device and CPU for the program of a seed; "" if there is none. The device's bytes are
    total, or all that it has."""
    most = (total or memory.mem_get_info(kind)[1]) // 6 if pressure else 1 << 19
    runs = []
    for machine in (Host(), Devices(kind)):
        torch.manual_seed(seed)
        program = Program(seed, steps, machine, most, rounded)
        try:
            program.go()
            program.end()
        except Exception as error:
            where = "on the device" if machine.on_device else "on the CPU"
            notes = " ".join(getattr(error, "__notes__", ()))
            return f"{where}, {type(error).__name__}: {error} {notes}\n" + tell(program)
        runs.append(program)
    want, got = runs
    if want.log != got.log:
        i = next(i for i, (a, b) in enumerate(zip(want.log, got.log)) if a != b)
        return f"step {i} is {got.log[i]} on the device and {want.log[i]} on the CPU\n" + tell(got, i)
    for (what, a), (_, b) in zip(got.seen, want.seen, strict=True):
        if not bits(a, b):
            return f"{what}: {a.dtype} {tuple(a.shape)}, not {b.dtype} {tuple(b.shape)}: {a} {b}\n" + tell(got)
    return ""


def tell(program: Program, last: int | None = None) -> str:
    lines = [f"    {i}: {step}" for i, step in enumerate(program.log)]
    return "\n".join(lines[: None if last is None else last + 1])


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m chorus_device.programs", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("device")
    parser.add_argument("--programs", type=int, default=100, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="of the first one; the next ones have the numbers after it")
    parser.add_argument("--steps", type=int, default=80, help="of each")
    parser.add_argument("--pressure", action="store_true", help="tensors of MiBs")
    parser.add_argument("--memory", type=int, metavar="MIB", help="of each device that may be used")
    parser.add_argument("--rounded", action="store_true", help="for a device with kernels of its own")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if not args.rounded:
        getattr(torch, args.device).use_philox(False)  # its numbers are to be the CPU's
    failed = 0
    make_kept_memory()
    most = None
    if args.memory:
        for i in range(torch.accelerator.device_count()):
            total = memory.mem_get_info(i)[1]
            memory.set_per_process_memory_fraction(min(1.0, (args.memory << 20) / total), i)
        most = args.memory << 20
    left = [torch.accelerator.memory_allocated(i) for i in range(torch.accelerator.device_count())]
    for seed in range(args.seed, args.seed + args.programs):
        told = differ(seed, args.steps, args.device, args.pressure, args.rounded, most)
        drain_autograd()
        gc.collect()
        for i, before in enumerate(left):
            torch.accelerator.synchronize(i)
            if not told and torch.accelerator.memory_allocated(i) > before:
                told = f"{torch.accelerator.memory_allocated(i) - before} bytes of device {i} are left"
        if told:
            failed += 1
            print(f"seed {seed}: {told}", flush=True)
    print(f"{args.programs - failed} of {args.programs} programs are as on the CPU")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
