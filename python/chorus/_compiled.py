"""Methods of communicators as torch.compile traces them: operators of its graph.

torch.compile doesn't trace this package except for this module (see ``_patches``). If a program asks for it with
TORCHCOMMS_PATCH_FOR_COMPILE=1, :func:`install` puts these functions before the methods of
:class:`chorus.torchcomms.TorchComm`. In a compiled program an operation is one operator, with a gradient if the
operation has one. It's neither left out nor reordered. It runs, or is enqueued on a device, where it stands, also
with ``async_op``. Outside of compiled programs the original methods are called, unless a tensor needs a gradient: then
the operation has one, and the method returns its results.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._library.effects import EffectType
from torch.compiler import is_compiling
from torch.multiprocessing.reductions import StorageWeakRef

from chorus.torchcomms._native import NativeBackend
from chorus.torchcomms._types import RedOpType, ReduceOp, Timeout
from chorus.torchcomms._work import TorchWork
from chorus.torchcomms.comm import BatchSendRecv, TorchComm, by_key
from chorus.torchcomms.functional.async_tensor import TorchCommsAsyncTensor

_Tensors = list[torch.Tensor]


class _Done(TorchWork):
    """The handle of an operation in a graph."""

    __slots__ = ()

    def wait(self, timeout: Any = None) -> None:
        return None

    def wait_blocking(self, timeout: Any = None) -> None:
        return None

    def is_completed(self) -> bool:
        return True


_DONE = _Done()

# ---- the operator ----


@torch.library.custom_op("chorus_torchcomms::run", mutates_args=())
def _run(
    name: str,
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    numbers: Sequence[int],
    reduction: str,
    factor: float,
    hints: str,
    timeout: float,
    comm: str,
) -> list[torch.Tensor]:
    """The results of an operation: the new values of ``outputs``, which it doesn't change.

    ``numbers``: the root, the peer, or output and input splits. ``hints``: a line for each, name=value. ``timeout`` is
    in seconds; 0 is the communicator's.
    """
    results = [o.clone() for o in outputs]
    options: dict[str, Any] = {}
    if hints:
        options["hints"] = dict(line.split("=", 1) for line in hints.split("\n"))
    if timeout:
        options["timeout"] = Timeout(seconds=timeout)
    kind = RedOpType[reduction] if reduction else None
    op = None if kind is None else ReduceOp(kind, factor if kind is RedOpType.PREMUL_SUM else None)
    _CALLS[name](by_key[comm], results, list(inputs), list(numbers), op, options)
    return results


@_run.register_fake
def _(
    name: str,
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    numbers: Sequence[int],
    reduction: str,
    factor: float,
    hints: str,
    timeout: float,
    comm: str,
) -> list[torch.Tensor]:
    return [torch.empty_like(o) for o in outputs]


def _message(kind: str) -> Callable[..., Any]:
    def call(c: TorchComm, out: _Tensors, ins: _Tensors, n: list[int], op: Any, o: dict[str, Any]) -> None:
        _EAGER[kind](c, (out or ins)[0], n[0], False, **o)

    return call


def _batch(c: TorchComm, out: _Tensors, ins: _Tensors, n: list[int], op: Any, o: dict[str, Any]) -> None:
    """``n``: how many are sent, and the peers of these and of what is received."""
    batch = BatchSendRecv(c)
    for x, peer in zip(ins, n[1 : 1 + n[0]], strict=False):
        batch.send(x, peer)
    for x, peer in zip(out, n[1 + n[0] :], strict=True):
        batch.recv(x, peer)
    batch.issue(False)


# By name: f(communicator, results, inputs, numbers, reduction, options).
_CALLS: dict[str, Callable[..., Any]] = {
    "send": _message("send"),
    "recv": _message("recv"),
    "batch": _batch,
    "broadcast": _message("broadcast"),
    "barrier": lambda c, out, ins, n, op, o: _EAGER["barrier"](c, False, **o),
    "all_reduce": lambda c, out, ins, n, op, o: _EAGER["all_reduce"](c, out[0], op, False, **o),
    "reduce": lambda c, out, ins, n, op, o: _EAGER["reduce"](c, out[0], n[0], op, False, **o),
    "all_gather": lambda c, out, ins, n, op, o: _EAGER["all_gather"](c, out, ins[0], False, **o),
    "all_gather_v": lambda c, out, ins, n, op, o: _EAGER["all_gather_v"](c, out, ins[0], False, **o),
    "all_gather_single": lambda c, out, ins, n, op, o: _EAGER["all_gather_single"](c, out[0], ins[0], False, **o),
    "reduce_scatter": lambda c, out, ins, n, op, o: _EAGER["reduce_scatter"](c, out[0], ins, op, False, **o),
    "reduce_scatter_v": lambda c, out, ins, n, op, o: _EAGER["reduce_scatter_v"](c, out[0], ins, op, False, **o),
    "reduce_scatter_single": lambda c, out, ins, n, op, o: (
        _EAGER["reduce_scatter_single"](c, out[0], ins[0], op, False, **o)
    ),
    "all_to_all": lambda c, out, ins, n, op, o: _EAGER["all_to_all"](c, out, ins, False, **o),
    "all_to_all_single": lambda c, out, ins, n, op, o: _EAGER["all_to_all_single"](c, out[0], ins[0], False, **o),
    "all_to_all_v_single": lambda c, out, ins, n, op, o: _EAGER["all_to_all_v_single"](
        c, out[0], ins[0], n[: len(n) // 2], n[len(n) // 2 :], False, **o
    ),
    "scatter": lambda c, out, ins, n, op, o: _EAGER["scatter"](c, out[0], ins, n[0], False, **o),
    "gather": lambda c, out, ins, n, op, o: _EAGER["gather"](c, out, ins[0], n[0], False, **o),
    "gather_single": lambda c, out, ins, n, op, o: _EAGER["gather_single"](c, out[0], ins[0], n[0], False, **o),
}
_EAGER: dict[str, Callable[..., Any]] = {}  # the methods themselves


# ---- gradients ----

# The operation that takes the gradients of outputs back to inputs, if it isn't the same operation.
_BACK = {
    "all_reduce": "all_reduce", "broadcast": "all_reduce", "all_gather": "reduce_scatter",
    "all_gather_single": "reduce_scatter_single", "reduce_scatter": "all_gather",
    "reduce_scatter_single": "all_gather_single", "all_to_all": "all_to_all",
    "all_to_all_single": "all_to_all_single", "all_to_all_v_single": "all_to_all_v_single",
}  # fmt: skip


_LINEAR = ("SUM", "AVG", "PREMUL_SUM")  # the reductions that have a gradient


def _shapes(tensors: Sequence[torch.Tensor]) -> list[Any]:
    return [(t.shape, t.dtype, t.device) for t in tensors]


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.name, outputs, given, ctx.numbers, ctx.reduction, ctx.factor, ctx.hints, ctx.timeout, ctx.comm = inputs
    ctx.outputs, ctx.inputs = _shapes(outputs), _shapes(given)
    if any(t.requires_grad for t in (*outputs, *given)):
        if ctx.name not in _BACK:
            raise RuntimeError(f"chorus: {ctx.name} has no gradient in a compiled program")
        if ctx.reduction and ctx.reduction not in _LINEAR:
            raise RuntimeError(f"chorus: the reduction {ctx.reduction} has no gradient")


def _back(ctx: Any, grads: Sequence[torch.Tensor | None]) -> Any:
    """Gradients of the inputs. The outputs' previous values have none, except those of all_reduce and broadcast."""
    comm, name = by_key[ctx.comm], ctx.name
    given = [
        torch.zeros(shape, dtype=dtype, device=device) if g is None else g.contiguous()
        for g, (shape, dtype, device) in zip(grads, ctx.outputs, strict=True)
    ]
    in_place = name in ("all_reduce", "broadcast")
    into = given if in_place else [torch.zeros(shape, dtype=d, device=device) for shape, d, device in ctx.inputs]
    half = len(ctx.numbers) // 2
    numbers = [*ctx.numbers[half:], *ctx.numbers[:half]] if name == "all_to_all_v_single" else []
    reduction = "AVG" if name == "all_reduce" and ctx.reduction == "AVG" else "SUM"
    back = _BACK[name]
    reduces = "reduce" in back
    found = _run(back, into, [] if in_place else given, numbers, reduction if reduces else "", 0.0, ctx.hints,
        ctx.timeout, ctx.comm)  # fmt: skip
    if name == "broadcast" and comm.get_rank() != ctx.numbers[0]:
        found = [torch.zeros_like(g) for g in found]
    if ctx.reduction == "PREMUL_SUM":
        found = [g * ctx.factor for g in found]
    elif ctx.reduction == "AVG" and name != "all_reduce":
        found = [g / comm.get_size() for g in found]
    none = [None] * len(ctx.inputs if in_place else ctx.outputs)
    # PyTorch takes an empty list for a list of tensors.
    return (None, *((found, none) if in_place else (none, found)), None if ctx.numbers else [], *[None] * 5)


