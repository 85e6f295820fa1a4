"""A communicator as a process group of torch.distributed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from chorus import _lib
from chorus._comm import Operation
from chorus._devices import LIBRARIES
from chorus.errors import TimeoutError
from chorus.process_group import ProcessGroup, Work
from chorus.torchcomms._hook_args import OpName
from chorus.torchcomms._native import NativeBackend
from chorus.torchcomms._types import RedOpType, ReduceOp
from chorus.torchcomms._work import DONE, TorchWork
from chorus.torchcomms.comm import MemAllocator, TorchComm

# Hooks' view of an operation: its name, and a function that makes its arguments from (value, keep, root, reduction).
# value is the tensors that it fills; keep has its inputs and outputs.
_SEEN: dict[int, tuple[OpName, Callable[..., tuple[Any, ...]]]] = {
    _lib.BROADCAST: (OpName.broadcast, lambda value, keep, root, op: (value[0], root)),
    _lib.ALL_REDUCE: (OpName.all_reduce, lambda value, keep, root, op: (value[0], op)),
    _lib.REDUCE: (OpName.reduce, lambda value, keep, root, op: (value[0], root, op)),
    _lib.ALL_GATHER: (OpName.all_gather, lambda value, keep, root, op: (value, keep[0])),
    _lib.ALL_GATHER_V: (OpName.all_gather_v, lambda value, keep, root, op: (value, keep[0])),
    _lib.ALL_GATHER_SINGLE: (OpName.all_gather_single, lambda value, keep, root, op: (value[0], keep[0])),
    _lib.REDUCE_SCATTER: (OpName.reduce_scatter, lambda value, keep, root, op: (value[0], keep[0], op)),
    _lib.REDUCE_SCATTER_V: (OpName.reduce_scatter_v, lambda value, keep, root, op: (value[0], keep[0], op)),
    _lib.REDUCE_SCATTER_SINGLE: (OpName.reduce_scatter_single, lambda value, keep, root, op: (value[0], keep[0], op)),
    _lib.ALL_TO_ALL: (OpName.all_to_all, lambda value, keep, root, op: (value, keep[0])),
    _lib.ALL_TO_ALL_SINGLE: (OpName.all_to_all_single, lambda value, keep, root, op: (value[0], keep[0])),
    _lib.ALL_TO_ALL_V_SINGLE: (OpName.all_to_all_v_single, lambda value, keep, root, op: (value[0], keep[0])),
    _lib.GATHER: (OpName.gather, lambda value, keep, root, op: (value, keep[0], root)),
    _lib.SCATTER: (OpName.scatter, lambda value, keep, root, op: (value[0], keep[0], root)),
}


class CommGroup(ProcessGroup):
    """A process group over an existing communicator: shutting it down finalizes the communicator. The communicator's
    hooks see the group's operations, with tensors as they go to the library, and each message of a batch.

    It's a group itself. ``_BackendWrapper`` makes it a backend of PyTorch's own groups, and calls its methods.
    """

    def __init__(self, comm: TorchComm) -> None:
        impl = comm.get_backend_impl()
        if not isinstance(impl, NativeBackend):
            raise TypeError(f"{comm!r}: a backend written in Python can't be a process group")
        super().__init__(impl.comm, comm.get_options().store, comm.get_options().timeout)
        self._torchcomm = comm
        if impl.comm.backend in LIBRARIES:
            self._ours = {comm.get_device().type}

    def get_comm(self) -> TorchComm:
        """The communicator."""
        return self._torchcomm

    def get_mem_allocator(self) -> MemAllocator:
        """The communicator's allocator."""
        return self._torchcomm.get_mem_allocator()

    def shutdown(self) -> None:
        """End this rank's part; a second call changes nothing."""
        with contextlib.ExitStack() as parts:  # each of them ends even if another one fails to
            if not self.comm.finalized:
                parts.callback(self._torchcomm.finalize)
            for part in self._parts():
                parts.callback(part.shutdown)
        # With its switch, PyTorch has a list of all communicators, and finalizes them when its world ends.
        with contextlib.suppress(AttributeError, ValueError):
            dist.distributed_c10d._world.comms.remove(self._torchcomm)

    # ---- other methods for _BackendWrapper ----

    def backend_name(self) -> str:
        return self._torchcomm.get_backend()

    def get_timeout(self) -> timedelta:
        return self._torchcomm.get_options().timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Change the timeout of the operations issued from now on."""
        super().set_timeout(timeout)
        self._torchcomm._options.timeout = timeout

    _set_default_timeout = set_timeout

    def error_type(self) -> int:
        """0 for none, 1 for a timeout and 2 for others, as PyTorch numbers them."""
        return 0 if self.failure is None else 1 if isinstance(self.failure, TimeoutError) else 2

    def part(self, ranks: list[int], name: str, timeout: timedelta) -> CommGroup | None:
        """The group of some of this one's ranks; None for a rank that isn't among them. All ranks call it."""
        comm = self._torchcomm.split(ranks if self.comm.rank in ranks else [], name, timeout=timeout)
        if comm is None:
            return None
        comm._finalized = True  # the group finalizes it; PyTorch may make one per type of device, and keep the first
        return CommGroup(comm)

    def begin_batch(self) -> None:
        """Collect the operations that follow, until :meth:`end_batch`."""
        self.comm.begin_batch()

    def end_batch(self) -> Work:
        """Issue the operations collected, as one."""
        return Work(self.comm.end_batch(True), [])

    # ---- methods that PyTorch calls differently with torchcomms ----

    def gather(self, outputs: Any, *args: Any, **named: Any) -> Any:  # type: ignore[override]
        """:meth:`ProcessGroup.gather`; other ranks than the root may pass one empty list instead of none."""
        return super().gather(_lists(outputs), *args, **named)

    def scatter(self, outputs: Any, inputs: Any, *args: Any, **named: Any) -> Any:  # type: ignore[override]
        """:meth:`ProcessGroup.scatter`; likewise."""
        return super().scatter(outputs, _lists(inputs), *args, **named)

    # ---- hooks ----

    def _hooked(self) -> bool:
        hooks = self._torchcomm._hooks
        return bool(hooks.pre or hooks.post)

    def _can_submit(self, tensor: torch.Tensor, opts: Any, kind: type) -> bool:
        return not self._hooked() and super()._can_submit(tensor, opts, kind)

    def barrier(self, opts: Any = None, *more: Any, **named: Any) -> Any:  # type: ignore[override]
        """Wait until every rank has called it."""
        call = super().barrier
        if not self._hooked():
            return call(opts, *more, **named)
        return self._with_hooks(OpName.barrier, (not self._synchronous(opts),), lambda: call(opts, *more, **named))

    def _run(self, opts: Any, value: Any, op: Operation) -> Any:
        call = super()._run
        if not self._hooked() or op.kind not in _SEEN:
            return call(opts, value, op)
        name, told = _SEEN[op.kind]
        factor = op.factor if op.reduction == _lib.PREMUL_SUM else None
        reduction = ReduceOp(RedOpType(op.reduction), factor) if op.reduction else None
        keep: Any = op.keep
        seen = told(value, keep, op.root, reduction)
        if op.out_splits is not None and op.in_splits is not None:
            seen += _rows(value[0], op.out_splits), _rows(keep[0], op.in_splits)
        return self._with_hooks(name, (*seen, not self._synchronous(opts)), lambda: call(opts, value, op))

    def send(self, tensors: list[torch.Tensor], dst: int, tag: int) -> Any:
        """Send a tensor; done when the tensor may be reused."""
        call = super().send
        if not self._hooked():
            return call(tensors, dst, tag)
        return self._with_hooks(OpName.send, (tensors[0], dst, True), lambda: call(tensors, dst, tag))

    def recv(self, tensors: list[torch.Tensor], src: int, tag: int) -> Any:
        """Receive a tensor. Shapes: dtype and number of elements must be the message's."""
        call = super().recv
        if not self._hooked():
            return call(tensors, src, tag)
        return self._with_hooks(OpName.recv, (tensors[0], src, True), lambda: call(tensors, src, tag))

    def _with_hooks(self, name: OpName, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        """Run an operation with the communicator's hooks around it."""
        op_id = self._torchcomm._before(name, lambda: args)
        work = call()
        ours = isinstance(work, Work)  # not the handle of another device's backend
        told = TorchWork(work._pending) if ours else DONE
        self._torchcomm._after(name, op_id, told)
        if ours:
            work._torchcomms_work = told
        return work


def _rows(tensor: torch.Tensor, splits: Sequence[int]) -> list[int]:
    """Splits in rows, from splits in elements, which add up to the whole tensor."""
    height, whole = tensor.size(0) if tensor.dim() else 1, sum(splits)
    return [n * height // whole if whole else 0 for n in splits]


def _lists(tensors: Any) -> Any:
    """No lists instead of one empty list."""
    one = isinstance(tensors, list) and len(tensors) == 1 and isinstance(tensors[0], list)
    return [] if one and not tensors[0] else tensors
