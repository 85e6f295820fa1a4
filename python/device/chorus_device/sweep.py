"""PyTorch's own database of operators, OpInfo, on a device from outside and on the CPU, side by side.

``python -m chorus_device.sweep NAME`` runs every operator, with every type that the CPU has, forward and backward, once
with an idle stream and once with a busy one. It compares results, sizes, strides and gradients. They must be close to
the CPU's, and equal to each other, bit for bit.
It's for any device that draws the CPU's random numbers; for others random operators are not compared.

``--layouts`` also runs each sample with tensors of other memory layouts: dimensions reversed, channels last, gaps, an
offset.
``--forms`` also runs each operator in place, and with given results (``out=``): to be resized, contiguous, with
dimensions reversed, with gaps.
``--numbers`` also runs each sample with a number in a tensor of the host's instead of each tensor.
``--every N`` takes each Nth case only. Cases run in processes of their own, so that a crash or a hang is one line of
the report.
``--json FILE`` keeps the answers, a line each.
``--table PAGE`` makes a page of the documentation from the answers, or from those of a file with ``--of FILE``.
``--as FILE`` requires the same results, bit for bit, as in another run, such as one with streams that are always busy
(``CHORUS_DEVICE_INLINE=false``).
"""

from __future__ import annotations

import argparse
import functools
import gc
import hashlib
import importlib
import itertools
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from chorus._files import read_text
from chorus_device._device import drain_autograd, handle_of

# The results of these have undefined contents.
UNDEFINED = {
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_", "resize_as_",
}  # fmt: skip
# For these PyTorch's own code computes in another way on each type of device, in 16-bit floats.
BY_DEVICE = {"nn.functional.linear_cross_entropy"}
USUAL = ["float32", "float64", "int64", "int32", "bool", "bfloat16", "float16", "complex64"]
SECONDS = 60  # for one case


def operators() -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