_run.register_autograd(_back, setup_context=_keep)


# ---- torch.ops.torchcomms ----

# Operations of a compiled program are done where they stand: there, to wait for tensors is to depend on them.

# Asynchronous operations outside of compiled programs, by the storage of their results, and where these lie in it. They
# are asked and waited for without the lock: what is due at their end may issue the next ones.
_Entry = tuple[range, TorchWork]
_under_way: dict[Any, list[_Entry]] = {}
_lock = threading.Lock()  # of that
_MANY = 64
_room = [_MANY]  # for so many entries more before those that are over are dropped


def _storage(t: torch.Tensor) -> Any:
    """The key of a tensor's storage, which doesn't keep the storage alive."""
    return StorageWeakRef(t.untyped_storage())  # type: ignore[no-untyped-call]


def _place(t: torch.Tensor) -> range:
    """The bytes of its storage from a tensor's first element to its last; of an empty tensor, where one would be."""
    last = sum((n - 1) * step for n, step in zip(t.shape, t.stride())) if t.numel() else 0
    return range(t.storage_offset() * t.element_size(), (t.storage_offset() + last + 1) * t.element_size())


def _note(outputs: Sequence[torch.Tensor], work: TorchWork) -> None:
    entries = [(_storage(t), (_place(t), work)) for t in outputs]
    with _lock:
        for storage, entry in entries:
            _under_way.setdefault(storage, []).append(entry)
        _room[0] -= len(entries)
        full = _room[0] <= 0
        noted = [(storage, entry) for storage, works in _under_way.items() for entry in works] if full else []
        if full:
            _room[0] = _MANY + len(noted)  # for what is noted meanwhile
    if full:
        _forget([(storage, entry) for storage, entry in noted if storage.expired() or entry[1].is_completed()])
        with _lock:
            _room[0] = _MANY + sum(map(len, _under_way.values()))


