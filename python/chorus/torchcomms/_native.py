"""The library's backends, for tensors of the CPU and of a device."""

from __future__ import annotations

import ctypes
import itertools
import logging
import operator
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

from chorus import _lib, _streams
from chorus._comm import Batch, Communicator
from chorus._devices import served
from chorus._tensors import Staging, buffers, check_devices, moved_as, reduced_as
from chorus.errors import FinalizedError, check
from chorus.process_group import timeout_ns
from chorus.torchcomms import _hints
from chorus.torchcomms._backend import TorchCommBackend
from chorus.torchcomms._types import CommOptions, Options, P2POp, P2POpType, RedOpType, ReduceOp
from chorus.torchcomms._work import TorchWork

if TYPE_CHECKING:
    from typing_extensions import Unpack

_Tensor = torch.Tensor
_Tensors = list[torch.Tensor]

# The hooks to call when a communicator breaks, by the number that the library passes.
_breaks: dict[int, Callable[[], None]] = {}
_numbers = itertools.count(1)


def _broken(number: int, _status: int) -> None:
    call = _breaks.pop(number, None)
    if call is not None:
        try:
            call()
        except Exception:  # this thread has no caller that could handle it
            logging.getLogger("chorus").exception("an abort hook failed")


_trampoline = _lib.ABORT_FN(_broken)  # never freed: the library may be calling it while a hook is removed


