"""A log of operations as text, in the original's format: version 1, one line each, fields divided by ``|``."""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from chorus.torchcomms._hook_args import CollectivePostHookArgs, OpName, RemovableHandle, SplitPostHookArgs
from chorus.torchcomms._types import RedOpType
from chorus.torchcomms._work import DONE, TorchWork
from chorus.torchcomms.comm import TorchComm

_DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.int32: "i32", torch.int64: "i64", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8",
    torch.bool: "bool", torch.float8_e4m3fn: "fp8e4m3", torch.float8_e5m2: "fp8e5m2"}  # fmt: skip
_NOT_LOGGED = {OpName.split, OpName.new_window, OpName.finalize}


class clog:
    """Writes the operations of communicators to a file, ``output``.

    Operations with the same facts have the same signature, which gets a number and is written once. ``Q`` is written
    when an operation is issued. If ``events`` has ``"ALL"`` or ``"LIFECYCLE"``, there is ``S`` where a synchronous one
    begins, ``E`` when it's over, and ``W`` at the first wait for an asynchronous one.
    ``verbose=["buffers"]`` adds addresses. Raises ValueError for other events or options, and OSError if the file can't
    be opened; an existing file is overwritten.
    """

    def __init__(self, output: str, events: Sequence[str], verbose: Sequence[str] = ()) -> None:
        for given, known in ((events, ("ALL", "LIFECYCLE")), (verbose, ("buffers",))):
            for name in given:
                if name not in known:
                    raise ValueError(f"clog: {name!r} is not one of {', '.join(known)}")
        self._lifecycle, self._buffers = bool(events), "buffers" in verbose
        self._signatures: dict[str, int] = {}
        # By op_id, from pre-hook to post-hook: the number of the signature, and whether the operation is asynchronous.
        self._under_way: dict[int, tuple[int, bool]] = {}
        self._works = itertools.count(1)
        self._comms: weakref.WeakSet[TorchComm] = weakref.WeakSet()
        self._handles: list[RemovableHandle] = []
        self._lock = threading.Lock()
        self._file = open(output, "w", buffering=1, encoding="utf-8")
        self._began = time.time()
        self._line(f"V|1|base_timestamp={self._began:.3f}")

    def register_with_comm(self, comm: TorchComm) -> None:
        """Log this communicator's operations from now on, and those of its splits.

        Raises RuntimeError if it's registered already.
        """
        if comm in self._comms:
            raise RuntimeError(f"clog: already registered with comm {comm.get_name()}")
        self._comms.add(comm)
        self._line(f"new_comm|comm={comm.get_name()}|rank={comm.get_rank()}|world_size={comm.get_size()}")
        name = comm.get_name()
        self._handles += [
            comm.register_pre_hook(lambda op, op_id, args: self._issue(name, op, op_id, args)),
            comm.register_post_hook(lambda op_id, args: self._issued(name, op_id, args)),
        ]

    def unregister(self) -> None:
        """Stop logging. The file stays open, for another registration."""
        while self._handles:
            self._handles.pop().remove()
        self._comms.clear()

    def _issue(self, comm: str, op: OpName, op_id: int, args: Any) -> None:
        if op in _NOT_LOGGED:
            return
        signature = "|".join([op.name, *self._facts(op, args), f"comm={comm}"])
        with self._lock:
            number = self._signatures.get(signature)
            if number is None:
                number = self._signatures[signature] = len(self._signatures) + 1
                self._line(f"C{number}|sig|{signature}")
            self._line(f"C{number}|Q|work_id={next(self._works)}|{self._now()}")
            if self._lifecycle and not args.async_op:
                self._line(f"C{number}|S|{self._now()}")
            self._under_way[op_id] = number, args.async_op

    def _issued(self, comm: str, op_id: int, args: Any) -> None:
        if isinstance(args, SplitPostHookArgs):
            ranks = ",".join(map(str, args.comm.get_ranks()))
            self._line(f"split|parent={comm}|child={args.comm.get_name()}|ranks={ranks}")
            self.register_with_comm(args.comm)
        if not isinstance(args, CollectivePostHookArgs):
            return
        number, waits = self._under_way.pop(op_id, (None, False))
        if number is None or not self._lifecycle:
            return
        if waits and args.work is not DONE:  # the one handle of all operations that are done
            _before(args.work, lambda: self._event(number, "W"))
        pending = args.work._pending
        if pending is not None:
            pending.when_done(lambda _: self._event(number, "E"))
        elif args.work.is_completed():
            self._event(number, "E")

    def _event(self, number: int, event: str) -> None:
        self._line(f"C{number}|{event}|{self._now()}")

    def _now(self) -> str:
        return f"+{time.time() - self._began:.3f}"

    def _line(self, text: str) -> None:
        self._file.write(text + "\n")

    def _facts(self, op: OpName, args: Any) -> list[str]:
        """The facts of an operation in its signature, in the format's order."""
        if op is OpName.barrier:
            return [_flag(args)]
        if op is OpName.batch_op_issue:
            return [f"num_ops={len(args.ops)}", _flag(args)]
        if hasattr(args, "tensor"):
            told = _counts(None if op is OpName.recv else args.tensor, None if op is OpName.send else args.tensor)
            of, where = args.tensor, {OpName.send: "in", OpName.recv: "out"}.get(op, "buf")
            places = [(where, args.tensor)]
        else:
            told = _counts(args.input, args.output)
            of = next(iter(_flat(args.output if isinstance(args.input, (list, tuple)) else args.input)), None)
            of = next(iter(_flat(args.output)), None) if of is None else of
            places = [("in", args.input), ("out", args.output)]
        if op is OpName.all_to_all_v_single:
            told = [f"in_splits={_list(args.input_split_sizes)}", f"out_splits={_list(args.output_split_sizes)}"]
        told.append(f"dtype={_DTYPES.get(of.dtype, 'other') if of is not None else 'other'}")
        if hasattr(args, "op"):
            told.append(f"red_op={'prod' if args.op.type is RedOpType.PRODUCT else args.op.type.name.lower()}")
        told += [f"{name}={getattr(args, name)}" for name in ("root", "peer") if hasattr(args, name)]
        told.append(_flag(args))
        if self._buffers:
            told += [f"{name}={_addresses(tensors)}" for name, tensors in places]
        return told


def _before(work: TorchWork, call: Callable[[], None]) -> None:
    """Call ``call`` at the first wait for the work, after callbacks that were set before."""
    first = work._on_wait

    def both() -> None:
        if first is not None:
            first()
        call()

    work._on_wait = both


def _flag(args: Any) -> str:
    return f"async_op={'t' if args.async_op else 'f'}"


def _list(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _counts(*sides: Any) -> list[str]:
    """The elements of inputs and outputs: one number of a tensor, 0 of none, or a list's."""
    told = []
    for name, tensors in zip(("in", "out"), sides, strict=True):
        if isinstance(tensors, (list, tuple)):
            told.append(f"{name}_counts={_list([t.numel() for t in tensors])}")
        else:
            told.append(f"{name}_count={0 if tensors is None else tensors.numel()}")
    return told


def _addresses(tensors: Any) -> str:
    return ",".join(hex(t.data_ptr()) for t in _flat(tensors))


def _flat(tensors: Any) -> Sequence[torch.Tensor]:
    """One side of an operation as a list; ranks that aren't the root may have None."""
    if tensors is None:
        return []
    return tensors if isinstance(tensors, (list, tuple)) else [tensors]
