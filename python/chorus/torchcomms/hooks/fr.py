"""A recorder of the last operations, in the form that PyTorch's ``torchfrtrace`` reads."""

from __future__ import annotations

import collections
import contextlib
import json
import logging
import os
import pickle
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch

from chorus.errors import UnsupportedError
from chorus.torchcomms._hook_args import CollectivePostHookArgs, OpName, RemovableHandle, SplitPostHookArgs
from chorus.torchcomms._launcher import flag
from chorus.torchcomms._work import TorchWork
from chorus.torchcomms.comm import TorchComm

# The format's version; see torch/csrc/distributed/c10d/FlightRecorder.hpp.
_VERSION = "2.10"
_MESSAGES = {OpName.send, OpName.recv, OpName.batch_op_issue}
_NOT_RECORDED = {OpName.new_window, OpName.finalize}
_FILE, _DYNAMIC = "TORCHCOMM_FR_DUMP_TEMP_FILE", "TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME"
_DTYPES = {torch.float32: "Float", torch.float64: "Double", torch.float16: "Half", torch.bfloat16: "BFloat16",
    torch.int8: "Char", torch.uint8: "Byte", torch.int16: "Short", torch.int32: "Int", torch.int64: "Long",
    torch.bool: "Bool"}  # fmt: skip


class FlightRecorderHook:
    """Keeps the last ``max_entries`` operations of the registered communicators, and of their splits.

    An entry is ``scheduled`` when it's issued and ``completed`` when the operation is over, with the time of the end
    and ``duration_ms``. Collectives and messages are numbered per communicator, so that the numbers of different ranks
    match. When a communicator breaks, the record is written to its file (see :meth:`dump_file`). Every recorder has a
    record of its own; ``isolated`` is ignored. PyTorch's debug server shows the records of all. With
    ``max_entries=0`` nothing is recorded.
    """

    def __init__(self, max_entries: int = 2048, isolated: bool = False) -> None:
        if max_entries < 0:
            raise ValueError(f"max_entries is {max_entries}")
        self._entries: collections.deque[dict[str, Any]] = collections.deque(maxlen=max_entries)
        self._comms: dict[str, dict[str, str]] = {}
        self._members: weakref.WeakSet[TorchComm] = weakref.WeakSet()
        self._handles: list[RemovableHandle] = []
        self._issuing: dict[int, dict[str, Any]] = {}  # by op_id, from pre-hook to post-hook
        self._unseen: collections.deque[tuple[dict[str, Any], TorchWork]] = collections.deque(maxlen=max_entries)
        self._count = 0
        self._lock = threading.Lock()

    def register_with_comm(self, comm: TorchComm) -> None:
        """Record this communicator's operations from now on."""
        numbers = {"collective_seq_id": 0, "p2p_seq_id": 0}
        with self._lock:
            self._comms[comm.get_name()] = {
                "name": comm.get_name(),
                "desc": comm.get_backend(),
                "ranks": json.dumps(comm.get_ranks(), separators=(",", ":")),
            }
            self._members.add(comm)
        with _all:
            _recorders.add(self)
        if not self._entries.maxlen:  # there is no room: no hooks needed
            return
        self._handles += [
            comm.register_pre_hook(lambda op, op_id, args: self._begin(comm, numbers, op, op_id, args)),
            comm.register_post_hook(self._issued),
            comm._hook(comm._hooks.left_out, self._left_out),
        ]
        with contextlib.suppress(UnsupportedError):  # a backend written in Python may have no abort hooks
            self._handles.append(comm.register_abort_hook(_dump_at_abort(self, comm)))

    def unregister(self) -> None:
        """Stop recording; the record stays."""
        while self._handles:
            self._handles.pop().remove()
        with self._lock:
            self._members.clear()

    def members(self) -> list[TorchComm]:
        """The communicators that it's registered with and that haven't ended."""
        with self._lock:
            return [comm for comm in self._members if not comm._ended()]

    def _begin(self, comm: TorchComm, numbers: dict[str, int], op: OpName, op_id: int, args: Any) -> None:
        if op in _NOT_RECORDED:
            return
        inputs, outputs = _tensors(op, args)
        with self._lock:
            numbers["p2p_seq_id" if op in _MESSAGES else "collective_seq_id"] += 1
            entry = {
                "record_id": self._count,
                "pg_id": list(self._comms).index(comm.get_name()),
                "process_group": (comm.get_name(), comm.get_backend()),
                **numbers,
                "op_id": op_id,
                "profiling_name": f"gloo:{_called(comm, op, args)}",
                "time_created_ns": time.time_ns(),
                "time_discovered_started_ns": None,
                "time_discovered_completed_ns": None,
                "input_sizes": [list(t.shape) for t in inputs],
                "input_dtypes": [_DTYPES.get(t.dtype, str(t.dtype)) for t in inputs],
                "output_sizes": [list(t.shape) for t in outputs],
                "output_dtypes": [_DTYPES.get(t.dtype, str(t.dtype)) for t in outputs],
                "state": "scheduled",
                "retired": False,
                "timeout_ms": int(comm.get_options().timeout.total_seconds() * 1000),
                "is_p2p": op in _MESSAGES,
                "frames": [],
            }
            self._count += 1
            self._entries.append(entry)
            self._issuing[op_id] = entry

    def _issued(self, op_id: int, args: Any) -> None:
        if isinstance(args, SplitPostHookArgs):
            self.register_with_comm(args.comm)
            self._left_out(op_id)
        if not isinstance(args, CollectivePostHookArgs):
            return
        with self._lock:
            entry = self._issuing.pop(op_id, None)
        if entry is None:
            return

        pending = args.work._pending
        if pending is not None:
            pending.when_done(lambda pending: _over(entry, pending.error))
        elif args.work.is_completed():
            _over(entry, args.work.exception())
        else:
            with self._lock:
                self._unseen.append((entry, args.work))

    def _left_out(self, op_id: int) -> None:
        """Complete the entry of a split that may have given this rank no part."""
        with self._lock:
            entry = self._issuing.pop(op_id, None)
        if entry is not None:
            _over(entry, None)

    def _look(self) -> None:
        """Poll operations of backends written in Python, which don't report their ends."""
        for _ in range(len(self._unseen)):
            entry, work = self._unseen.popleft()
            if work.is_completed():
                _over(entry, work.exception())
            else:
                self._unseen.append((entry, work))

    def _dump(self, include_completed: bool) -> dict[str, Any]:
        with self._lock:
            self._look()
            entries = [dict(e) for e in self._entries if include_completed or e["state"] != "completed"]
            return {
                "version": _VERSION,
                "pg_config": {name: dict(c) for name, c in self._comms.items()},
                "pg_status": {},
                "entries": entries,
            }

    def dump_json(self, include_completed: bool = True) -> str:
        """The record, as JSON."""
        return json.dumps(self._dump(include_completed))

    def dump_file(self, rank: int, include_completed: bool = True, prefix: str | None = None) -> str:
        """Write the record to the file ``prefix`` followed by ``rank``, as ``torchfrtrace`` reads it.

        The prefix is that of TORCHCOMM_FR_DUMP_TEMP_FILE unless given, or PyTorch's
        ``~/.cache/torch/comm_lib_trace_rank_``. With TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME=1 the variable is the whole
        path, read at each call. Returns the path.
        """
        path = f"{prefix}{rank}" if prefix is not None else _path(rank)
        dump = {**self._dump(include_completed), "rank": rank, "host_name": os.uname().nodename}
        with open(path, "wb") as file:
            pickle.dump(dump, file)
        return path

    def reset(self) -> None:
        """Forget the entries."""
        with self._lock:
            self._entries.clear()
            self._unseen.clear()

    def is_enabled(self) -> bool:
        """Whether it's registered with a communicator, and there is room for entries."""
        return bool(self._handles) and self._entries.maxlen != 0

    def size(self) -> int:
        """The number of entries."""
        return len(self._entries)


