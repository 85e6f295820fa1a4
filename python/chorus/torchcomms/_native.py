"""The library's backends, for tensors of the CPU and of a device."""

from __future__ import annotations

import ctypes
import itertools
import logging
import operator
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import torch

from chorus import _lib, _ops, _streams
from chorus._comm import Batch, Communicator, Operation
from chorus._devices import served
from chorus._tensors import Reduction, check_devices, premultiplied
from chorus.errors import FinalizedError, check
from chorus.process_group import timeout_ns
from chorus.torchcomms import _hints
from chorus.torchcomms._backend import TorchCommBackend
from chorus.torchcomms._types import CommOptions, Options, P2POp, P2POpType, ReduceOp
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
        self.here([tensor], "send")
        self._in_range(dst, "dst", "send")
        return self._run(_ops.send(self.comm, tensor, dst), async_op, options, batch)

    def _recv(self, tensor: _Tensor, src: int, async_op: bool, batch: Batch | None, options: Options) -> TorchWork:
        self.here([tensor], "recv")
        self._in_range(src, "src", "recv")
        return self._run(_ops.recv(self.comm, tensor, src), async_op, options, batch)

    # ---- collectives on one tensor ----

    def broadcast(self, tensor: _Tensor, root: int, async_op: bool, **options: Unpack[Options]) -> TorchWork:
        self.here([tensor], "broadcast")
        self._in_range(root, "root", "broadcast")
        return self._run(_ops.broadcast(self.comm, tensor, root), async_op, options)

    def all_reduce(self, tensor: _Tensor, op: ReduceOp, async_op: bool, **options: Unpack[Options]) -> TorchWork:
        reduction = self._reduction(tensor, op, "all_reduce")
        return self._run(_ops.all_reduce(self.comm, tensor, reduction), async_op, options)

    def reduce(self, tensor: _Tensor, root: int, op: ReduceOp, async_op: bool, **options: Unpack[Options]) -> TorchWork:
        reduction = self._reduction(tensor, op, "reduce")
        self._in_range(root, "root", "reduce")
        return self._run(_ops.reduce(self.comm, tensor, reduction, root), async_op, options)

    # ---- collectives on two tensors ----

    def all_gather_single(
        self, output: _Tensor, input: _Tensor, async_op: bool, **options: Unpack[Options]
    ) -> TorchWork:
        self.here([output, input], "all_gather_single")
        return self._run(_ops.all_gather_single(self.comm, output, input), async_op, options)

    def gather_single(
        self, output: _Tensor, input: _Tensor, root: int, async_op: bool, **options: Unpack[Options]
    ) -> TorchWork:
        self._in_range(root, "root", "gather_single")
        self.here([output, input] if root == self.comm.rank else [input], "gather_single")
        return self._run(_ops.gather_single(self.comm, output, input, root), async_op, options)

    def all_to_all_single(
        self, output: _Tensor, input: _Tensor, async_op: bool, **options: Unpack[Options]
    ) -> TorchWork:
        self.here([output, input], "all_to_all_single")
        rows = input.size(0) if input.dim() else 1
        if rows % (self.comm.size or 1):  # without a world the library refuses
            raise self.comm.invalid("all_to_all_single", f"the input's {rows} rows must be divisible by comm_size ({self.comm.size})")  # noqa: E501
        return self._run(_ops.all_to_all_single(self.comm, output, input), async_op, options)

    def all_to_all_v_single(
        self,
        output: _Tensor,
        input: _Tensor,
        output_split_sizes: list[int],
        input_split_sizes: list[int],
        async_op: bool,
        **options: Unpack[Options],
    ) -> TorchWork:
        self.here([output, input], "all_to_all_v_single")
        in_rows = self._rows(input, input_split_sizes, "input")
        out_rows = self._rows(output, output_split_sizes, "output")
        return self._run(_ops.all_to_all_v_single(self.comm, output, input, out_rows, in_rows), async_op, options)

    def reduce_scatter_single(
        self, output: _Tensor, input: _Tensor, op: ReduceOp, async_op: bool, **options: Unpack[Options]
    ) -> TorchWork:
        self.here([output, input], "reduce_scatter_single")
        reduction = self._reduction(input, op, "reduce_scatter_single")
        return self._run(_ops.reduce_scatter_single(self.comm, output, input, reduction), async_op, options)

    # ---- collectives on lists ----

    def all_gather(
        self, tensor_list: _Tensors, tensor: _Tensor, async_op: bool, **options: Unpack[Options]
    ) -> TorchWork:
        self._listed(tensor_list, tensor, "output", "all_gather")
        return self._run(_ops.all_gather(self.comm, tensor_list, tensor), async_op, options)

    def all_gather_v(
        self, tensor_list: _Tensors, tensor: _Tensor, async_op: bool, **options: Unpack[Options]
    ) -> TorchWork:
        self._listed(tensor_list, tensor, "output", "all_gather_v")
        return self._run(_ops.all_gather_v(self.comm, tensor_list, tensor), async_op, options)

    def gather(
        self, output_tensor_list: _Tensors, input_tensor: _Tensor, root: int, async_op: bool, **options: Unpack[Options]
    ) -> TorchWork:
        self._in_range(root, "root", "gather")
        outputs = None
        if root == self.comm.rank:
            outputs = output_tensor_list
            self._listed(outputs, input_tensor, "output", "gather")
        else:
            self.here([input_tensor], "gather")
        return self._run(_ops.gather(self.comm, outputs, input_tensor, root), async_op, options)

    def reduce_scatter(
        self, output: _Tensor, input_list: _Tensors, op: ReduceOp, async_op: bool, **options: Unpack[Options]
    ) -> TorchWork:
        reduction = self._reduction(output, op, "reduce_scatter")
        self._listed(input_list, output, "input", "reduce_scatter")
        return self._run(_ops.reduce_scatter(self.comm, output, input_list, reduction), async_op, options)

    def reduce_scatter_v(
        self, output: _Tensor, input_list: _Tensors, op: ReduceOp, async_op: bool, **options: Unpack[Options]
    ) -> TorchWork:
        reduction = self._reduction(output, op, "reduce_scatter_v")
        self._listed(input_list, output, "input", "reduce_scatter_v")
        return self._run(_ops.reduce_scatter_v(self.comm, output, input_list, reduction), async_op, options)

    def all_to_all(
        self, output_tensor_list: _Tensors, input_tensor_list: _Tensors, async_op: bool, **options: Unpack[Options]
    ) -> TorchWork:
        for tensors, which in ((input_tensor_list, "input"), (output_tensor_list, "output")):
            self._listed(tensors, input_tensor_list[0] if input_tensor_list else None, which, "all_to_all")
        return self._run(_ops.all_to_all(self.comm, output_tensor_list, input_tensor_list), async_op, options)

    def scatter(
        self, output_tensor: _Tensor, input_tensor_list: _Tensors, root: int, async_op: bool, **options: Unpack[Options]
    ) -> TorchWork:
        self.here([output_tensor], "scatter")
        self._in_range(root, "root", "scatter")
        inputs = input_tensor_list if root == self.comm.rank else None
        if inputs is not None:
            self._listed(inputs, output_tensor, "input", "scatter")
        return self._run(_ops.scatter(self.comm, output_tensor, inputs, root), async_op, options)

    def barrier(self, async_op: bool, **options: Unpack[Options]) -> TorchWork:
        op = _ops.barrier(self.comm.device if not self._of_group or _streams.foreign(self.comm.device) else None)
        if self._of_group and self.comm.device is not None and not async_op:  # the host waits
            work = self._run(op, True, options)
            work.wait_blocking()
            return work
        return self._run(op, async_op, options)

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
        self.here([tensor], "tensor_register")
        storage = tensor.untyped_storage()
        check(_lib.library.chorus_register(self.comm.handle, storage.data_ptr(), storage.nbytes()))

    def tensor_deregister(self, tensor: _Tensor) -> None:
        storage = tensor.untyped_storage()
        check(_lib.library.chorus_deregister(self.comm.handle, storage.data_ptr(), storage.nbytes()))

    # ---- helpers ----

    def _run(self, op: Operation, async_op: bool, options: Options, batch: Batch | None = None) -> TorchWork:
        if options:
            op.hints = _hints.of_operation(options.get("hints"), self._name)
            op.timeout_ns = timeout_ns(options.get("timeout"))
        return TorchWork(self.comm.run(op, async_op, batch))

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

    def _listed(self, tensors: Sequence[_Tensor], other: _Tensor | None, what: str, op: str) -> None:
        """Refuse a list that isn't one of a tensor per rank, on the device of another tensor of the operation."""
        if len(tensors) != self.comm.size:
            raise self.comm.invalid(op, f"the list of {what}s has {len(tensors)} tensors; its size must equal comm_size ({self.comm.size})")  # noqa: E501
        self.here([*tensors, other] if other is not None else tensors, op)

    def _rows(self, tensor: _Tensor, rows: Sequence[int], what: str) -> list[int]:
        """The splits of a tensor, in rows, which may add up to less than all of them."""
        op, height = "all_to_all_v_single", tensor.size(0) if tensor.dim() else 1
        if len(rows) != self.comm.size:
            raise self.comm.invalid(
                op, f"there are {len(rows)} {what} splits; there must be {self.comm.size}, one per rank"
            )
        if min(rows) < 0 or sum(rows) > height:
            raise self.comm.invalid(op, f"the {what} splits {list(rows)} don't fit into {height} rows")
        return [operator.index(r) for r in rows]

    def _reduction(self, tensor: _Tensor, op: ReduceOp, what: str) -> Reduction:
        self.here([tensor], what)
        if not isinstance(op, ReduceOp):
            raise TypeError(f"{what}: op must be a ReduceOp of torchcomms, not {op!r}")
        if op.factor is None:
            return op._type._value_, 0.0, None
        return premultiplied(op.factor, tensor.dtype, what, self.comm.invalid)
