"""Devices of the library, their streams, events and graphs, with the names that PyTorch gives to such things."""

from __future__ import annotations

import atexit
import ctypes
import itertools
import os
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from chorus import _lib
from chorus.errors import Error, InvalidArgumentError, UnsupportedError, WorkFailedError, last_error

if TYPE_CHECKING:
    from typing_extensions import Self

    from chorus._device_tensor import DeviceTensor

_library = _lib.library

# How long the interpreter's exit waits for work of devices, whose kernels may be Python's.
_EXIT_NS = 2_000_000_000


def check(status: int) -> None:
    """Raise unless the status is OK."""
    if status:
        raise KeyboardInterrupt if status == _lib.INTERRUPTED else last_error(status)


def ready(status: int) -> bool:
    """Whether something that may be pending is over."""
    if status == _lib.PENDING:
        return False
    check(status)
    return True


def types() -> list[str]:
    """The types of device that there are."""
    text: bytes = _library.chorus_device_types()
    return text.decode().split(",")


def count(type: str) -> int:
    """How many devices of a type there are."""
    n = ctypes.c_int32()
    check(_library.chorus_device_count(type.encode(), ctypes.byref(n)))
    return n.value


class device:
    """A type of device, such as ``device("accinte")``, or one device: ``device("accinte:1")``, ``device("accinte", 1)``.

    Like ``torch.device``: without an index it stands for the current device of its type.

    Attributes:
        type: the type's name. index: the number within the type, or None.
    """

    __slots__ = ("type", "index")

    type: str
    index: int | None

    def __init__(self, type: str | device | torch.device, index: int | None = None) -> None:
        name = type if isinstance(type, str) else type.type
        at = None if isinstance(type, str) else type.index
        if ":" in name:
            name, _, number = name.partition(":")
            if index is not None or not number.isdecimal():
                raise InvalidArgumentError(f"chorus: invalid device string: {type!r}")
            at = int(number)
        if name not in types():
            raise InvalidArgumentError(f"chorus: Expected one of {', '.join(types())} device type at start of device string: {name}")
        self.type = name
        self.index = at if index is None else index
        if self.index is not None and not 0 <= self.index < count(name):
            raise InvalidArgumentError(f"chorus: The device index is out of range. It must be in [0, {count(name)}), but got {self.index}.")  # fmt: skip

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return f"device(type={self.type!r})" if self.index is None else f"device(type={self.type!r}, index={self.index})"

    def __reduce__(self) -> Any:
        return device, (str(self),)


DeviceLike = device | torch.device | str | int | None

_handles: dict[tuple[str, int], int] = {}
_used: set[int] = set()  # devices that the exit waits for


class _Scope(threading.local):
    """What is current on a thread. Streams are held, as the library has only their handles."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}
        self.streams: dict[device, Stream] = {}
        self.outer: list[tuple[int, Stream]] = []  # what is current again when ``with`` ends


_scope = _Scope()


def accelerator() -> str:
    """The type of the process's accelerator."""
    for name in types():
        if name != "cpu" and count(name) > 0:
            return name
    raise UnsupportedError("chorus: there is no accelerator")


def resolve(what: DeviceLike = None) -> device:
    """One device: of an index, the accelerator's; of a type, the current one."""
    if what is None or isinstance(what, int):
        name = accelerator()
        return device(name, _scope.index.get(name, 0) if what is None else what)
    d = device(what)
    return d if d.index is not None else device(d.type, _scope.index.get(d.type, 0))


def handle_of(d: device) -> int:
    """The library's handle of one device."""
    assert d.index is not None
    key = (d.type, d.index)
    if key not in _handles:
        h = ctypes.c_uint64()
        check(_library.chorus_device_open(str(d).encode(), ctypes.byref(h)))
        _handles[key] = h.value
    return _handles[key]


def current_index(name: str) -> int:
    """The index of this thread's current device of a type."""
    return _scope.index.get(name, 0)


