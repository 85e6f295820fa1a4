"""Operators of PyTorch's database on a device and on the CPU, for the suites of ``programs``.

Samples are made on the CPU and copied to the device, so that nothing but the operator itself runs there. Each sample
that is compared also tells how the device ran the operator: as ``chorus_device`` counts it, or, for a device of
another package, as PyTorch's dispatcher knows it.
"""

from __future__ import annotations

import copy
import functools
import os
import re
import sys
import unittest
import unittest.mock
from collections import Counter
from typing import Any

import torch

from chorus_device import sweep
from chorus_device.devtests import notes

SAMPLES = "DEVTESTS_SAMPLES"  # the variable with the number of samples of an operator and type; 0 means all
USUAL_SAMPLES = 8
# Operators whose other arguments than the first one are tensors of the CPU on every device.
TAKES_HOST_TENSORS = {"tensor_split"}
# Operators that may return any index of equal values, and the position of the dimension among their other arguments.
ANY_OF_EQUAL = {"argsort": 0, "kthvalue": 1, "mode": 0, "sort": 0, "topk": 1}
# Bounds of differences for types whose sums may round otherwise; PyTorch's own for other types.
BOUNDS = {
    torch.float32: (1e-3, 1e-3),
    torch.complex64: (1e-3, 1e-3),
    torch.float16: (1e-2, 1e-2),
    torch.bfloat16: (5e-2, 5e-2),
}


def plain(operators: list[Any]) -> list[Any]:
    """The operators without PyTorch's lists of tests to be skipped, which are for its own tests and devices."""
    found = []
    for op in operators:
        op = copy.copy(op)
        op.decorators = op.skips = ()
        found.append(op)
    return found


