"""Operations in PyTorch's profiler.

While ``torch.profiler`` records, an operation is an event there, as those of PyTorch's own backends are:
``chorus:all_reduce``, with the shapes of what the rank puts in, and ``group``, ``rank``, and what tells it from others:
``seq``, ``root``, ``peer``, ``tag``. An asynchronous one is two events: ``chorus:issue:all_reduce``, the call, has
these facts, and ``chorus:all_reduce``, which begins in it, lasts until the operation is over.
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
    elif isinstance(value, tuple) and value:  # what is put in comes first
        yield from _tensors(value[0])


class Event:
    """What the profiler is told of one operation: the context of the call that runs or issues it. This one is told
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
            # Only PyTorch itself can end an event on another thread than the one that began it: with a future.
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
    """End events, not on the threads that they began on: there they would have to lie within those around them."""

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


def operation(kind: int, keep: object, asynchronous: bool, group: str, rank: int, seq: int, **facts: int) -> Event:
    """The event of an operation, among the ``facts`` of which are ``root``, ``peer`` and ``tag``, also where they mean
    nothing."""
    wanted = ("peer", "tag") if _lib.SEND <= kind <= _lib.RECV else ("root",) if kind in _lib.ROOTED else ()
    number = {} if _lib.SEND <= kind <= _lib.RECV else {"seq": seq}
    return _Recorded(
        OPERATIONS[kind], keep, asynchronous, {"group": group, "rank": rank} | number | {w: facts[w] for w in wanted}
    )


def on_window(kind: int, keep: object, asynchronous: bool, group: str, rank: int, peer: int) -> Event:
    """The event of an operation on rank ``peer``'s memory."""
    return _Recorded(_lib.WINDOW_OPERATIONS[kind], keep, asynchronous, {"group": group, "rank": rank, "peer": peer})