def set_current_index(name: str, index: int) -> None:
    """Set it."""
    _scope.index[name] = device(name, index).index or 0


# ---- kernels ----

class _Call:
    """An enqueued function of Python: what it's called with, and where; ``graph``: what it's a node of."""

    __slots__ = ("function", "operands", "stream", "graph", "__weakref__")

    def __init__(
        self,
        function: Callable[..., None],
        operands: list[tuple[torch.dtype, tuple[int, ...]]],
        stream: int,
        graph: weakref.ref[Graph] | None,
    ) -> None:
        self.function = function
        self.operands = operands
        self.stream = stream
        self.graph = graph


# By the number that the library passes: those that run once, and those of graphs, which hold them.
_calls: dict[int, _Call] = {}
_captured: weakref.WeakValueDictionary[int, _Call] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)
_failures: dict[int, BaseException] = {}  # by stream: what its work raised
_held: dict[int, list[object]] = {}  # by stream: what its work may be using, until it's known to be done


def _kernel(number: int, views: Any) -> int:
    call = _calls.pop(number, None) or _captured.get(number)
    if call is None:
        return 1
    try:
        call.function(*(_view(views[i], dtype, shape) for i, (dtype, shape) in enumerate(call.operands)))
    except BaseException as error:
        graph = None if call.graph is None else call.graph()
        replayed = None if graph is None else graph._replayed
        _failures[call.stream if replayed is None else replayed.handle] = error
        return 1
    return 0