_recorders: weakref.WeakSet[FlightRecorderHook] = weakref.WeakSet()  # that are or were registered
_all = threading.Lock()  # guards _recorders


def recorders() -> list[FlightRecorderHook]:
    """The recorders of the process that the program still holds."""
    with _all:
        return list(_recorders)


def _path(rank: int) -> str:
    name = os.environ.get(_FILE)
    if name and flag(_DYNAMIC, "false"):
        return name
    if name:
        return f"{name}{rank}"
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    os.makedirs(os.path.join(cache, "torch"), exist_ok=True)
    return os.path.join(cache, "torch", f"comm_lib_trace_rank_{rank}")


def _dump_at_abort(recorder: FlightRecorderHook, comm: TorchComm) -> Callable[[], None]:
    """A function that writes a recorder's file when a communicator breaks; it keeps neither alive."""
    of_recorder, of_comm = weakref.ref(recorder), weakref.ref(comm)

    def dump() -> None:
        recorder, comm = of_recorder(), of_comm()
        if recorder is not None and comm is not None:
            path = recorder.dump_file(comm.get_ranks()[comm.get_rank()])
            logging.getLogger("chorus").info("%s broke; its flight record is in %s", comm.get_name(), path)

    return dump


def dump_of_process(include_entries: bool = True, include_completed: bool = True) -> dict[str, Any]:
    """The records of all recorders of the process, merged into one; an operation of several appears once."""
    whole: dict[str, Any] = {"version": _VERSION, "pg_config": {}, "pg_status": {}}
    entries: dict[int, dict[str, Any]] = {}
    for recorder in recorders():
        dump = recorder._dump(include_completed)
        whole["pg_config"].update(dump["pg_config"])
        entries.update((e["op_id"], e) for e in dump["entries"])
    if include_entries:
        places = {name: i for i, name in enumerate(whole["pg_config"])}
        whole["entries"] = [
            {**entries[op_id], "record_id": i, "pg_id": places[entries[op_id]["process_group"][0]]}
            for i, op_id in enumerate(sorted(entries))
        ]
    return whole


def _over(entry: dict[str, Any], error: BaseException | None) -> None:
    entry["time_discovered_completed_ns"] = time.time_ns()
    # At least a nanosecond: the clock may not have advanced, or may have been set back.
    entry["duration_ms"] = max(1, entry["time_discovered_completed_ns"] - entry["time_created_ns"]) / 1e6
    entry["retired"] = True
    if error is None:  # a failed operation stays "scheduled", as in PyTorch's records
        entry["state"] = "completed"


def _called(comm: TorchComm, op: OpName, args: Any) -> str:
    """An operation's name for torchfrtrace, which doesn't know Chorus: Gloo's for CPU tensors."""
    if op is OpName.send:
        return f"send {comm.get_rank()}->{args.peer}"
    if op is OpName.recv:
        return f"recv {comm.get_rank()}<-{args.peer}"
    return {OpName.batch_op_issue: "coalesced", OpName.gather_single: "gather"}.get(op, op.name)


def _tensors(op: OpName, args: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """An operation's inputs and outputs."""
    if op is OpName.batch_op_issue:
        sides = [[p.tensor for p in args.ops if p.type.name == side] for side in ("SEND", "RECV")]
        return sides[0], sides[1]
    if hasattr(args, "tensor"):
        return [args.tensor], [args.tensor]
    found = []
    for name in ("input", "output"):
        value = getattr(args, name, [])
        found.append(list(value) if isinstance(value, list | tuple) else [value])
    return found[0], found[1]