def name_of(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def cases(dtypes: list[str], every: int = 1, pattern: str = "") -> list[tuple[int, str]]:
    """Pairs of an operator, by its index in the database, and a type."""
    found = []
    for i, op in enumerate(operators()):
        if re.search(pattern, name_of(op)):
            supported = op.supported_dtypes("cpu")
            found += [(i, d) for d in dtypes if getattr(torch, d) in supported]
    return found[::every]


# ---- one case ----

_sleep: Any = None  # a function that keeps a stream busy


def _nap(*_: Any) -> int:
    time.sleep(0.0015)
    return 0


def busy(device: str) -> None:
    """Keep the device's current stream busy for a while, if the library can."""
    try:
        _lib: Any = importlib.import_module("chorus._lib")
    except ImportError:
        return
    global _sleep
    if _sleep is None:
        _sleep = _lib.TASK_FN(_nap)
    stream: Any = torch.accelerator.current_stream(device)
    _lib.library.chorus_stream_task(handle_of(stream), b"busy", None, 0, _sleep, _lib.OVER_FN(), None)


def fallbacks() -> list[str]:
    """The operators that used the fallback since the last call."""
    try:
        extension: Any = importlib.import_module("chorus_device._C")
    except ImportError:  # a device of another extension
        return []
    return list(extension.fallbacks())


def tensors(value: Any) -> list[torch.Tensor]:
    leaves, _ = torch.utils._pytree.tree_flatten(value)
    return [v for v in leaves if isinstance(v, torch.Tensor)]


class Differ(Exception):
    pass


Bounds = dict[torch.dtype, tuple[float, float]]  # atol and rtol of types


def compare(what: str, got: Any, want: Any, values: bool, strides: bool, within: Bounds | None = None) -> None:
    a, b = (torch.utils._pytree.tree_flatten(v)[0] for v in (got, want))
    if len(a) != len(b):
        raise Differ(f"{what}: {len(a)} results, not {len(b)}")
    for x, y in zip(a, b):
        if not isinstance(y, torch.Tensor):
            if values and x != y and not (x != x and y != y) and not isinstance(y, (torch.Generator, torch.device)):
                raise Differ(f"{what}: {x}, not {y}")
            continue
        if x.dtype != y.dtype or x.shape != y.shape or x.layout != y.layout:
            raise Differ(f"{what}: {x.dtype} {tuple(x.shape)} {x.layout}, not {y.dtype} {tuple(y.shape)} {y.layout}")
        if y.layout != torch.strided:
            continue
        if strides and x.numel() > 0 and x.stride() != y.stride():
            raise Differ(f"{what}: strides {x.stride()}, not {y.stride()}")
        if x.is_conj() != y.is_conj() or x.is_neg() != y.is_neg():
            raise Differ(f"{what}: another conjugate or negative bit")
        if values:
            x = x.detach().cpu()
            y = y.detach().cpu()
            atol, rtol = (within or {}).get(y.dtype, (None, None))
            try:
                torch.testing.assert_close(x, y, equal_nan=True, atol=atol, rtol=rtol)
            except AssertionError as error:
                raise Differ(f"{what}: " + " ".join(str(error).split())[:160]) from None


def bits(results: Any) -> str:
    """A digest of tensors and numbers: their values, devices and memory layouts."""
    told = hashlib.sha256()
    for x in torch.utils._pytree.tree_flatten(results)[0]:
        if not isinstance(x, torch.Tensor):
            told.update(repr(x).encode() if isinstance(x, (bool, int, float, complex, str)) else b"")
            continue
        told.update(f"{x.dtype} {tuple(x.shape)} {x.layout} {x.device.type} {x.is_conj()} {x.is_neg()}".encode())
        if x.layout == torch.strided:
            told.update(str(x.stride() if x.numel() > 0 else "").encode())
            flat = x.detach().cpu().resolve_conj().resolve_neg().flatten()
            told.update(flat.new_empty(flat.numel()).copy_(flat).view(torch.uint8).numpy().tobytes())
    return told.hexdigest()[:16]


def call(op: Any, sample: Any, device: str, backward: bool, slow: bool) -> tuple[Any, Any]:
    """The results and the gradients of one call."""
    torch.manual_seed(7)
    if slow:
        busy(device)
    result = op(sample.input, *sample.args, **sample.kwargs)
    if sample.output_process_fn_grad is not None:
        result_of_grad = sample.output_process_fn_grad(result)
    else:
        result_of_grad = result
    if not backward:
        return result, ()
    leaves = [t for t in tensors((sample.input, sample.args, sample.kwargs)) if t.requires_grad]
    outs = [t for t in tensors(result_of_grad) if t.requires_grad]
    if not outs or not leaves:
        return result, ()
    torch.manual_seed(8)
    seeds = [torch.randn(t.shape, dtype=torch.float64).to(t.dtype).to(t.device) for t in outs]
    if slow:
        busy(device)
    return result, torch.autograd.grad(outs, leaves, seeds, allow_unused=True)


def reversed_in_memory(t: torch.Tensor) -> torch.Tensor:
    return t.permute(*reversed(range(t.dim()))).contiguous().permute(*reversed(range(t.dim())))


def swapped_in_memory(t: torch.Tensor) -> torch.Tensor:
    return t.transpose(0, 1).contiguous().transpose(0, 1) if t.dim() > 2 else t


def channels_last(t: torch.Tensor) -> torch.Tensor:
    form = {4: torch.channels_last, 5: torch.channels_last_3d}.get(t.dim())
    return t.contiguous(memory_format=form) if form else t


def with_gaps(t: torch.Tensor) -> torch.Tensor:
    return torch.stack([t, t], -1)[..., 0]


def with_an_offset(t: torch.Tensor) -> torch.Tensor:
    return torch.stack([t, t])[1]


LAYOUTS = [None, reversed_in_memory, swapped_in_memory, channels_last, with_gaps, with_an_offset]


# Layouts of given results (out=): functions of a contiguous tensor.
GIVEN = {
    "empty": lambda t: t.new_empty(0),
    "contiguous": lambda t: t,
    "reversed": reversed_in_memory,
    "gaps": with_gaps,
}
# Operators whose forms are wrong in PyTorch itself, on the CPU or on other devices. `lu_unpack` writes to the wrong
# memory if the given result isn't contiguous.
WITHOUT_FORMS = {
    "lu_unpack", "linalg.lu", "native_batch_norm", "_native_batch_norm_legit", "mode", "nn.functional.gelu",
}  # fmt: skip


class Form:
    """An operator in place, or with given results."""

    supports_autograd = False

    def __init__(self, op: Any, given: str) -> None:
        self.op, self.name, self.given = op, op.name, given

    def sample_inputs(self, *args: Any, requires_grad: bool) -> list[Any]:
        samples = self.op.sample_inputs(*args, requires_grad=False)
        return [s for s in samples if self.given or not s.broadcasts_input]

    def __call__(self, input: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.given:
            return self.op.inplace_variant(input, *args, **kwargs)
        results = self.op(input, *args, **kwargs)
        several = isinstance(results, (tuple, list))
        given = [GIVEN[self.given](torch.zeros(t.shape, dtype=t.dtype, device=t.device)) for t in tensors(results)]
        return self.op(input, *args, **kwargs, out=tuple(given) if several else given[0])


def forms_of(op: Any) -> dict[str, Form]:
    """The other forms of an operator, by their names."""
    if op.name in WITHOUT_FORMS:
        return {}
    found = {"in place": Form(op, "")} if op.inplace_variant else {}
    if op.supports_out:
        found.update({f"out, {given}": Form(op, given) for given in GIVEN})
    return found


def lay(t: Any, layout: Any) -> Any:
    """A copy of a tensor in another memory layout; None keeps the layout."""
    if not isinstance(t, torch.Tensor):
        return t
    made = t.detach().clone()
    if layout is not None and t.layout == torch.strided:
        made = layout(made)
    return made.requires_grad_(t.requires_grad)


def with_number(sample: Any, at: int | None) -> Any:
    """A sample with one tensor replaced by an element of it, a number on the host; None is the sample itself."""
    places = itertools.count()

    def put(t: Any) -> Any:
        if at is None or not isinstance(t, torch.Tensor) or next(places) != at or t.numel() == 0:
            return t
        return t.detach().flatten()[0].cpu().requires_grad_(t.requires_grad)

    return sample.transform(put)


def ways(sample: Any, layouts: bool, numbers: bool) -> list[tuple[Any, int | None]]:
    """The ways to run a sample: the memory layout of its tensors, and which of them becomes a number on the host."""
    found: list[tuple[Any, int | None]] = [(layout, None) for layout in (LAYOUTS if layouts else LAYOUTS[:1])]
    n = len(tensors((sample.input, sample.args, sample.kwargs)))
    return found + ([(None, i) for i in range(min(n, 3))] if numbers and n > 1 else [])


def one(op: Any, dtype: str, device: str, most: int, layouts: bool = False, numbers: bool = False) -> dict[str, Any]:
    """Run a case. The answer has "ok", or "fail" or "refused" with a reason, and the case."""
    kind = getattr(torch, dtype)
    backward = bool(
        op.supports_autograd
        and kind in op.supported_backward_dtypes("cpu")
        and kind.is_floating_point | kind.is_complex
    )
    answer: dict[str, Any] = {"dtype": dtype, "samples": 0, "backward": backward}
    values = op.name not in UNDEFINED and not (op.name in BY_DEVICE and dtype in ("float16", "bfloat16"))
    torch.manual_seed(0)
    random.seed(0)
    try:
        samples = list(op.sample_inputs(device, kind, requires_grad=backward))
    except Exception as error:
        return {**answer, "status": "skipped", "why": f"no samples: {error}"[:200]}
    if len(samples) > most:  # spread over all of them, since the first ones are similar
        samples = samples[:: -(-len(samples) // most)]

    def here(t: Any) -> Any:
        if isinstance(t, torch.Tensor):
            on_cpu = t.detach().cpu()
            if t.layout == torch.strided and not t.is_conj() and not t.is_neg():  # keep strides, and the memory around
                beside: Any = t.untyped_storage()
                on_cpu = on_cpu.set_(beside.cpu(), t.storage_offset(), t.size(), t.stride())
            return on_cpu.requires_grad_(t.requires_grad)
        return torch.device("cpu") if isinstance(t, torch.device) else t

    through: set[str] = set()
    told = hashlib.sha256()
    for sample, layout, number in ((s, *way) for s in samples for way in ways(s, layouts, numbers)):
        again = functools.partial(lay, layout=layout)
        before = ""  # the digest with an idle stream
        try:
            on_cpu = with_number(sample.transform(again), number).transform(here)
            if "device" in on_cpu.kwargs:
                on_cpu.kwargs["device"] = "cpu"
            want, grads = call(op, on_cpu, "cpu", backward, False)
        except Exception as error:
            answer["unlike"] = f"{type(error).__name__}: {error}"[:160]
            continue
        for slow in (False, True):
            mode = "busy" if slow else "idle"
            try:
                mine = with_number(sample.transform(again), number)
                fallbacks()
                try:
                    got, got_grads = call(op, mine, device, backward, slow)
                except Exception as error:
                    if number is None or not re.search("on the same device|DeviceType", str(error)):
                        raise
                    if slow and before != repr(error):
                        raise Differ(f"busy: {error!r}, not {before}") from None
                    before = repr(error)  # the operator refuses a number on the host, as on other devices
                    continue
                through.update(fallbacks())
                # Operators that PyTorch composes for devices may have other strides than the CPU's kernel.
                compare(f"{mode} forward", got, want, values, strides=not slow and layout is None)
                compare(f"{mode} backward", got_grads, grads, values, strides=False)
                laid = [t.layout == torch.strided and t.numel() > 0 and t.stride() for t in tensors((got, got_grads))]
                now = f"strides {laid}" + (f", bits {bits((got, got_grads))}" if op.name not in UNDEFINED else "")
                if slow and now != before:
                    raise Differ(f"busy: {now}, not {before}")
                before = now
                torch.accelerator.synchronize(device)
            except NotImplementedError as error:
                return {**answer, "status": "refused", "why": " ".join(str(error).split())[:240]}
            except Exception as error:
                why = " ".join(str(error).split())[:240]
                return {**answer, "status": "fail", "why": f"{mode}: {type(error).__name__}: {why}"}
            finally:
                recover(device)
        answer["samples"] += 1
        told.update(before.encode())
    answer["bits"] = told.hexdigest()[:16]
    answer["status"] = "ok" if answer["samples"] else "skipped"
    if not answer["samples"]:
        answer["why"] = f"the CPU's fails: {answer.get('unlike', 'there are no samples')}"
    answer["fallbacks"] = sorted(through)
    return answer


def all_of(
    op: Any, dtype: str, device: str, most: int, layouts: bool = False, forms: bool = False, numbers: bool = False
) -> dict[str, Any]:
    """Run a case, and its forms if wanted. The answer is the case's unless a form fails."""
    answer = one(op, dtype, device, most, layouts, numbers)
    for name, form in forms_of(op).items() if forms and answer["status"] == "ok" else ():
        other = one(form, dtype, device, most, layouts)
        if other["status"] == "fail":
            return {**answer, "status": "fail", "why": f"{name}: {other['why']}"}
        answer["bits"] += other.get("bits", "")
    return answer


def recover(device: str) -> None:
    """Clear the error of a stream, so that it doesn't fail the next case."""
    try:
        torch.accelerator.synchronize(device)
    except Exception:
        _lib: Any = importlib.import_module("chorus._lib")
        stream: Any = torch.accelerator.current_stream(device)
        _lib.library.chorus_stream_recover(handle_of(stream), 0)


def allocated(device: str) -> int:
    return int(torch.accelerator.memory_allocated(device))


def serve(device: str, most: int, **more: bool) -> None:
    """The worker process: reads cases, runs them, and prints the answers, a line each."""
    if hasattr(module := getattr(torch, device), "use_philox"):
        module.use_philox(False)  # its numbers are to be the CPU's
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    database = operators()
    print("@{}", flush=True)  # reports the start
    for line in sys.stdin:
        index, dtype = json.loads(line)
        before = allocated(device)
        start = time.monotonic()
        answer = {"op": index, **all_of(database[index], dtype, device, most, **more)}
        if allocated(device) > before:
            drain_autograd()
            gc.collect()
            torch.accelerator.synchronize(device)
        left = allocated(device) - before
        if left > 0 and answer["status"] == "ok":
            answer.update(status="fail", why=f"{left} bytes of device memory are left")
        answer["seconds"] = round(time.monotonic() - start, 3)
        print("@" + json.dumps(answer), flush=True)


# ---- all of them ----


class Worker:
    """A worker process, restarted after a case has ended it."""

    def __init__(self, device: str, most: int, more: Sequence[str]) -> None:
        self.command = [sys.executable, "-m", "chorus_device.sweep", device, "--serve", "--most", str(most), *more]
        self.process: subprocess.Popen[str] | None = None

    def hear(self, process: subprocess.Popen[str], seconds: float) -> tuple[dict[str, Any] | None, bool]:
        """The next answer, or None if the process ended, and whether it timed out."""
        assert process.stdout
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        try:
            for line in process.stdout:
                if line.startswith("@"):
                    answer: dict[str, Any] = json.loads(line[1:])
                    return answer, False
            return None, not timer.is_alive()
        finally:
            timer.cancel()

    def run(self, case: tuple[int, str]) -> dict[str, Any]:
        if self.process is None:
            # Some samples are in the order of a set, which differs between processes unless the hash seed is fixed.
            env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONHASHSEED": "0"}
            self.process = subprocess.Popen(
                self.command, env=env, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            self.hear(self.process, 5 * SECONDS)
        process = self.process
        assert process.stdin
        late = False
        try:
            process.stdin.write(json.dumps(case) + "\n")
            process.stdin.flush()
            answer, late = self.hear(process, SECONDS)
            if answer is not None:
                return answer
        except BrokenPipeError:
            pass
        self.process = None
        why = f"hangs: no answer in {SECONDS} s" if late else f"crashes: exit status {process.wait()}"
        op, dtype = case[:2]
        return {"op": op, "dtype": dtype, "status": "fail", "why": why, "samples": 0, "seconds": 0}

    def close(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            self.process.wait()


def run(
    device: str, todo: list[tuple[int, str]], most: int, workers: int, more: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """Run cases in processes, and yield their answers. ``more`` has "--layouts", "--forms" and "--numbers"."""
    import queue

    asked: queue.Queue[tuple[int, str]] = queue.Queue()
    answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
    for case in todo:
        asked.put(case)

    def work() -> None:
        worker = Worker(device, most, more)
        try:
            while True:
                answers.put(worker.run(asked.get_nowait()))
        except queue.Empty:
            worker.close()
        finally:
            answers.put(None)

    for _ in range(workers):
        threading.Thread(target=work, daemon=True).start()
    running = workers
    while running:
        answer = answers.get()
        if answer is None:
            running -= 1
        else:
            yield answer


def differ(answers: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    """Mark answers as failed if their results differ from another run's, or that run lacks them."""
    known = {(a["op"], a["dtype"]): a for a in others}
    for a in answers:
        other = known.get((a["op"], a["dtype"]), {"status": "not there"})
        mine, its = (f"{x['status']}, with the bits {x.get('bits')}" for x in (a, other))
        if a["status"] != "fail" and mine != its:
            a.update(status="fail", why=f"the other run's is {its}, not {mine}")


def report(answers: list[dict[str, Any]]) -> str:
    """The failures, a line for each reason."""
    names = [name_of(op) for op in operators()]
    reasons: dict[str, list[str]] = defaultdict(list)
    for a in answers:
        if a["status"] in ("fail", "refused"):
            reasons[f"{a['status']}: {a['why']}"].append(f"{names[a['op']]} ({a['dtype']})")
    lines = [
        f"{why}\n    " + ", ".join(sorted(who))
        for why, who in sorted(reasons.items(), key=lambda r: (r[0][:4], -len(r[1])))
    ]
    count = Counter(a["status"] for a in answers)
    lines.append(", ".join(f"{n} {status}" for status, n in sorted(count.items())))
    return "\n".join(lines)


# ---- the page ----


def of_types(who: list[tuple[str, str]]) -> str:
    """Operators with their types, as in "add (bool, int64), sub (bool)"."""
    types: dict[str, list[str]] = defaultdict(list)
    for name, dtype in who:
        types[name].append(dtype)
    return ", ".join(f"{name} ({', '.join(sorted(t))})" for name, t in sorted(types.items()))


def page(device: str, answers: list[dict[str, Any]]) -> str:
    """The answers as a page of the documentation: totals, and the exceptions."""
    names = [name_of(op) for op in operators()]
    lines = [
        f"# PyTorch's operators on {device}",
        "",
        f"For users of {device} who look up an operator.",
        "",
        f"`python -m chorus_device.sweep {device} --table docs/torch-operators.md` writes this page from the database",
        f"of operators of PyTorch {torch.__version__.split('+')[0]}. It compares each operator with the CPU,",
        "for each type that the CPU supports, forward and backward, on an idle and on a busy stream.",
        "[torch-device.md](torch-device.md#every-operator) describes the comparison.",
        "",
        "| type | cases | as on the CPU | of these by own kernels alone | refused | fail | nothing to compare |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip

    def row(title: str, of: list[dict[str, Any]]) -> str:
        count = Counter(a["status"] for a in of)
        alone = sum(a["status"] == "ok" and not a["fallbacks"] for a in of)
        told = (len(of), count["ok"], alone, count["refused"], count["fail"], count["skipped"])
        return f"| {title} | " + " | ".join(map(str, told)) + " |"

    lines += [row(t, [a for a in answers if a["dtype"] == t]) for t in dict.fromkeys(a["dtype"] for a in answers)]
    lines.append(row("all", answers))
    for status, title, text in (
        ("fail", "Fail", "The result differs from the CPU's, or there is an error that the CPU doesn't have."),
        ("refused", "Refused", "These raise `NotImplementedError`."),
        ("skipped", "Nothing to compare", "For these the database has no sample that the CPU computes."),
    ):
        reasons: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for a in answers:
            if a["status"] == status:
                why = "" if status == "skipped" else re.sub(r"\s+", " ", a["why"]).replace("|", "/")[:110]
                reasons[why].append((names[a["op"]], a["dtype"]))
        if reasons:
            lines += ["", f"## {title}", "", text, ""]
            lines += ["| error | operators |", "|---|---|"] * (status != "skipped")
            for why, who in sorted(reasons.items(), key=lambda r: -len(r[1])):
                lines.append(f"| `{why}` | {of_types(who)} |" if why else f"- {of_types(who)}")
    kinds = {a["op"] for a in answers}
    fall = {a["op"] for a in answers if a["status"] != "ok" or a["fallbacks"]}
    alone = sorted(names[i] for i in kinds - fall)
    own = f"These are views, copies, and operators composed of them: {', '.join(alone)}."
    lines += ["", "## By own kernels alone", "", own, ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m chorus_device.sweep", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("device")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--dtypes", default=",".join(USUAL), help="types of elements, by commas; the usual ones by default"
    )
    parser.add_argument("--every", type=int, default=1, help="take each Nth case only")
    parser.add_argument("--most", type=int, default=3, help="samples of a case")
    parser.add_argument("--layouts", action="store_true", help="each sample also otherwise laid out in memory")
    parser.add_argument("--forms", action="store_true", help="each operator also in place, and with out=")
    parser.add_argument("--numbers", action="store_true", help="each sample also with numbers of the host's")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("-k", dest="pattern", default="", help="operators whose names match")
    parser.add_argument("--json", help="write all answers to a file, as they come")
    parser.add_argument("--of", help="take the answers that a file has instead of running anything")
    parser.add_argument("--as", dest="like", help="have results be those of another run, whose answers a file has")
    parser.add_argument("--table", help="write a page of the documentation")
    args = parser.parse_args()
    more = {name: getattr(args, name) for name in ("layouts", "forms", "numbers")}
    if args.serve:
        return serve(args.device, args.most, **more)
    answers = []
    if args.of:
        answers = [json.loads(line) for line in read_text(args.of).splitlines()]
    else:
        todo = cases(args.dtypes.split(","), args.every, args.pattern)
        with open(args.json or os.devnull, "w") as f:
            for answer in run(args.device, todo, args.most, args.workers, [f"--{m}" for m, on in more.items() if on]):
                answers.append(answer)
                print(json.dumps(answer), file=f, flush=True)
                if sys.stderr.isatty():
                    print(f"\r{len(answers)} of {len(todo)}", end="", file=sys.stderr)
    if args.like:
        differ(answers, [json.loads(line) for line in read_text(args.like).splitlines()])
    answers.sort(key=lambda a: (USUAL.index(a["dtype"]) if a["dtype"] in USUAL else len(USUAL), a["op"]))
    if args.table:
        with open(args.table, "w") as f:
            f.write(page(args.device, answers))
    print(report(answers))
    sys.exit(any(a["status"] == "fail" for a in answers))


if __name__ == "__main__":
    main()