def samples(op: Any, dtype: torch.dtype, grad: bool = False) -> list[Any]:
    """Samples on the CPU: as many as the user wants, spread over all of them, since the first ones are similar."""
    made = list(op.sample_inputs("cpu", dtype, requires_grad=grad))
    most = int(os.environ.get(SAMPLES, USUAL_SAMPLES))
    return made[:: -(-len(made) // most)] if most and len(made) > most else made


def moved(t: torch.Tensor, device: str) -> torch.Tensor:
    """A copy of the CPU's tensor on a device, with its strides, its offset and what lies between its elements."""
    if t.layout != torch.strided or t.is_quantized or t.is_nested:
        there = t.detach().to(device)
    elif t.is_conj():
        there = moved(t.detach().conj(), device).conj()
    elif t.is_neg():
        there = torch._neg_view(moved(torch._neg_view(t.detach()), device))
    elif t.is_contiguous() and t.storage_offset() == 0:
        there = t.detach().contiguous().to(device)
        there = there.clone() if device == "cpu" else there
    else:
        whole = torch.empty(0, dtype=t.dtype).set_(t.untyped_storage())
        there = torch.as_strided(moved(whole, device), t.size(), t.stride(), t.storage_offset())
    return there.detach().requires_grad_(t.requires_grad)


def there(sample: Any, device: str, layout: Any = None, op: str = "") -> Any:
    """A copy of the CPU's sample, for an operator, on a device, where one tensor stays one tensor."""
    known: dict[int, torch.Tensor] = {}
    if op in TAKES_HOST_TENSORS:
        given = sample.args, sample.kwargs
        known = {id(t): t for t in sweep.tensors(given)}

    def put(t: Any) -> Any:
        if isinstance(t, torch.Tensor):
            if id(t) not in known:
                known[id(t)] = moved(t if layout is None else sweep.lay(t, layout), device)
            return known[id(t)]
        return torch.device(device) if isinstance(t, torch.device) else t

    made = sample.transform(put)
    known.clear()  # as what transform leaves, which only the garbage collector frees, would hold the tensors
    if "device" in made.kwargs:
        made.kwargs["device"] = device
    return made


@functools.cache
def draws_as_the_cpu(device: str) -> bool:
    """Have the device draw the CPU's random numbers if it can, and tell whether it does."""
    try:
        if hasattr(module := getattr(torch, torch.device(device).type), "use_philox"):
            module.use_philox(False)
        torch.manual_seed(7)
        got = torch.rand(8, device=device).cpu()
        torch.manual_seed(7)
        return torch.equal(got, torch.rand(8))
    except Exception:
        return False


def random_on_cpu(op: Any, sample: Any) -> bool:
    """Whether an operator's results depend on random numbers."""

    seeds = torch.manual_seed

    def bits(seed: int) -> str:
        seeds(seed)
        own = there(sample, "cpu")
        # The database's functions of random operators set a seed of their own, which would hide what they are.
        with unittest.mock.patch.object(torch, "manual_seed", lambda _: seeds(seed)):
            return sweep.bits(op(own.input, *own.args, **own.kwargs))

    return bits(1) != bits(2)


def chosen(op: Any, sample: Any, results: Any) -> torch.Tensor | None:
    """The values at the indices that an operator returns, if it may choose any index of equal values; else None."""
    if op.name not in ANY_OF_EQUAL or sample.kwargs.get("stable") or sample.input.dim() == 0:
        return None
    x = sample.input.detach()
    at = ANY_OF_EQUAL[op.name]
    dim = sample.kwargs.get("dim", sample.args[at] if len(sample.args) > at else -1)
    indices = results if isinstance(results, torch.Tensor) else results[1]
    return torch.gather(x, dim, indices.unsqueeze(dim) if indices.dim() < x.dim() else indices)


# ---- how a device ran an operator ----


def counters() -> Any:
    """The extension of chorus_device if the device is one of its, or else None."""
    return sys.modules.get("chorus_device._C")


def calls() -> dict[str, tuple[int, int]]:
    """How often operators were called on the device so far: computed by its kernels, and by the CPU's."""
    extension = counters()
    if extension is None:
        return {}
    if hasattr(extension, "operator_calls"):
        return dict(extension.operator_calls())
    return {name: (0, n) for name, n in extension.fallback_counts().items()}


class Ran:
    """Operators that ran within ``with`` blocks, by the device's kernels and by the CPU's, with their calls."""

    def __init__(self) -> None:
        self.native: Counter[str] = Counter()
        self.host: Counter[str] = Counter()

    def __enter__(self) -> None:
        self._before = calls()

    def __exit__(self, *_: object) -> None:
        for name, (native, host) in calls().items():
            had = self._before.get(name, (0, 0))
            for into, n in ((self.native, native - had[0]), (self.host, host - had[1])):
                if n > 0:
                    into[name] += n

    def facts(self) -> dict[str, Any]:
        """Return what a note has of them."""
        return {"fallbacks": dict(self.host), "kernels": sorted(self.native)}


@functools.cache
def overloads(name: str) -> tuple[str, ...]:
    """The overloads of PyTorch's operator and of its in-place form: "aten::add.out" and so on."""
    schemas = [s for n in (name, name + "_") for s in torch._C._jit_get_schemas_for_operator(f"aten::{n}")]
    names = (s.name + ("." + s.overload_name if s.overload_name else "") for s in schemas)
    known: Any = torch._C._dispatch_has_kernel  # not of those that only TorchScript has
    return tuple(n for n in names if known(n))


@functools.cache
def has_own_kernel(name: str) -> bool:
    """Whether the device has a kernel of its own for an operator of the database."""
    has: Any = torch._C._dispatch_has_kernel_for_dispatch_key
    return any(has(o, "PrivateUse1") for o in overloads(name))


@functools.cache
def is_composed(name: str) -> bool:
    """Whether PyTorch composes an operator of others for a device without a kernel of its own."""
    has: Any = torch._C._dispatch_has_kernel_for_dispatch_key
    keys = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")
    return not overloads(name) or any(has(o, key) for o in overloads(name) for key in keys)


def kind_of(op: Any, ran: Ran) -> str:
    """How the device runs an operator: "native", "composed" or "fallback"."""
    name = re.sub(r"^.*\.", "", op.aten_name or op.name)
    if ran.host:
        return "fallback"
    if has_own_kernel(name) or any(o in ran.native for o in overloads(name)):
        return "native"
    return "composed" if counters() is not None or is_composed(name) else "fallback"


# ---- comparisons ----


def agrees(what: str, got: Any, want: Any, values: bool) -> None:
    """Fail unless the device's results are the CPU's: sizes, types and values."""
    try:
        sweep.compare(what, got, want, values, strides=False, within=BOUNDS)
    except sweep.Differ as error:
        raise AssertionError(str(error)) from None


def agree(op: Any, mine: Any, own: Any, got: Any, want: Any, values: bool) -> None:
    """Fail unless the results are the CPU's (:func:`agrees`); indices of equal values count as equal."""
    at = chosen(op, own, want)
    agrees("results", got, want, values and at is None)
    if at is not None:
        agrees("results", chosen(op, mine, got), at, values)
        if not isinstance(got, torch.Tensor):
            agrees("results", got[0], want[0], values)


def compare(op: Any, dtype: torch.dtype, device: str, backward: bool = False) -> None:
    """Compare all samples of an operator with the CPU, its results or its gradients, and note how the device ran it."""
    facts: dict[str, Any] = {
        "op": sweep.name_of(op), "dtype": str(dtype).removeprefix("torch."), "backward": backward,
    }  # fmt: skip
    ran = Ran()
    n = 0
    same_numbers = draws_as_the_cpu(device)
    try:
        for sample in samples(op, dtype, backward):
            try:
                own = there(sample, "cpu")
                want, grads = sweep.call(op, own, "cpu", backward, False)
            except Exception:
                continue  # the CPU refuses this sample
            if backward and not any(isinstance(g, torch.Tensor) for g in grads):
                continue
            mine = there(sample, device, op=op.name)
            with ran:
                got, got_grads = sweep.call(op, mine, device, backward, False)
            torch.accelerator.synchronize(device)  # a result on the CPU may be that of a copy with non_blocking
            values = op.name not in sweep.UNDEFINED
            values = values and (same_numbers or not random_on_cpu(op, sample))
            if backward:
                agrees("gradients", got_grads, grads, values)
            else:
                agree(op, mine, own, got, want, values)
            n += 1
    except NotImplementedError:
        notes.note(**facts, kind="refused", **ran.facts())
        raise
    except BaseException:
        notes.note(**facts, kind="differs", **ran.facts())
        raise
    if n == 0:
        raise unittest.SkipTest("there is no sample that the CPU computes")
    notes.note(**facts, kind=kind_of(op, ran), **ran.facts())


def compare_form(op: Any, dtype: torch.dtype, device: str, layouts: list[Any]) -> None:
    """Compare an operator, or a form of it, with the CPU's: results and arguments, in these memory layouts."""
    n = 0
    same_numbers = draws_as_the_cpu(device)
    for sample in samples(op, dtype):
        for layout in layouts:
            try:
                own = there(sample, "cpu", layout)
                want, _ = sweep.call(op, own, "cpu", False, False)
            except unittest.SkipTest:
                raise
            except Exception:
                continue
            mine = there(sample, device, layout, op.name)
            got, _ = sweep.call(op, mine, device, False, False)
            torch.accelerator.synchronize(device)
            values = op.name not in sweep.UNDEFINED
            values = values and (same_numbers or not random_on_cpu(op, sample))
            agree(op, mine, own, got, want, values)
            agrees("arguments", [mine.input, mine.args], [own.input, own.args], values)
            n += 1
    if n == 0:
        raise unittest.SkipTest("there is no sample that the CPU computes")


def shares(a: torch.Tensor, tensors: list[torch.Tensor]) -> list[bool]:
    """Which tensors a tensor shares its storage with."""
    return [a.untyped_storage()._cdata == t.untyped_storage()._cdata for t in tensors]


def compare_views(op: Any, dtype: torch.dtype, device: str) -> None:
    """Compare which results are views of which arguments, and their places there, with the CPU's."""
    n = 0

    def told(sample: Any) -> list[Any]:
        given = [t for t in sweep.tensors((sample.input, sample.args, sample.kwargs)) if t.layout == torch.strided]
        result, _ = sweep.call(op, sample, "", False, False)
        found: list[Any] = []
        for t in sweep.tensors(result):
            if t.layout == torch.strided and any(shares(t, given)):
                place = (tuple(t.shape), t.stride(), t.storage_offset())
                found.append((shares(t, given), t.is_conj(), t.is_neg(), *place))
            else:
                found.append(None)
        return found

    for sample in samples(op, dtype):
        try:
            want = told(there(sample, "cpu"))
        except Exception:
            continue
        if not any(want):
            continue
        got = told(there(sample, device, op=op.name))
        if got != want:
            raise AssertionError(f"views: {got}, not {want}")
        n += 1
    if n == 0:
        raise unittest.SkipTest("no result is a view")


def compare_errors(op: Any, device: str) -> None:
    """Check that wrong arguments of the database raise an exception of the CPU's type on the device."""
    n = 0
    for wrong in op.error_inputs("cpu"):
        sample = wrong.sample_input

        def call(where: str, sample: Any = sample) -> BaseException | None:
            own = there(sample, where)
            try:
                op(own.input, *own.args, **own.kwargs)
                torch.accelerator.synchronize(device)
            except Exception as error:
                return error
            return None

        want = call("cpu")
        if want is None:
            continue
        got = call(device)
        if got is None or not isinstance(got, type(want)) and not isinstance(want, type(got)):
            raise AssertionError(f"wrong arguments: {got!r}, and on the CPU {want!r}")
        n += 1
    if n == 0:
        raise unittest.SkipTest("there are no wrong arguments in the database")