class NativeBackend(TorchCommBackend):
    """A communicator of the library. Tensors that aren't contiguous are staged through copies.

    ``of_group``: a process group has it. Then it's bound to the device of the first tensor that isn't on the CPU, and
    the host waits for its barriers.
    """

    def __init__(self, comm: Communicator, name: str, of_group: bool = False) -> None:
        self.comm = comm
        self._name = name
        self._of_group = of_group
        self._on_abort: list[Callable[[], None]] = []
        self._watched: list[tuple[int, int]] = []  # their numbers and hooks

    def finalize(self) -> None:
        self.comm.finalize()
        self._unwatch()

    def get_rank(self) -> int:
        return self.comm.rank

    def get_size(self) -> int:
        return self.comm.size

    def get_backend_name(self) -> str:
        return self._name

    def get_comm_name(self) -> str:
        return self.comm.name

    def get_backend_version(self) -> str:
        return _lib.version()

    # ---- messages ----

    def send(self, tensor: _Tensor, dst: int, async_op: bool, **options: Unpack[Options]) -> TorchWork:
        return self._send(tensor, dst, async_op, None, options)

    def recv(self, tensor: _Tensor, src: int, async_op: bool, **options: Unpack[Options]) -> TorchWork:
        return self._recv(tensor, src, async_op, None, options)

    def batch_op_issue(self, ops: list[P2POp], async_op: bool, **options: Unpack[Options]) -> TorchWork:
        batch: Batch = []
        shared: Options = {"hints": options["hints"]} if "hints" in options else {}
        for op in ops:
            if not isinstance(op.type, P2POpType):
                raise TypeError(f"batch_op_issue: the type of an operation must be a P2POpType, not {op.type!r}")
            issue = self._send if op.type is P2POpType.SEND else self._recv
            issue(op.tensor, op.peer, True, batch, shared)
        if not batch:
            raise self.comm.invalid("batch_op_issue", "the batch has no operations")
        return TorchWork(self.comm.issue(batch, async_op, timeout_ns(options.get("timeout"))))

    def _send(self, tensor: _Tensor, dst: int, async_op: bool, batch: Batch | None, options: Options) -> TorchWork:
        dtype, width = self._moved(tensor, "send")
        self._in_range(dst, "dst", "send")
        staging = Staging("send", self.comm.invalid)
        data = staging.input(tensor)
        return self._run(data, staging, async_op, options, _lib.SEND, dtype, in_=data.data_ptr(),
            in_count=data.numel() * width, peer=dst, batch=batch)  # fmt: skip

    def _recv(self, tensor: _Tensor, src: int, async_op: bool, batch: Batch | None, options: Options) -> TorchWork:
        dtype, width = self._moved(tensor, "recv")
        self._in_range(src, "src", "recv")
        staging = Staging("recv", self.comm.invalid)
        data = staging.output(tensor)
        return self._run(data, staging, async_op, options, _lib.RECV, dtype, out=data.data_ptr(),
            out_count=data.numel() * width, peer=src, batch=batch)  # fmt: skip

    # ---- collectives on one tensor ----

    def broadcast(self, tensor: _Tensor, root: int, async_op: bool, **options: Unpack[Options]) -> TorchWork:
        dtype, width = self._moved(tensor, "broadcast")
        self._in_range(root, "root", "broadcast")
        staging = Staging("broadcast", self.comm.invalid)
        data = staging.input(tensor) if root == self.comm.rank else staging.output(tensor)
        return self._run(data, staging, async_op, options, _lib.BROADCAST, dtype, out=data.data_ptr(),
            out_count=data.numel() * width, root=root)  # fmt: skip

    def all_reduce(self, tensor: _Tensor, op: ReduceOp, async_op: bool, **options: Unpack[Options]) -> TorchWork:
        dtype, reduction, factor, factor_data = self._reduced(tensor, op, "all_reduce")
        staging = Staging("all_reduce", self.comm.invalid)
        data = staging.output(tensor, load=True)
        at, n = data.data_ptr(), data.numel()
        return self._run((data, factor_data), staging, async_op, options, _lib.ALL_REDUCE, dtype, reduction,
            at, n, at, n, factor=factor, factor_data=_at(factor_data))  # fmt: skip

    def reduce(self, tensor: _Tensor, root: int, op: ReduceOp, async_op: bool, **options: Unpack[Options]) -> TorchWork:
        dtype, reduction, factor, factor_data = self._reduced(tensor, op, "reduce")
        self._in_range(root, "root", "reduce")
        staging = Staging("reduce", self.comm.invalid)
        if root == self.comm.rank:
            data = staging.output(tensor, load=True)
            out, out_count = data.data_ptr(), data.numel()
        else:
            data, out, out_count = staging.input(tensor), 0, 0
        return self._run((data, factor_data), staging, async_op, options, _lib.REDUCE, dtype, reduction,
            data.data_ptr(), data.numel(), out, out_count, root=root, factor=factor,
            factor_data=_at(factor_data))  # fmt: skip

    # ---- collectives on two tensors ----

    def all_gather_single(
        self, output: _Tensor, input: _Tensor, async_op: bool, **options: Unpack[Options]
    ) -> TorchWork:
        return self._blocks(_lib.ALL_GATHER_SINGLE, "all_gather_single", output, input, async_op, options)

    def gather_single(
        self, output: _Tensor, input: _Tensor, root: int, async_op: bool, **options: Unpack[Options]
    ) -> TorchWork:
        self._in_range(root, "root", "gather_single")
        if root == self.comm.rank:
            return self._blocks(_lib.GATHER_SINGLE, "gather_single", output, input, async_op, options, root)
        dtype, width = self._moved(input, "gather_single")
        staging = Staging("gather_single", self.comm.invalid)
        source = staging.input(input)
        return self._run(source, staging, async_op, options, _lib.GATHER_SINGLE, dtype,
            in_=source.data_ptr(), in_count=source.numel() * width, root=root)  # fmt: skip

    def all_to_all_single(
        self, output: _Tensor, input: _Tensor, async_op: bool, **options: Unpack[Options]
    ) -> TorchWork:
        self.here([input], "all_to_all_single")
        rows = input.size(0) if input.dim() else 1
        if rows % (self.comm.size or 1):  # without a world the library refuses
            raise self.comm.invalid("all_to_all_single", f"the input's {rows} rows must be divisible by comm_size ({self.comm.size})")  # noqa: E501
        return self._blocks(_lib.ALL_TO_ALL_SINGLE, "all_to_all_single", output, input, async_op, options)

    def _blocks(
        self,
        kind: int,
        what: str,
        output: _Tensor,
        input: _Tensor,
        async_op: bool,
        options: Options,
        root: int = 0,
        **splits: Any,
    ) -> TorchWork:
        dtype, width = self._alike(output, input, what)
        staging = Staging(what, self.comm.invalid)
        source = staging.input(input)
        exchanged = kind in (_lib.ALL_TO_ALL_SINGLE, _lib.ALL_TO_ALL_V_SINGLE)
        target = staging.result(output, source, -1 if exchanged else self.comm.rank, load=bool(splits))
        return self._run((source, target), staging, async_op, options, kind, dtype, in_=source.data_ptr(),
            in_count=source.numel() * width, out=target.data_ptr(), out_count=target.numel() * width, root=root,
            **splits)  # fmt: skip

    def all_to_all_v_single(
        self,
        output: _Tensor,
        input: _Tensor,
        output_split_sizes: list[int],
        input_split_sizes: list[int],
        async_op: bool,
        **options: Unpack[Options],
    ) -> TorchWork:
        what = "all_to_all_v_single"
        _, width = self._alike(output, input, what)
        ins = self._elements(input, input_split_sizes, width, "input")
        outs = self._elements(output, output_split_sizes, width, "output")
        return self._blocks(_lib.ALL_TO_ALL_V_SINGLE, what, output, input, async_op, options,
            in_splits=ins, out_splits=outs)  # fmt: skip

    def reduce_scatter_single(
        self, output: _Tensor, input: _Tensor, op: ReduceOp, async_op: bool, **options: Unpack[Options]
    ) -> TorchWork:
        self._alike(output, input, "reduce_scatter_single")
        dtype, reduction, factor, factor_data = self._reduced(input, op, "reduce_scatter_single")
        staging = Staging("reduce_scatter_single", self.comm.invalid)
        source = staging.input(input)
        target = staging.result(output, source, self.comm.rank)
        return self._run((source, target, factor_data), staging, async_op, options,
            _lib.REDUCE_SCATTER_SINGLE, dtype, reduction, source.data_ptr(), source.numel(), target.data_ptr(),
            target.numel(), factor=factor, factor_data=_at(factor_data))  # fmt: skip

    # ---- collectives on lists ----

    def all_gather(
        self, tensor_list: _Tensors, tensor: _Tensor, async_op: bool, **options: Unpack[Options]
    ) -> TorchWork:
        return self._gathered(_lib.ALL_GATHER, "all_gather", tensor_list, tensor, async_op, options)

    def all_gather_v(
        self, tensor_list: _Tensors, tensor: _Tensor, async_op: bool, **options: Unpack[Options]
    ) -> TorchWork:
        return self._gathered(_lib.ALL_GATHER_V, "all_gather_v", tensor_list, tensor, async_op, options)

    def gather(
        self, output_tensor_list: _Tensors, input_tensor: _Tensor, root: int, async_op: bool, **options: Unpack[Options]
    ) -> TorchWork:
        self._in_range(root, "root", "gather")
        outputs = output_tensor_list if root == self.comm.rank else None
        return self._gathered(_lib.GATHER, "gather", outputs, input_tensor, async_op, options, root)

    def _gathered(
        self,
        kind: int,
        what: str,
        outputs: _Tensors | None,
        input: _Tensor,
        async_op: bool,
        options: Options,
        root: int = 0,
    ) -> TorchWork:
        dtype, width = self._moved(input, what)
        if outputs is not None:
            self._listed(outputs, input, "output", what)
        staging = Staging(what, self.comm.invalid)
        source = staging.input(input)
        targets = None if outputs is None else staging.outputs(outputs, [source], self.comm.rank)
        outs = None if targets is None else buffers(targets, input.dtype, width, what, self.comm.invalid)
        return self._run((source, targets), staging, async_op, options, kind, dtype, in_=source.data_ptr(),
            in_count=source.numel() * width, outs=outs, root=root)  # fmt: skip

    def reduce_scatter(
        self, output: _Tensor, input_list: _Tensors, op: ReduceOp, async_op: bool, **options: Unpack[Options]
    ) -> TorchWork:
        return self._scattered(_lib.REDUCE_SCATTER, "reduce_scatter", output, input_list, op, async_op, options)

    def reduce_scatter_v(
        self, output: _Tensor, input_list: _Tensors, op: ReduceOp, async_op: bool, **options: Unpack[Options]
    ) -> TorchWork:
        return self._scattered(_lib.REDUCE_SCATTER_V, "reduce_scatter_v", output, input_list, op, async_op, options)

    def _scattered(
        self, kind: int, what: str, output: _Tensor, inputs: _Tensors, op: ReduceOp, async_op: bool, options: Options
    ) -> TorchWork:
        dtype, reduction, factor, factor_data = self._reduced(output, op, what)
        self._listed(inputs, output, "input", what)
        staging = Staging(what, self.comm.invalid)
        sources = [staging.input(t) for t in inputs]
        (target,) = staging.outputs([output], sources)
        return self._run((sources, target, factor_data), staging, async_op, options, kind, dtype, reduction,
            out=target.data_ptr(), out_count=target.numel(),
            ins=buffers(sources, output.dtype, 1, what, self.comm.invalid),
            factor=factor, factor_data=_at(factor_data))  # fmt: skip

    def all_to_all(
        self, output_tensor_list: _Tensors, input_tensor_list: _Tensors, async_op: bool, **options: Unpack[Options]
    ) -> TorchWork:
        for tensors, which in ((input_tensor_list, "input"), (output_tensor_list, "output")):
            self._listed(tensors, input_tensor_list[0] if input_tensor_list else None, which, "all_to_all")
        dtype, width = moved_as(input_tensor_list[0])
        staging = Staging("all_to_all", self.comm.invalid)
        sources = [staging.input(t) for t in input_tensor_list]
        targets = staging.outputs(output_tensor_list, sources)
        return self._run((sources, targets), staging, async_op, options, _lib.ALL_TO_ALL, dtype,
            ins=buffers(sources, sources[0].dtype, width, "all_to_all", self.comm.invalid),
            outs=buffers(targets, sources[0].dtype, width, "all_to_all", self.comm.invalid))  # fmt: skip

    def scatter(
        self, output_tensor: _Tensor, input_tensor_list: _Tensors, root: int, async_op: bool, **options: Unpack[Options]
    ) -> TorchWork:
        dtype, width = self._moved(output_tensor, "scatter")
        self._in_range(root, "root", "scatter")
        staging = Staging("scatter", self.comm.invalid)
        sources: list[_Tensor] = []
        ins = None
        if root == self.comm.rank:
            self._listed(input_tensor_list, output_tensor, "input", "scatter")
            sources = [staging.input(t) for t in input_tensor_list]
            ins = buffers(sources, output_tensor.dtype, width, "scatter", self.comm.invalid)
        (target,) = staging.outputs([output_tensor], sources, self.comm.rank)
        return self._run((sources, target), staging, async_op, options, _lib.SCATTER, dtype,
            out=target.data_ptr(), out_count=target.numel() * width, ins=ins, root=root)  # fmt: skip

    def barrier(self, async_op: bool, **options: Unpack[Options]) -> TorchWork:
        staging = Staging("barrier", self.comm.invalid)
        if not self._of_group or _streams.foreign(self.comm.device):
            staging.device = self.comm.device
        if self._of_group and self.comm.device is not None and not async_op:  # the host waits
            work = self._run(None, staging, True, options, _lib.BARRIER)
            work.wait_blocking()
            return work
        return self._run(None, staging, async_op, options, _lib.BARRIER)

    # ---- the communicator itself ----

    def split(self, ranks: list[int], name: str | None, options: CommOptions) -> NativeBackend | None:
        own = _hints.of_communicator(options.hints, self._name)[0] if options.hints else None
        timeout = timeout_ns(options.timeout)
        part = self.comm.split(ranks, name=name if ranks else None, timeout_ns=timeout, hints=own)
        return None if part is None else NativeBackend(part, self._name, self._of_group)

    def is_abort_supported(self) -> bool:
        return bool(self.comm.info().capabilities & _lib.CAN_ABORT)

    def abort(self) -> None:
        self.comm.abort("abort was called")

    def is_aborted(self) -> bool:
        return not isinstance(self.comm.failure(), FinalizedError | None)

    def get_init_handle(self) -> str:
        return self.comm.handle_text()

    def reconfigure(self, uuid: int, init_handles: list[str] | set[str], **options: Unpack[Options]) -> None:
        own = _hints.of_communicator(options["hints"], self._name)[0] if "hints" in options else None
        self._follow(
            self.comm.reconfigure(
                str(uuid),
                list(init_handles),
                any_order=isinstance(init_handles, (set, frozenset)),
                timeout_ns=timeout_ns(options.get("timeout")),
                hints=own,
            )
        )

    def regroup(self, without: Sequence[int], newcomers: Sequence[str], timeout: timedelta | None) -> None:
        self._follow(self.comm.regroup(without=without, newcomers=newcomers, timeout_ns=timeout_ns(timeout)))

    def suspend(self) -> None:
        self.comm.suspend()

    def resume(self) -> None:
        self.comm.resume()

    def _follow(self, comm: Communicator) -> None:
        self._unwatch()
        self.comm = comm
        for call in self._on_abort:
            self._watch(call)

    def on_abort(self, call: Callable[[], None]) -> None:
        self._watch(call)
        self._on_abort.append(call)

    def _watch(self, call: Callable[[], None]) -> None:
        number, hook = next(_numbers), ctypes.c_uint64()
        _breaks[number] = call
        try:
            check(_lib.library.chorus_on_abort(self.comm.handle, _trampoline, number, ctypes.byref(hook)))
        except BaseException:
            _breaks.pop(number, None)
            raise
        self._watched.append((number, hook.value))

    def _unwatch(self) -> None:
        """Remove the hooks of a communicator that has ended without breaking; a broken one calls its hooks, once."""
        watched, self._watched = self._watched, []
        for number, hook in () if self.is_aborted() else watched:
            _breaks.pop(number, None)
            check(_lib.library.chorus_hook_remove(hook))

    def set_timeout(self, timeout: timedelta) -> None:
        ns = timeout_ns(timeout)
        if ns == 0:
            raise self.comm.invalid("set_timeout", f"the timeout is {timeout}; it must be positive")
        self.comm.set_timeout(ns)

    def set_hints(self, hints: dict[str, str]) -> None:
        self.comm.set_hints(_hints.of_operation(hints, self._name) or {})

    def tensor_register(self, tensor: _Tensor) -> None:
        self._moved(tensor, "tensor_register")
        storage = tensor.untyped_storage()
        check(_lib.library.chorus_register(self.comm.handle, storage.data_ptr(), storage.nbytes()))

    def tensor_deregister(self, tensor: _Tensor) -> None:
        storage = tensor.untyped_storage()
        check(_lib.library.chorus_deregister(self.comm.handle, storage.data_ptr(), storage.nbytes()))

    # ---- helpers ----

    def _run(
        self, keep: object, staging: Staging, async_op: bool, options: Options, *args: Any, **fields: Any
    ) -> TorchWork:
        if options:
            fields["hints"] = _hints.of_operation(options.get("hints"), self._name)
            fields["timeout_ns"] = timeout_ns(options.get("timeout"))
        return TorchWork(self.comm.run(async_op, keep, staging.after(), *args, device=staging.device, **fields))

    def _in_range(self, rank: int, what: str, op: str) -> None:
        if not 0 <= rank < self.comm.size:  # the library's "any rank" is negative; this interface has none
            raise self.comm.invalid(op, f"{what} must be in range [0, {self.comm.size}), but got {rank}")

    def here(self, tensors: Sequence[_Tensor], op: str) -> None:
        """Refuse tensors that aren't dense ones on the CPU, or all on the communicator's device."""
        first = tensors[0]
        for tensor in tensors:
            if type(tensor) is torch.Tensor and tensor.is_cpu and tensor.layout is torch.strided and first.is_cpu:
                continue
            if not isinstance(tensor, torch.Tensor):
                raise TypeError(f"{op}: expected a tensor, not {type(tensor).__name__}")
            bound, place = self.comm.device, tensor.device
            if (
                place.type != "cpu"
                and place != bound
                and not (bound is None and self._of_group and place.type in served())
            ):
                raise self.comm.invalid(op, f"Expected tensor on {bound or 'cpu'} but found tensor on {place}")
            check_devices([tensor, first], op, self.comm.invalid)

    def _moved(self, tensor: _Tensor, op: str) -> tuple[int, int]:
        self.here([tensor], op)
        return moved_as(tensor)

    def _alike(self, output: _Tensor, input: _Tensor, op: str) -> tuple[int, int]:
        self.here([output, input], op)
        if output.dtype != input.dtype:
            raise self.comm.invalid(op, f"the output is {output.dtype} and the input {input.dtype}")
        return moved_as(input)

    def _listed(self, tensors: Sequence[_Tensor], other: _Tensor | None, what: str, op: str) -> None:
        """Refuse a list that isn't one of a tensor per rank, on the device of another tensor of the operation."""
        if len(tensors) != self.comm.size:
            raise self.comm.invalid(op, f"the list of {what}s has {len(tensors)} tensors; its size must equal comm_size ({self.comm.size})")  # noqa: E501
        self.here([*tensors, other] if other is not None else tensors, op)

    def _elements(self, tensor: _Tensor, rows: Sequence[int], width: int, what: str) -> list[int]:
        """Splits in elements of the type that is moved, from splits in rows, which may add up to less than all rows."""
        op, height = "all_to_all_v_single", tensor.size(0) if tensor.dim() else 1
        if len(rows) != self.comm.size:
            raise self.comm.invalid(
                op, f"there are {len(rows)} {what} splits; there must be {self.comm.size}, one per rank"
            )
        if min(rows) < 0 or sum(rows) > height:
            raise self.comm.invalid(op, f"the {what} splits {list(rows)} don't fit into {height} rows")
        size = tensor.numel() // height * width if height else 0
        return [operator.index(r) * size for r in rows]

    def _reduced(self, tensor: _Tensor, op: ReduceOp, what: str) -> tuple[int, int, float, _Tensor | None]:
        """The tensor's type, the reduction, and PREMUL_SUM's factor as number or tensor."""
        self.here([tensor], what)
        if not isinstance(op, ReduceOp):
            raise TypeError(f"{what}: op must be a ReduceOp of torchcomms, not {op!r}")
        dtype = reduced_as(tensor, what, self.comm.invalid)
        if op._type is not RedOpType.PREMUL_SUM:
            return dtype, op._type._value_, 0.0, None
        factor = op.factor
        if isinstance(factor, torch.Tensor):
            if factor.dtype != tensor.dtype:
                raise self.comm.invalid(what, f"PREMUL_SUM's factor is {factor.dtype}; it must have the data's type, {tensor.dtype}")  # noqa: E501
            return dtype, _lib.PREMUL_SUM, 0.0, Staging(what, self.comm.invalid).input(factor.detach().cpu())
        return dtype, _lib.PREMUL_SUM, factor or 0.0, None


def _at(tensor: _Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
