"""Operations in PyTorch's profiler.

While ``torch.profiler`` records, an operation is an event there, as those of PyTorch's own backends are:
``chorus:all_reduce``, with the shapes of the rank's input, and with ``group``, ``rank``, ``seq``, ``root``, ``peer``
and ``tag``. An asynchronous one is two events. ``chorus:issue:all_reduce`` is the call, and has these facts.
``chorus:all_reduce`` begins in it and lasts until the operation is over.

The call of a GPU's group also has the arguments of ProcessGroupNCCL's event ``record_param_comms``. An event of that
name can only be made in C++: PyTorch 2.13 crashes when it writes one that was made in Python.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import torch

from chorus import _lib, _patches

OPERATIONS = {0: "batch"} | _lib.OPERATIONS


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, tuple) and value:  # the input comes first
        yield from _tensors(value[0])


class Event:
    """The profiler's event of one operation, as a context around the call that runs or issues it. This class records
    nothing."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def end(self, *_: object) -> None:
        """The asynchronous operation is over."""


class _Recorded(Event):
    def __init__(self, name: str, keep: object, asynchronous: bool, facts: dict[str, Any]) -> None:
        self._name = f"chorus:{name}"
        self._asynchronous = asynchronous
        call = f"chorus:issue:{name}" if asynchronous else self._name
        record: Any = torch._C._profiler._RecordFunctionFast
        self._call = record(call, list(_tensors(keep)), facts)

    def __enter__(self) -> None:
        self._call.__enter__()
        if self._asynchronous:
            self._thread = threading.get_ident()
            # An event can end on another thread than the one that began it only through a future of PyTorch.
            over: torch.futures.Future[None] = torch.futures.Future()
            event = torch.ops.profiler._record_function_enter_new(self._name, None)
            torch.ops.profiler._call_end_callbacks_on_jit_fut(event, over)
            with _lock:
                _open[self] = over

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call.__exit__(kind, error, trace)
        if error is not None:
            self.end()

    def end(self, *_: object) -> None:
        with _lock:
            over = _open.pop(self, None)
            if over is None:
                return
            if threading.get_ident() == self._thread:
                _end([over])
            else:
                over.set_result(None)


_open: dict[_Recorded, torch.futures.Future[None]] = {}  # the asynchronous operations whose events have not ended
_lock = threading.Lock()


def _end(overs: list[torch.futures.Future[None]]) -> None:
    """End events on another thread than they began on: there they needn't nest with the events around them."""

    def end() -> None:
        for over in overs:
            over.set_result(None)

    thread = threading.Thread(target=end)
    with contextlib.suppress(RuntimeError):  # the interpreter is exiting
        thread.start()
        thread.join()


def _end_all() -> None:
    with _lock:
        if _open:
            _end(list(_open.values()))
            _open.clear()


_patches.apply("profiler", _end_all)

nothing = Event()


# ProcessGroupNCCL's names of operations in profiles, if they differ from the library's.
_OF_NCCL = {
    "batch": "coalesced", "all_reduce": "allreduce", "all_gather_single": "_allgather_base",
    "all_gather_v": "all_gather", "reduce_scatter_single": "_reduce_scatter_base",
    "reduce_scatter_v": "reduce_scatter", "all_to_all_single": "all_to_all", "all_to_all_v_single": "all_to_allv",
    "gather_single": "gather",
}  # fmt: skip
# PyTorch's names of element types in profiles.
_SCALARS = {
    torch.uint8: "Byte", torch.int8: "Char", torch.int16: "Short", torch.int32: "Int", torch.int64: "Long",
    torch.float16: "Half", torch.float32: "Float", torch.float64: "Double", torch.bfloat16: "BFloat16",
    torch.bool: "Bool", torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble",
}  # fmt: skip


def _scalar(dtype: torch.dtype) -> str:
    name = str(dtype).removeprefix("torch.")
    return _SCALARS.get(dtype, name[:1].upper() + name[1:])


def param_comms(
    kind: int,
    keep: object,
    asynchronous: bool,
    group: Any,
    sizes: tuple[int, int],
    splits: tuple[Any, Any],
    peer: int,
) -> dict[str, Any]:
    """The arguments of ProcessGroupNCCL's record_param_comms. ``group`` is the communicator. ``sizes`` are those of
    input and output, in any unit, and ``splits`` the parts of both, if they differ."""
    tensors = list(_tensors(keep))
    elements, (given, taken) = sum(t.numel() for t in tensors), sizes
    whole = given or taken or 1
    name = OPERATIONS[kind]
    message = _lib.SEND <= kind <= _lib.RECV
    ranks = group.ranks or range(group.size)
    return {
        "Collective name": _OF_NCCL.get(name, name),
        "dtype": _scalar(tensors[0].dtype) if tensors else "Byte",
        "In msg nelems": elements,
        "Out msg nelems": elements * (taken or given) // whole,
        "Group size": group.size,
        "In split size": str(list(splits[0] or [])),
        "Out split size": str(list(splits[1] or [])),
        "Process Group Name": group.group_name or group.name,
        "Process Group Description": group.name,
        "Process Group Ranks": str(list(ranks)),
        "Rank": group.rank,
        "Src Rank": peer if kind == _lib.RECV else group.rank if message else -1,
        "Dst Rank": peer if kind == _lib.SEND else group.rank if message else -1,
        "Seq": group.issued,
        "Is asynchronized op": asynchronous,
    }


def operation(
    kind: int,
    keep: object,
    asynchronous: bool,
    group: str,
    rank: int,
    seq: int,
    *,
    param_comms: dict[str, Any] | None = None,
    **facts: int,
) -> Event:
    """The event of an operation. ``facts`` include ``root``, ``peer`` and ``tag``, also if the operation has none.
    ``param_comms`` are facts, too."""
    wanted = ("peer", "tag") if _lib.SEND <= kind <= _lib.RECV else ("root",) if kind in _lib.ROOTED else ()
    number = {} if _lib.SEND <= kind <= _lib.RECV else {"seq": seq}
    return _Recorded(
        OPERATIONS[kind],
        keep,
        asynchronous,
        {"group": group, "rank": rank} | number | {w: facts[w] for w in wanted} | (param_comms or {}),
    )


def on_window(kind: int, keep: object, asynchronous: bool, group: str, rank: int, peer: int) -> Event:
    """The event of an operation on rank ``peer``'s memory."""
    return _Recorded(_lib.WINDOW_OPERATIONS[kind], keep, asynchronous, {"group": group, "rank": rank, "peer": peer})