def _forget(entries: Sequence[tuple[Any, _Entry]]) -> None:
    """Drop entries that are still there; equal ones that were noted later stay."""
    gone = {id(entry) for _, entry in entries}
    with _lock:
        for storage in {storage for storage, _ in entries}:
            if left := [entry for entry in _under_way.get(storage, ()) if id(entry) not in gone]:
                _under_way[storage] = left
            else:
                _under_way.pop(storage, None)


def _join(tensors: Sequence[torch.Tensor]) -> None:
    """Wait for the operations under way whose results tensors are, or share elements with. Behind one that has failed,
    the others stay noted."""
    if not _under_way:
        return
    joined: list[tuple[Any, _Entry]] = []
    with _lock:
        for t in tensors:
            if type(t) not in (torch.Tensor, torch.nn.Parameter) or t.layout != torch.strided:
                continue
            mine, storage = _place(t), _storage(t)
            for entry in _under_way.get(storage, ()):
                if mine.start < entry[0].stop and entry[0].start < mine.stop:
                    joined.append((storage, entry))
    for storage, entry in joined:
        try:
            entry[1].wait()
        finally:
            _forget([(storage, entry)])


@torch.library.custom_op("torchcomms::torchcomm_wait_tensors", mutates_args=())
def _wait_tensors(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copies of tensors, with gradients."""
    _join(inputs)
    return [t.clone() for t in inputs]


@_wait_tensors.register_fake
def _(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [t.clone() for t in inputs]


_wait_tensors.register_autograd(lambda ctx, grads: (list(grads),))

torch.library.define(
    "torchcomms::torchcomm_wait_tensors_",
    "(Tensor(a!)[] inputs) -> Tensor(a!)[]",
    tags=[torch.Tag.pt2_compliant_tag],
)


@torch.library.impl("torchcomms::torchcomm_wait_tensors_", "CompositeImplicitAutograd")
def _(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    _join(inputs)
    return inputs


# ---- methods ----


def _issue(
    comm: Any, name: str, outputs: Any, inputs: Any, numbers: Any, op: Any, hints: Any, timeout: Any
) -> TorchWork:
    """Put an operation into the graph as an operator, and copy its results into the tensors."""
    targets, reduction, factor = list(outputs), "", 0.0
    if op is not None:
        reduction = op._type._name_
        if op._factor is not None and isinstance(op._factor, torch.Tensor):
            reduction, outputs, inputs = "SUM", [o * op._factor for o in outputs], [i * op._factor for i in inputs]
        elif op._factor is not None:
            factor = op._factor
    lines = "\n".join([f"{key}={hints[key]}" for key in hints or {}])
    seconds = 0.0 if timeout is None else timeout.days * 86400.0 + timeout.seconds + timeout.microseconds / 1e6
    results = _run(name, list(outputs), list(inputs), numbers, reduction, factor, lines, seconds, comm._key)
    for i in range(len(targets)):
        targets[i].copy_(results[i])
    return _DONE


# From a method's arguments to the operator's: outputs, inputs, numbers, the reduction, hints and timeout.
_ARGUMENTS: dict[str, Callable[..., Any]] = {
    "send": lambda tensor, dst, async_op=False, hints=None, timeout=None: (
        [], [tensor], [dst], None, hints, timeout),
    "recv": lambda tensor, src, async_op=False, hints=None, timeout=None: (
        [tensor], [], [src], None, hints, timeout),
    "broadcast": lambda tensor, root, async_op=False, hints=None, timeout=None: (
        [tensor], [], [root], None, hints, timeout),
    "all_reduce": lambda tensor, op, async_op=False, hints=None, timeout=None: (
        [tensor], [], [], op, hints, timeout),
    "reduce": lambda tensor, root, op, async_op=False, hints=None, timeout=None: (
        [tensor], [], [root], op, hints, timeout),
    "all_gather": lambda tensor_list, tensor, async_op=False, hints=None, timeout=None: (
        tensor_list, [tensor], [], None, hints, timeout),
    "all_gather_single": lambda output, input, async_op=False, hints=None, timeout=None: (
        [output], [input], [], None, hints, timeout),
    "reduce_scatter": lambda output, input_list, op, async_op=False, hints=None, timeout=None: (
        [output], input_list, [], op, hints, timeout),
    "reduce_scatter_single": lambda output, input, op, async_op=False, hints=None, timeout=None: (
        [output], [input], [], op, hints, timeout),
    "all_to_all": lambda output_tensor_list, input_tensor_list, async_op=False, hints=None, timeout=None: (
        output_tensor_list, input_tensor_list, [], None, hints, timeout),
    "all_to_all_v_single": lambda output, input, output_split_sizes, input_split_sizes, async_op=False, hints=None,
        timeout=None: ([output], [input], [*output_split_sizes, *input_split_sizes], None, hints, timeout),
    "scatter": lambda output_tensor, input_tensor_list, root, async_op=False, hints=None, timeout=None: (
        [output_tensor], input_tensor_list or [], [root], None, hints, timeout),
    "gather": lambda output_tensor_list, input_tensor, root, async_op=False, hints=None, timeout=None: (
        output_tensor_list or [], [input_tensor], [root], None, hints, timeout),
    "gather_single": lambda output, input, root, async_op=False, hints=None, timeout=None: (
        [output], [input], [root], None, hints, timeout),
    # An operator without any tensor has no device.
    "barrier": lambda async_op=False, hints=None, timeout=None: (
        [], [torch.empty(0)], [], None, hints, timeout),
}  # fmt: skip
for _name, _like in (
    ("all_gather_v", "all_gather"), ("reduce_scatter_v", "reduce_scatter"), ("all_to_all_single", "all_gather_single")
):  # fmt: skip
    _ARGUMENTS[_name] = _ARGUMENTS[_like]


class _Results(list[torch.Tensor]):
    """The results of an operation that is done: in its place as a handle, too."""

    def wait(self, timeout: Any = None) -> _Results:
        return self


_LISTS = ("all_gather", "all_to_all")  # whose outputs are lists, of those with a gradient


def _differentiable(name: str, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], op: Any) -> bool:
    """Whether an operation outside of a compiled program has a gradient. One that changes a leaf has none,
    and a maximum neither."""
    return (
        name in _BACK
        and (op is None or op.type.name in _LINEAR)
        and torch.is_grad_enabled()
        and any(t.requires_grad for t in (*outputs, *inputs))
        and not any(t.requires_grad and t.is_leaf for t in outputs)
    )


def _traced(name: str) -> Callable[..., Any]:
    eager, arguments = _EAGER[name], _ARGUMENTS[name]

    @functools.wraps(eager)
    def method(self: Any, *args: Any, **given: Any) -> Any:
        compiling = is_compiling()
        outputs, inputs, numbers, op, hints, timeout = arguments(*args, **given)
        if not compiling and not _differentiable(name, outputs, inputs, op):
            work = eager(self, *args, **given)
            if not work.is_completed():
                _note(outputs, work)
            return work
        done = _issue(self, name, outputs, inputs, numbers, op, hints, timeout)
        if compiling:
            return done
        return _Results(outputs) if name in _LISTS else TorchCommsAsyncTensor(outputs[0], None)

    return method


class _Batch:
    """A batch of messages in a graph."""

    def __init__(self, comm: TorchComm) -> None:
        self.comm = comm
        self.sent: _Tensors = []
        self.received: _Tensors = []
        self.to: list[int] = []
        self.of: list[int] = []

    def send(self, tensor: torch.Tensor, dst: int) -> None:
        self.sent.append(tensor)
        self.to.append(dst)

    def recv(self, tensor: torch.Tensor, src: int) -> None:
        self.received.append(tensor)
        self.of.append(src)

    def issue(self, async_op: bool = False, options: Any = None) -> TorchWork:
        hints, timeout = (None, None) if options is None else (options.hints, options.timeout)
        numbers = [len(self.to), *self.to, *self.of]
        return _issue(self.comm, "batch", self.received, self.sent, numbers, None, hints, timeout)


def _constant(name: str, of_library: Callable[[Any], Any]) -> Callable[..., Any]:
    """A method whose result never changes: a constant of the graph."""
    eager = _EAGER[name]

    @functools.wraps(eager)
    def method(self: Any) -> Any:
        if not is_compiling():
            return eager(self)
        return of_library(self._impl) if isinstance(self._impl, NativeBackend) else getattr(self._impl, name)()

    return method


_CONSTANTS: dict[str, Callable[[Any], Any]] = {
    "get_rank": lambda impl: impl.comm.rank,
    "get_size": lambda impl: impl.comm.size,
    "get_name": lambda impl: impl.comm.name,
    "get_backend": lambda impl: impl._name,
}


def _get_device(self: Any) -> torch.device:
    """The device that the communicator is bound to."""
    device: torch.device = self._device
    return device


def _batch_op_create(self: Any) -> Any:
    """An empty batch of messages."""
    return _Batch(self) if is_compiling() else BatchSendRecv(self)


def install() -> None:
    """Put these functions before the methods of communicators. A second call changes nothing."""
    if _EAGER:
        return
    for name in (*_ARGUMENTS, *_CONSTANTS):
        _EAGER[name] = getattr(TorchComm, name)
    for name in _ARGUMENTS:
        setattr(TorchComm, name, _traced(name))
    for name, of_library in _CONSTANTS.items():
        setattr(TorchComm, name, _constant(name, of_library))
    TorchComm.get_device = _get_device  # type: ignore[method-assign]
    TorchComm.batch_op_create = _batch_op_create  # type: ignore[method-assign]
    _run.register_effect(EffectType.ORDERED)