def _view(at: int, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor over memory that somebody else keeps."""
    nbytes = dtype.itemsize
    for n in shape:
        nbytes *= n
    if nbytes == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer((ctypes.c_uint8 * nbytes).from_address(at), dtype=torch.uint8).view(dtype).view(shape)


_trampoline = _lib.KERNEL_FN(_kernel)


class Stream:
    """A queue of work of a device, like ``torch.Stream``.

    ``with stream:`` makes it, and its device, the current ones of the thread. ``priority``: 0, or more for what is
    more urgent.

    Attributes:
        device: the device. stream_id: identifies the stream among those of the device. priority: as the device has it.
    """

    def __init__(self, device: DeviceLike = None, *, priority: int = 0) -> None:
        self.device = resolve(device)
        h = ctypes.c_uint64()
        check(_library.chorus_stream_create(handle_of(self.device), priority, ctypes.byref(h)))
        self._adopt(h.value)
        weakref.finalize(self, _release_stream, h.value).atexit = False

    def _adopt(self, handle: int) -> None:
        self.handle = handle
        info = self._info()
        self.stream_id: int = info.id
        self.priority: int = info.priority
        _used.add(handle_of(self.device))

    @classmethod
    def _of(cls, d: device, handle: int) -> Self:
        """A stream that belongs to the library."""
        self = cls.__new__(cls)
        self.device = d
        self._adopt(handle)
        return self

    def _info(self) -> _lib.StreamInfo:
        info = _lib.StreamInfo(size=ctypes.sizeof(_lib.StreamInfo))
        check(_library.chorus_stream_get(self.handle, ctypes.byref(info)))
        return info

    @property
    def device_index(self) -> int:
        """The device's index."""
        return self.device.index or 0

    def _raise(self, status: int) -> None:
        try:
            check(status)
        except WorkFailedError as error:
            raise error from _failures.get(self.handle)
        _held.pop(self.handle, None)

    def hold(self, what: object) -> None:
        """Keep something until the stream's work is known to be done. Not in PyTorch."""
        _held.setdefault(self.handle, []).append(what)

    def query(self) -> bool:
        """Whether all work is done; raises what it failed with."""
        status = _library.chorus_stream_query(self.handle)
        if status == _lib.PENDING:
            return False
        self._raise(status)
        return True

    def synchronize(self) -> None:
        """Wait for the stream's work; raise what it failed with, each time until :meth:`recover`."""
        self._raise(_library.chorus_stream_synchronize(self.handle, 0))

    def recover(self) -> Error | None:
        """Wait, and take the error away, so that the stream runs work again; returns it. Not in PyTorch."""
        status = _library.chorus_stream_recover(self.handle, 0)
        if status == _lib.INTERRUPTED:
            raise KeyboardInterrupt
        if not status:
            _held.pop(self.handle, None)
            return None
        error = last_error(status)
        error.__cause__ = _failures.pop(self.handle, None)
        for number, call in list(_calls.items()):  # what was left out
            if call.stream == self.handle:
                _calls.pop(number, None)
        return error

    def is_capturing(self) -> bool:
        """Whether the stream's work becomes a graph."""
        return bool(self._info().capturing)

    def wait_stream(self, other: Stream) -> None:
        """Let later work wait for all that another stream has now."""
        check(_library.chorus_stream_wait_stream(self.handle, other.handle))

    def wait_event(self, event: Event) -> None:
        """Let later work wait for what an event stands for now."""
        check(_library.chorus_stream_wait_event(self.handle, event.handle))

    def record_event(self, event: Event | None = None) -> Event:
        """Let an event, a new one by default, stand for the work so far."""
        event = event or Event()
        event.record(self)
        return event

    def launch(self, function: Callable[..., None], *operands: DeviceTensor, name: str | None = None) -> None:
        """Enqueue a function of Python: a kernel of an emulated device, or, without operands, a function of the host.

        It's called on a thread of the library with a CPU tensor over the memory of each operand, which must not be kept.
        What it raises becomes the stream's error. In a capture it becomes a node. Not in PyTorch.
        """
        spans = (_lib.Span * len(operands))()
        for span, t in zip(spans, operands):
            span.data, span.bytes = t.data_ptr(), t.nbytes
        # Which of several captures it becomes a part of is not known here: all hold it, until the last lets go.
        graphs = list(_capturing) if self.is_capturing() else []
        graph = next((g for g in graphs if g._stream == self), graphs[-1] if graphs else None)
        shapes = [(t.dtype, t.shape) for t in operands]
        call = _Call(function, shapes, self.handle, None if graph is None else weakref.ref(graph))
        number = next(_numbers)
        kept: Any = _captured if graphs else _calls
        kept[number] = call
        what = name or str(getattr(function, "__name__", "kernel"))
        try:
            check(_library.chorus_stream_launch(self.handle, what.encode(), spans, len(operands), _trampoline, number))
        except BaseException:
            kept.pop(number, None)
            raise
        for graph in graphs:
            graph._calls.append(call)

    def __enter__(self) -> Self:
        outer = current_index(self.device.type), current_stream(self.device)
        set_stream(self)
        _scope.outer.append(outer)
        return self

    def __exit__(self, *exc: object) -> None:
        index, outer = _scope.outer.pop()
        set_stream(outer)
        set_current_index(self.device.type, index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.device, self.stream_id) == (other.device, other.stream_id)

    def __hash__(self) -> int:
        return hash((self.device, self.stream_id))

    def __repr__(self) -> str:
        return f"chorus.Stream device_type={self.device.type}, device_index={self.device_index}, stream_id={self.stream_id}"


def _release_stream(handle: int) -> None:
    _failures.pop(handle, None)
    _library.chorus_stream_release(handle)


def current_stream(what: DeviceLike = None) -> Stream:
    """The thread's current stream of a device."""
    d = resolve(what)
    stream = _scope.streams.get(d)
    if stream is None:
        h = ctypes.c_uint64()
        check(_library.chorus_stream_default(handle_of(d), ctypes.byref(h)))
        stream = _scope.streams[d] = Stream._of(d, h.value)
    return stream


def set_stream(stream: Stream) -> None:
    """Make a stream, and its device, the thread's current ones."""
    check(_library.chorus_stream_set_current(stream.handle))
    _scope.streams[stream.device] = stream
    _scope.index[stream.device.type] = stream.device_index


class Event:
    """A point in the order of a stream's work, like ``torch.Event``. It becomes one of the device that first records it.

    With ``interprocess`` another process of the host can make it its own, too, by :meth:`ipc_handle` and :meth:`from_ipc_handle`:
    it stands for what either recorded last.

    Attributes:
        device: the device of the first record; None before. event_id: 0 before.
    """

    def __init__(self, device: DeviceLike = None, *, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:  # fmt: skip
        if interprocess and enable_timing:
            raise InvalidArgumentError("chorus: an event of several processes keeps no time")
        self._timing = enable_timing
        self._where = device
        h = ctypes.c_uint64()
        flags = _lib.EVENT_INTERPROCESS if interprocess else _lib.EVENT_TIMING if enable_timing else 0
        check(_library.chorus_event_create(flags, ctypes.byref(h)))
        self._adopt(h.value)

    def _adopt(self, handle: int) -> None:
        self.handle = handle
        self._device: device_type | None = None
        weakref.finalize(self, _library.chorus_event_release, handle).atexit = False

    @classmethod
    def from_ipc_handle(cls, device: DeviceLike, ipc_handle: bytes) -> Self:
        """An event of another process, as one of a device here."""
        self = cls.__new__(cls)
        self._timing, self._where = False, device
        d = resolve(device)
        h = ctypes.c_uint64()
        check(_library.chorus_event_open(handle_of(d), ipc_handle, len(ipc_handle), ctypes.byref(h)))
        self._adopt(h.value)
        self._device = d
        return self

    def ipc_handle(self) -> bytes:
        """What another process gives to :meth:`from_ipc_handle`, good while the event is. A new event becomes one of its device."""
        d = self._device or resolve(self._where)
        handle, n = ctypes.create_string_buffer(64), ctypes.c_int64()
        check(_library.chorus_event_handle(self.handle, handle_of(d), handle, len(handle), ctypes.byref(n)))
        self._device = d
        return handle.raw[: n.value]

    @property
    def device(self) -> device_type | None:
        return self._device

    @property
    def event_id(self) -> int:
        info = _lib.EventInfo(size=ctypes.sizeof(_lib.EventInfo))
        check(_library.chorus_event_get(self.handle, ctypes.byref(info)))
        return int(info.id)

    def record(self, stream: Stream | None = None) -> None:
        """Stand for the work that a stream, the current one by default, has now."""
        stream = stream or current_stream()
        check(_library.chorus_event_record(self.handle, stream.handle))
        self._device = stream.device

    def wait(self, stream: Stream | None = None) -> None:
        """Let later work of a stream, the current one by default, wait."""
        (stream or current_stream()).wait_event(self)

    def query(self) -> bool:
        """Whether the work is done, which no work is."""
        return ready(_library.chorus_event_query(self.handle))

    def synchronize(self) -> None:
        """Wait for the work; raise what it failed with."""
        check(_library.chorus_event_synchronize(self.handle, 0))

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another; both must have happened."""
        if not (self._timing and end_event._timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        ms = ctypes.c_double()
        check(_library.chorus_event_elapsed(self.handle, end_event.handle, ctypes.byref(ms)))
        return ms.value

    def __repr__(self) -> str:
        at = "" if self._device is None else f" device_type={self._device.type}, device_index={self._device.index},"
        return f"chorus.Event{at} event_id={self.event_id}"


device_type = device  # within Event the name is the attribute's

_capturing: list[Graph] = []


class Graph:
    """Captured work, to be replayed, like ``torch.accelerator.Graph``::

        with stream, graph:   # captures what is enqueued on the current stream
            comm.all_reduce(x, ReduceOp.SUM, False)
        graph.replay()

    Memory that the work uses must be kept as long as the graph. Work of other streams joins by waiting for the captured one,
    which has to wait for it before the end.

    Graphs that share a ``pool``, that of :meth:`pool`, give each other what was freed in their captures; they are replayed in
    the order of these.
    """

    def __init__(
        self, keep_graph: bool = False, *, pool: tuple[int, int] | None = None, capture_error_mode: str = "default"
    ) -> None:
        if capture_error_mode not in ("default", "global", "thread_local", "relaxed"):
            raise InvalidArgumentError(f"chorus: there is no capture_error_mode {capture_error_mode!r}")
        self._pool = pool
        self._stream: Stream | None = None
        self._handle: int | None = None
        self._replayed: Stream | None = None
        self._calls: list[_Call] = []

    def capture_begin(self) -> None:
        """Begin to capture the current stream."""
        if self._stream is not None or self._handle is not None:
            raise InvalidArgumentError("chorus: the graph has been captured already; reset it first")
        stream = current_stream()
        if self._pool is None:
            check(_library.chorus_graph_begin(stream.handle))
        else:
            check(_library.chorus_graph_begin_in(stream.handle, (ctypes.c_uint64 * 2)(*self._pool)))
        self._stream = stream
        _capturing.append(self)

    def capture_end(self) -> None:
        """End the capture; the graph can be replayed."""
        self._end(discard=False)

    def _end(self, discard: bool) -> None:
        stream, self._stream = self._stream, None
        if stream is None:
            raise InvalidArgumentError("chorus: no capture was begun")
        _capturing.remove(self)
        h = ctypes.c_uint64()
        status = _library.chorus_graph_end(stream.handle, None if discard else ctypes.byref(h))
        if status or discard:
            self._calls = []
        check(status)
        self._handle = h.value or None
        if self._handle:
            self._finalizer = weakref.finalize(self, _release_graph, self._handle, self._calls)
            self._finalizer.atexit = False

    def instantiate(self) -> None:
        """Nothing: :meth:`capture_end` has done it."""
        self._captured()

    def _captured(self) -> int:
        if self._handle is None:
            raise InvalidArgumentError("chorus: the graph has not been captured")
        return self._handle

    def pool(self) -> tuple[int, int]:
        """The graph's memory pool, for another graph that is to share it."""
        ids = (ctypes.c_uint64 * 2)()
        check(_library.chorus_graph_pool(self._captured(), ids))
        return ids[0], ids[1]

    def enable_debug_mode(self) -> None:
        """Nothing: :meth:`debug_dump` needs no preparation."""

    def debug_dump(self, path: str) -> None:
        """Write a drawing of the graph's work to a file, in the language of Graphviz."""
        check(_library.chorus_graph_dump(self._captured(), os.fsencode(path)))

    def replay(self) -> None:
        """Enqueue a run of the graph on the current stream."""
        handle, stream = self._captured(), current_stream()
        self._replayed = stream  # before a function can fail
        check(_library.chorus_graph_replay(handle, stream.handle))

    def reset(self) -> None:
        """Wait for the replays and delete the graph; it can be captured again."""
        if self._handle is not None:
            if self._replayed is not None:
                self._replayed.synchronize()
            self._finalizer()
            self._handle = None
        self._calls = []

    def __enter__(self) -> None:
        self.capture_begin()

    def __exit__(self, *exc: object) -> None:
        self._end(discard=exc[0] is not None)


def _release_graph(handle: int, calls: list[_Call]) -> None:
    """Give a graph back. Its functions stay until what is enqueued has run: it's not known here where."""
    _library.chorus_graph_release(handle)
    if calls:
        for d in list(_used):  # other threads may use another one meanwhile
            _library.chorus_device_synchronize(d, _EXIT_NS)
    calls.clear()


def synchronize(what: DeviceLike = None) -> None:
    """Wait for all work of a device."""
    check(_library.chorus_device_synchronize(handle_of(resolve(what)), 0))


def _exit() -> None:
    """Wait until no work of a device can call Python any more."""
    if _calls or _captured:
        for d in list(_used):
            if _library.chorus_device_synchronize(d, _EXIT_NS) == _lib.Status.TIMEOUT:
                warnings.warn("chorus: work of a device is still under way at the interpreter's exit", RuntimeWarning, stacklevel=1)  # fmt: skip


atexit.register(_exit)
