"""A recorder of the last operations, in the form that PyTorch's ``torchfrtrace`` reads."""

from __future__ import annotations

import collections
import json
import os
import pickle
import tempfile
import threading
import time
from typing import Any

import torch

from chorus.torchcomms._hook_args import CollectivePostHookArgs, OpName, SplitPostHookArgs
from chorus.torchcomms._work import TorchWork
from chorus.torchcomms.comm import TorchComm

# Of the format, torch/csrc/distributed/c10d/FlightRecorder.hpp.
_VERSION = "2.10"
_MESSAGES = {OpName.send, OpName.recv, OpName.batch_op_issue}
_NOT_RECORDED = {OpName.split, OpName.new_window, OpName.finalize}
_DTYPES = {torch.float32: "Float", torch.float64: "Double", torch.float16: "Half", torch.bfloat16: "BFloat16",
    torch.int8: "Char", torch.uint8: "Byte", torch.int16: "Short", torch.int32: "Int", torch.int64: "Long",
    torch.bool: "Bool"}  # fmt: skip


class FlightRecorderHook:
    """Keeps the last ``max_entries`` operations of the communicators that are registered, and of their parts.

    An entry is ``scheduled`` when it's issued and ``completed`` when the operation is over, with the time of
    that; numbers of collectives and of messages count for each communicator, so that those of different ranks
    match. All recorders are apart; ``isolated`` is accepted.
    """

    def __init__(self, max_entries: int = 2048, isolated: bool = False) -> None:
        if max_entries < 0:
            raise ValueError(f"max_entries is {max_entries}")
        self._entries: collections.deque[dict[str, Any]] = collections.deque(maxlen=max_entries)
        self._comms: dict[str, dict[str, str]] = {}
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
                "ranks": json.dumps(comm.get_ranks()),
            }
        comm.register_pre_hook(lambda op, op_id, args: self._begin(comm, numbers, op, op_id, args))
        comm.register_post_hook(self._issued)

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

    def _look(self) -> None:
        """Find out which operations are over whose backends, written in Python, don't tell."""
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
        """What was recorded, as JSON."""
        return json.dumps(self._dump(include_completed))

    def dump_file(self, rank: int, include_completed: bool = True, prefix: str | None = None) -> str:
        """Write what was recorded to the file ``prefix`` followed by ``rank``, as ``torchfrtrace`` reads it.

        The prefix is ``torchcomm_fr_`` in the directory of temporary files unless given. Returns the path.
        """
        path = f"{prefix or os.path.join(tempfile.gettempdir(), 'torchcomm_fr_')}{rank}"
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
        """Whether there is room for entries."""
        return self._entries.maxlen != 0

    def size(self) -> int:
        """The number of entries."""
        return len(self._entries)


def _over(entry: dict[str, Any], error: BaseException | None) -> None:
    entry["time_discovered_completed_ns"] = time.time_ns()
    entry["retired"] = True
    if error is None:  # what failed stays "scheduled", as PyTorch's does
        entry["state"] = "completed"


def _called(comm: TorchComm, op: OpName, args: Any) -> str:
    """What the tool, which knows no backend of ours, calls an operation: Gloo's for CPU tensors."""
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
