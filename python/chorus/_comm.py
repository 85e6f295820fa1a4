"""The communicator under both PyTorch interfaces, and its asynchronous operations.

Tensors are addresses and counts here. The interfaces keep them alive and decide what
to do with those that are not contiguous.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import ctypes
import dataclasses
import queue
import struct
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C._distributed_c10d import Store
from torch.autograd import profiler

from chorus import _devices, _fastcall, _lib, _profiled, _sites, _store, _streams
from chorus._devices import named
from chorus.errors import Error, InvalidArgumentError, MismatchError, TimeoutError, check, invalid, last_error

_submit = _lib.submit
_site = _fastcall.site
_work_wait = _lib.library.chorus_work_wait
_work_test = _lib.library.chorus_work_test
_work_cancel = _lib.library.chorus_work_cancel
_work_expire = _lib.library.chorus_work_expire
_work_release = _lib.library.chorus_work_release
_pack_op = _lib.OP.pack_into
_OP_SIZE = _lib.OP.size
_RECV, _BATCH = _lib.RECV, 0

# How long a background thread waits before it checks whether the interpreter is about to exit.
_LOOK_NS = 50_000_000
# How long the interpreter's exit waits for operations that were issued before it.
_EXIT_NS = 2_000_000_000

exiting = threading.Event()
_communicators: weakref.WeakSet[Communicator] = weakref.WeakSet()
# The operations under way, by handle: they keep their tensors, and their communicator, alive.
_live: dict[int, Pending] = {}
_watchers: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class _Slot(threading.local):
    """A chorus_op and a handle for each thread, so that calls allocate none; whether the thread watches operations."""

    def __init__(self) -> None:
        self.watches = False
        self.op = ctypes.create_string_buffer(_OP_SIZE)
        self.op_at = ctypes.byref(self.op)
        self.work = ctypes.c_uint64()
        self.work_at = ctypes.byref(self.work)


_slot = _Slot()


class Pending:
    """An asynchronous operation.

    It holds the tensors of the operation until the operation is done. The communicator keeps it, so the
    caller may drop it. All methods may be called from any thread.

    Attributes:
        done: whether the operation is known to be over; see :meth:`test`.
        error: why it failed, once it's done.
        source: the rank whose message a receive got, once it's done; -1 otherwise.
    """

    __slots__ = ("comm", "handle", "kind", "keep", "after", "done", "error", "source", "device", "_callbacks")

    def __init__(self, comm: Communicator, handle: int, kind: int, keep: object, after: Callable[[], None] | None):
        self.comm = comm
        self.handle = handle
        self.kind = kind
        self.keep = keep
        self.after = after
        self.done = False
        self.error: BaseException | None = None
        self.source = -1
        self.device: torch.device | None = None  # of the tensors; None: the host's
        self._callbacks: list[Callable[[Pending], None]] | None = None

    def wait(self, timeout_ns: int = -1, overdue: bool = False) -> None:
        """Wait until the operation is done, for ``timeout_ns`` at most if that isn't negative.

        Raises the operation's error; TimeoutError if this wait's time is over, after which the operation goes on.
        With ``overdue``, an operation that a backend's library has on a stream counts as overdue then: that breaks the
        communicator, and the error names the missing ranks. An interrupt cancels the operation: it may have no other
        waiter, and would take the message of a later receive.
        """
        if not self.done:
            try:
                status = _work_wait(self.handle, timeout_ns)
                if status == _lib.INTERRUPTED:
                    raise KeyboardInterrupt
            except BaseException:  # raised by the program's signal handler
                self._cancel()
                raise
            if status == _lib.PENDING and overdue:
                ended = _work_expire(self.handle, timeout_ns)
                status = ended if ended != _lib.UNSUPPORTED else status
            if status == _lib.PENDING:
                raise TimeoutError(
                    f"chorus: rank {self.comm.rank} of {self.comm.name!r}: a wait of {timeout_ns / 1e9:g} s is over; the operation goes on",  # noqa: E501
                    comm=self.comm.name,
                    reporter=self.comm.rank,
                    elapsed=timeout_ns / 1e9,
                )
            self._ended(status)
        if self.error is not None:
            raise self.error.with_traceback(None)

    def test(self) -> bool:
        """Whether the operation is done."""
        if not self.done:
            status = _work_test(self.handle)
            if status == _lib.PENDING:
                return False
            self._ended(status)
        return True

    def when_done(self, call: Callable[[Pending], None]) -> None:
        """Call ``call(self)`` once the operation is done: here, or on a background thread."""
        with self.comm.ending:
            if not self.done:
                if self._callbacks is None:
                    self._callbacks = []
                    self.comm.watch(self)
                self._callbacks.append(call)
                return
        call(self)

    def _ended(self, status: int) -> None:
        """Record the end of the operation. Only the first call has an effect."""
        with self.comm.ending:
            if self.done:
                return
            if status:
                self.error = self.comm.explained(last_error(status))
            elif self.kind <= _RECV:
                info = _lib.WorkInfo(size=ctypes.sizeof(_lib.WorkInfo))
                if self.kind == _RECV and not _lib.library.chorus_work_get(self.handle, ctypes.byref(info)):
                    self.source = info.source
            if self.after is not None and not status:
                try:
                    self.after()
                except Exception as error:  # for the caller of wait, not for the thread that saw the end
                    self.error = error
            _live.pop(self.handle, None)
            self._release()
            self.keep = self.after = None
            self.done = True
            callbacks, self._callbacks = self._callbacks, None
        for call in callbacks or ():
            call(self)


    def _cancel(self) -> None:
        _work_cancel(self.handle)

    def _release(self) -> None:
        _work_release(self.handle)


def _finished(after: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """``after`` on any thread, whose work on the device every stream finds done."""

    def run() -> None:
        stream = torch.Stream(device)
        with stream:
            after()
        stream.synchronize()

    return run


_nothing = contextlib.nullcontext()


class DevicePending(Pending):
    """An asynchronous operation on the memory of a device, which streams may wait for at any time."""

    __slots__ = ("_end", "_behind")
    device: torch.device

    def __init__(
        self,
        comm: Communicator,
        handle: int,
        kind: int,
        keep: object,
        device: torch.device,
        after: Callable[[], None] | None,
    ):
        foreign = _streams.foreign(device)
        # The library doesn't reuse its own memory before the operation is done. It can't hold back another allocator's.
        super().__init__(comm, handle, kind, keep if foreign else None, None)
        self.device = device
        # The stream that it was issued on, if PyTorch makes the device's streams.
        self._behind = _streams.natives[device.type](device) if foreign else None
        self._end: torch.Event | None = None  # the end of `after`, on a stream of its own
        if after is not None:
            with self.behind() as stream:
                after()
                self._end = stream.record_event()
        if foreign and not _streams.capturing(device):
            _holding.put(self)

    def join(self) -> None:
        """Let the current stream's later work wait for the operation; raise its error if it has failed by now."""
        if self._end is not None:
            torch.accelerator.current_stream(self.device).wait_event(self._end)
        else:
            check(_fastcall.wait_for(self.handle, self.device))
        # PyTorch's allocator reuses memory in the order of a stream, so the host need not see the end.
        if self._behind is not None and _streams.natives[self.device.type](self.device) == self._behind:
            self.keep = None

    def behind(self) -> torch.Stream:
        """A stream, to be entered, whose work comes after the operation."""
        stream = torch.Stream(self.device)
        with stream:
            self.join()
        return stream

    def wait(self, timeout_ns: int = -1, overdue: bool = False) -> None:
        super().wait(timeout_ns, overdue)
        if self._end is not None:
            self._end.synchronize()

    def test(self) -> bool:
        return super().test() and (self._end is None or self._end.query())

    def _cancel(self) -> None:
        pass  # it's the stream's operation, which goes on

    def _release(self) -> None:
        pass  # streams may still wait for it

    def __del__(self) -> None:
        _work_release(self.handle)


@dataclasses.dataclass(slots=True, eq=False)
class Operation:
    """A collective or a message on memory, for :meth:`Communicator.run`: the fields of chorus_op. :mod:`chorus._ops`
    makes it of tensors.

    Attributes:
        ins, outs: lists of buffers: address, count, address, count, and so on.
        keep: what must live until the operation is done: its tensors, the input first.
        after: called once the operation has succeeded, before it counts as done.
        device: that of the tensors; None is the host.
    """

    kind: int
    dtype: int = 0
    reduction: int = 0
    in_: int = 0
    in_count: int = 0
    out: int = 0
    out_count: int = 0
    root: int = 0
    peer: int = 0
    tag: int = 0
    ins: list[int] | None = None
    outs: list[int] | None = None
    in_splits: Sequence[int] | None = None
    out_splits: Sequence[int] | None = None
    factor: float = 0.0
    factor_data: int = 0
    timeout_ns: int = 0
    hints: dict[str, str] | None = None
    keep: object = None
    after: Callable[[], None] | None = None
    device: torch.device | None = None


# Operations to issue as one: each as chorus_op, the memory to which that points, and the operation itself.
Batch = list[tuple[bytes, object, Operation]]


def _ranks(ranks: Sequence[int]) -> ctypes.Array[ctypes.c_int32]:
    """Ranks as a C array. The library refuses ranks out of range, and tells the other ranks. A rank too large for
    int32 becomes one that is out of range, too."""
    return (ctypes.c_int32 * len(ranks))(*(max(-1, min(r, 2**31 - 1)) for r in ranks))


class Communicator:
    """One rank's part in a group of ranks: chorus_comm.

    All methods may be called from any thread. Collectives run one at a time, in
    the order in which they were issued.

    Attributes:
        rank, size, name, backend: as of the communicator.
        local_size: how many of the ranks are on this rank's host; 0 if that isn't known.
        finalized: whether finalize was called.
        ranks: its members' ranks in the job, if those differ; for profiles.
        group_name: PyTorch's name of its group; for profiles.
        issued: how many collectives this rank has issued.
        blocking: whether the host waits for every synchronous operation on the device; see :meth:`block`.
        called_back: whether callbacks of other operations' futures have issued collectives.
        store_keys: the keys of the store by which the ranks have met.
        exposed: keeps the memory of open windows alive, by handle: peers write there even after this process has
            dropped the window.
        submit: runs a synchronous collective on plain tensors faster than :meth:`run`, while no batch is open; see
            :func:`chorus._fastcall.submit_of`. Its result is for :meth:`handled`.
    """

    blocking = False

    def __init__(self, handle: int) -> None:
        info = _lib.CommInfo(size=ctypes.sizeof(_lib.CommInfo))
        check(_lib.library.chorus_comm_get(handle, ctypes.byref(info)))
        self.handle = handle
        self._argument = _lib.ARGUMENT(handle)
        self.rank: int = info.rank
        self.size: int = info.world_size
        self.local_size: int = info.local_size
        self.name: str = info.name.decode()
        self.backend: str = info.backend.decode()
        # The device whose tensors the operations take beside the host's, and its number in the library.
        self.device, self._place = _devices.device_named(info.device.decode())
        self._host = self.device is None  # whether it takes the host's tensors
        self._prepare()
        self.ranks: list[int] = []
        self.group_name = ""
        self._open_store = contextlib.ExitStack()  # holds the store open for splits
        self.issued = 0
        self.called_back = False
        self.store_keys: set[str] = set()
        self.exposed: dict[int, object] = {}
        self.ending = threading.RLock()
        self._batch: Batch | None = None
        self._watched: queue.SimpleQueue[Pending | None] | None = None
        self.finalized = False
        _communicators.add(self)

    @classmethod
    def create(
        cls,
        rank: int,
        size: int,
        store: Store | None,
        *,
        name: str = "world",
        timeout_ns: int = 0,
        hints: dict[str, str] | None = None,
        abort_on_error: int | None = None,
        backend: str | None = None,
        device: torch.device | None = None,
        job_ranks: Sequence[int] = (),
        job_size: int = 0,
        keep_store: bool = False,
        again: bool = False,
        beside: Communicator | None = None,
    ) -> Communicator:
        """Join a communicator. All ranks call it; it waits until they have found each other.

        ``job_ranks``: its members' ranks in a larger job, for flight records. ``device``: for backends that take no
        tensors of the host. ``keep_store``: keep the store for splits. ``again``: earlier communicators, ended by now,
        may have used its name on the store. ``beside``: a communicator of the same ranks, or more; a failure of one of
        the two breaks both.
        """
        array, n_hints = _lib.hints(hints)
        handle = ctypes.c_uint64()
        with contextlib.ExitStack() as stack:
            used: set[str] = set()
            opened = stack.enter_context(_store.opened(store, used))
            options = _lib.CommOptions(
                size=ctypes.sizeof(_lib.CommOptions),
                rank=rank,
                world_size=size,
                abort_on_error=-1 if abort_on_error is None else int(abort_on_error),
                backend=backend.encode() if backend else None,
                device=named(device).encode() if device is not None else None,
                name=name.encode(),
                store=opened,
                timeout_ns=timeout_ns,
                hints=array,
                n_hints=n_hints,
                job_size=job_size,
                job_ranks=_ranks(job_ranks) if job_size else None,
                name_again=int(again),
                beside=beside.handle if beside is not None else 0,
            )
            check(_lib.library.chorus_comm_create(ctypes.byref(options), ctypes.byref(handle)))
            comm = cls(handle.value)
            comm.store_keys, comm.ranks = used, list(job_ranks)
            if keep_store:
                comm._open_store = stack.pop_all()
        return comm

    def split(
        self,
        ranks: Sequence[int],
        *,
        name: str | None = None,
        timeout_ns: int = 0,
        hints: dict[str, str] | None = None,
        beside: Communicator | None = None,
    ) -> Communicator | None:
        """A communicator of some of this one's ranks, in the given order. Every rank calls it with the ranks of its
        own part; a rank that passes no ranks gets None. ``beside`` is as in :meth:`create`."""
        array, n_hints = _lib.hints(hints)
        members = _ranks(ranks) if ranks else None
        options = _lib.SplitOptions(
            size=ctypes.sizeof(_lib.SplitOptions),
            n_ranks=len(ranks),
            ranks=members,
            name=name.encode() if name else None,
            timeout_ns=timeout_ns,
            hints=array,
            n_hints=n_hints,
            beside=beside.handle if beside is not None else 0,
        )
        handle = ctypes.c_uint64()
        check(_lib.library.chorus_comm_split(self.handle, ctypes.byref(options), ctypes.byref(handle)))
        return self._alike(handle.value) if handle.value else None

    def _alike(self, handle: int) -> Communicator:
        """The communicator of a handle; it's blocking if this one is."""
        comm = Communicator(handle)
        if self.blocking:
            comm.block()
        return comm

    def handle_text(self) -> str:
        """This rank's handle, by which members of a new world find it."""
        text = ctypes.c_char_p()
        check(_lib.library.chorus_comm_handle(self.handle, ctypes.byref(text)))
        return (text.value or b"").decode()

    def reconfigure(
        self,
        uuid: str,
        handles: Sequence[str],
        *,
        any_order: bool = False,
        timeout_ns: int = 0,
        hints: dict[str, str] | None = None,
    ) -> Communicator:
        """A communicator of the processes whose handles are listed. All of them call this; it finalizes this one."""
        array, n_hints = _lib.hints(hints)
        options = _lib.ReconfigureOptions(
            size=ctypes.sizeof(_lib.ReconfigureOptions),
            n_handles=len(handles),
            uuid=uuid.encode(),
            handles=(ctypes.c_char_p * len(handles))(*(h.encode() for h in handles)),
            any_order=int(any_order),
            n_hints=n_hints,
            hints=array,
            timeout_ns=timeout_ns,
        )
        return self._renewed(_lib.library.chorus_comm_reconfigure, options)

    def regroup(
        self,
        *,
        without: Sequence[int] = (),
        newcomers: Sequence[str] = (),
        at_least: int = 0,
        patience_ns: int = 0,
        timeout_ns: int = 0,
    ) -> Communicator:
        """A communicator of the surviving ranks, which all call this, and of newcomers. It finalizes this one."""
        options = _lib.RegroupOptions(
            size=ctypes.sizeof(_lib.RegroupOptions),
            n_without=len(without),
            without=_ranks(without),
            with_=(ctypes.c_char_p * len(newcomers))(*(h.encode() for h in newcomers)),
            n_with=len(newcomers),
            at_least=at_least,
            patience_ns=patience_ns,
            timeout_ns=timeout_ns,
        )
        return self._renewed(_lib.library.chorus_comm_regroup, options)

    def _renewed(self, call: Callable[..., int], options: object) -> Communicator:
        handle = ctypes.c_uint64()
        check(call(self.handle, ctypes.byref(options), ctypes.byref(handle)))  # type: ignore[arg-type]
        self.finalized = True
        self.exposed.clear()
        if self._watched is not None:
            self._watched.put(None)
        return self._alike(handle.value)

    def bind(self, device: torch.device) -> None:
        """Take tensors of a device from now on, beside the host's. Each rank binds its own device, and only one."""
        place = _devices.place_of(device)
        check(_lib.library.chorus_comm_bind(self.handle, place))
        self.device, self._place = device, place
        self._prepare()

    def leave_host(self) -> None:
        """Leave the host's tensors to another backend: :attr:`submit` takes none of them."""
        self._host = False
        self._prepare()

    def block(self) -> None:
        """Have the host wait for every operation on the device, also where only a stream needs to."""
        self.blocking = True
        self._prepare()

    def _prepare(self) -> None:
        wanted = _fastcall.submit_of(self.handle, self._host, self.device)
        self.submit = wanted if not self.blocking else _fastcall.otherwise

    def _on(self, device: torch.device | None) -> contextlib.AbstractContextManager[None]:
        """A context for calls on a device, in which PyTorch's current stream is the library's, too."""
        return _streams.current(device) if _streams.natives and device is not None else _nothing

    def place(self, device: torch.device | None) -> int:
        """The number of a tensor's device, None for the host. The communicator is bound to the device from then on."""
        if device is None:
            return _lib.HOST
        if device != self.device:
            self.bind(device)
        return self._place

    def handled(self, status: int) -> bool:
        """Whether :attr:`submit` has run the operation; raises the operation's error."""
        if status < 0:
            return False
        self.issued += 1
        if status:
            raise self.explained(_failure(status))
        return True

    def run(self, op: Operation, asynchronous: bool, batch: Batch | None = None) -> Pending | None:
        """Run an operation, or issue it and return its Pending.

        On a device it's enqueued, and so is the work of ``op.after``, unless the process can't touch the memory. With a
        ``batch`` the operation is put there, for :meth:`issue`.
        """
        site = _site(2)
        kind, device = op.kind, op.device
        slot = _slot
        memory = self._pack(op, site, slot.op)
        if kind > _RECV:
            self.issued += 1
            if slot.watches:
                self.called_back = True
        if batch is None:
            batch = self._batch
        if batch is not None:
            batch.append((slot.op.raw, memory, op))
            return None
        event = _profiled.nothing
        if profiler._is_profiler_enabled:
            event = self._event(op, asynchronous)
        if not asynchronous:
            with event, self._on(device):
                status = _submit(self._argument, slot.op_at, None)
            if status:
                raise self.explained(_failure(status))
            if op.after is not None:
                op.after()
            return None
        with event, self._on(device):
            status = _submit(self._argument, slot.op_at, slot.work_at)
        if status:
            raise self.explained(last_error(status))
        return self._issued(slot.work.value, kind, op.keep, op.after, event, device)

    def _pack(self, op: Operation, site: int, into: ctypes.Array[ctypes.c_char]) -> object:
        """Write an operation as chorus_op. The result must live until the library has read it."""
        place = self.place(op.device)
        ins, outs, in_splits, out_splits = op.ins, op.outs, op.in_splits, op.out_splits
        memory: Any = None
        ins_at = outs_at = in_splits_at = out_splits_at = n = 0
        if ins is not None or outs is not None or in_splits is not None:
            # Addresses and counts are all 64 bits wide, so one array holds them.
            values = [*(ins or ()), *(outs or ()), *(in_splits or ()), *(out_splits or ())]
            try:
                packed = struct.pack(f"={len(values)}q", *values)
            except struct.error:
                splits = [*(in_splits or ()), *(out_splits or ())]
                raise self._out_of_range(op.kind, 64, **{f"split {i}": n for i, n in enumerate(splits)}) from None
            memory = ctypes.create_string_buffer(packed, 8 * len(values) or 1)
            at = ctypes.addressof(memory)
            n = self.size
            if ins is not None:
                ins_at, at = at, at + 8 * len(ins)
                n = len(ins) // 2
            if outs is not None:
                outs_at, at = at, at + 8 * len(outs)
                n = len(outs) // 2
            if in_splits is not None:
                in_splits_at, at = at, at + 8 * len(in_splits)
                out_splits_at = at
                n = len(in_splits)
        hints_at = n_hints = 0
        if op.hints:
            array, n_hints = _lib.hints(op.hints)
            hints_at, memory = ctypes.addressof(array), (array, memory)
        try:
            _pack_op(into, 0, _OP_SIZE, op.kind, op.dtype, op.reduction, op.in_, op.in_count, op.out, op.out_count,
                op.root, op.peer, op.tag, n, ins_at, outs_at, in_splits_at, out_splits_at, op.factor, op.factor_data,
                op.timeout_ns, hints_at, n_hints, 0, 0, site, 0, place)  # fmt: skip
        except struct.error:
            raise self._out_of_range(op.kind, 32, root=op.root, peer=op.peer, tag=op.tag) from None
        return memory

    def _event(self, op: Operation, asynchronous: bool) -> _profiled.Event:
        """The profiler's event of an operation."""
        of_nccl = None
        if op.device is not None and self.backend in _devices.LIBRARIES:
            given, taken = op.in_count + sum((op.ins or [])[1::2]), op.out_count + sum((op.outs or [])[1::2])
            of_nccl = _profiled.param_comms(
                op.kind, op.keep, asynchronous, self, (given, taken), (op.in_splits, op.out_splits), op.peer
            )
        return _profiled.operation(
            op.kind, op.keep, asynchronous, self.name, self.rank, self.issued, param_comms=of_nccl, root=op.root,
            peer=op.peer, tag=op.tag,
        )  # fmt: skip

    def begin(
        self, kind: int, reduction: int, root: int, timeout_ns: int, callers: int, tensor: torch.Tensor
    ) -> Pending | None:
        """Issue a collective on a plain tensor faster than :meth:`run`, through :attr:`submit`, while no batch is open.
        None means that nothing was done. The search for the call site begins ``callers`` above this method's caller."""
        handle = self.submit(kind, reduction, root, timeout_ns, callers + 1, True, tensor)
        if handle == _fastcall.OTHERWISE:
            return None
        self.issued += 1
        if _slot.watches:
            self.called_back = True
        if handle < 0:
            raise self.explained(last_error(-1 - handle))
        device = None if tensor.is_cpu else self.device
        return self._issued(handle, kind, tensor, None, _profiled.nothing, device)

    def _issued(
        self,
        handle: int,
        kind: int,
        keep: object,
        after: Callable[[], None] | None,
        event: _profiled.Event,
        device: torch.device | None = None,
    ) -> Pending:
        if device is not None and not self._by_host(device):
            pending: Pending = DevicePending(self, handle, kind, keep, device, after)
            if event is not _profiled.nothing:
                pending.when_done(event.end)
            return pending
        if after is not None and device is not None:
            after = _finished(after, device)
        pending = Pending(self, handle, kind, keep, after)
        pending.device = device
        _live[handle] = pending
        if event is not _profiled.nothing:
            pending.when_done(event.end)
        elif after is not None:  # it must be called even if the caller never waits
            self.watch(pending)
        if len(_live) >= _sweep_at[0]:
            sweep()
            _sweep_at[0] = 64 + 2 * len(_live)
        return pending

    def _by_host(self, device: torch.device) -> bool:
        """Whether the host carries out operations on the device's memory, of which no stream knows."""
        carries = self.backend not in _devices.LIBRARIES and _devices.untouchable(device)
        return carries and not _streams.capturing(device)

    def invalid(self, op: str, detail: str) -> InvalidArgumentError:
        """The exception for refused arguments of an operation on this rank."""
        return invalid(self.name, self.rank, op, detail)

    def explained(self, error: BaseException) -> BaseException:
        """An error of one of this communicator's operations, with a note on causes that the library can't know."""
        if isinstance(error, MismatchError) and self.called_back:
            why = "callbacks of futures issued some of this group's operations, perhaps in another order on each rank"
            error.args = (f"{error} ({why}: see chorus.in_order)",)
        return error

    def _out_of_range(self, kind: int, bits: int, **values: Any) -> InvalidArgumentError:
        """The exception for the value that isn't an integer of ``bits`` bits."""
        most = 2 ** (bits - 1)
        for name, value in values.items():
            if not isinstance(value, int) or not -most <= value < most:
                what = "out of range" if isinstance(value, int) else "no integer"
                return self.invalid(_lib.OPERATIONS[kind], f"{name} {value!r} is {what}")
        return self.invalid(_lib.OPERATIONS[kind], "an argument is out of range")

    def begin_batch(self) -> None:
        """Collect the operations that follow, to issue them as one."""
        if self._batch is not None:
            raise self.invalid("batch", "operations are already being collected into one")
        self._batch = []

    def drop_batch(self) -> None:
        """Forget the operations collected since :meth:`begin_batch`."""
        self._batch = None

    def end_batch(self, asynchronous: bool) -> Pending | None:
        """Issue the operations collected since :meth:`begin_batch`; None if there are none."""
        batch, self._batch = self._batch, None
        if batch is None:
            raise self.invalid("batch", "none was begun")
        return self.issue(batch, asynchronous) if batch else None

    def issue(self, batch: Batch, asynchronous: bool, timeout_ns: int = 0) -> Pending | None:
        """Run the operations of a batch as one, or issue them; there must be one at least."""
        ops = ctypes.create_string_buffer(b"".join(packed for packed, *_ in batch), _OP_SIZE * len(batch))
        keep = [op.keep for *_, op in batch]
        afters = [op.after for *_, op in batch if op.after is not None]
        device = batch[0][2].device
        if any(op.device != device for *_, op in batch):
            raise self.invalid("batch", "some tensors are on a device, and some on the host")

        def after() -> None:
            for call in afters:
                call()

        slot = _slot
        submit = _lib.library.chorus_submit_batch
        event = _profiled.nothing
        if profiler._is_profiler_enabled:
            event = _profiled.operation(_BATCH, keep, asynchronous, self.name, self.rank, self.issued)
        with event, self._on(device):
            status = submit(
                self.handle, ctypes.addressof(ops), len(batch), timeout_ns, slot.work_at if asynchronous else None
            )
            if status:
                raise _failure(status)
        if asynchronous:
            return self._issued(slot.work.value, _BATCH, keep, after if afters else None, event, device)
        after()
        return None

    def watch(self, pending: Pending) -> None:
        """Have a background thread record the operation's end."""
        # Messages complete in any order, and a callback of a finished operation may wait for the next one: both need
        # threads of their own.
        if 0 < pending.kind <= _RECV or _slot.watches:
            start(lambda: _watch(pending), f"chorus-{self.name}")
            return
        with self.ending:
            if self._watched is None:
                watched: queue.SimpleQueue[Pending | None] = queue.SimpleQueue()
                self._watched = watched
                start(lambda: _watch_all(watched), f"chorus-{self.name}")
            self._watched.put(pending)

    def failure(self) -> Error | None:
        """Why the communicator is broken; None if it isn't."""
        status = _lib.library.chorus_comm_status(self.handle)
        return last_error(status) if status else None

    def info(self) -> _lib.CommInfo:
        """The library's facts about the communicator."""
        info = _lib.CommInfo(size=ctypes.sizeof(_lib.CommInfo))
        check(_lib.library.chorus_comm_get(self.handle, ctypes.byref(info)))
        return info

    def set_timeout(self, timeout_ns: int) -> None:
        """Change the timeout of the operations issued from now on."""
        check(_lib.library.chorus_comm_set_timeout(self.handle, timeout_ns))

    def set_hints(self, values: dict[str, str]) -> None:
        """Replace the hints of the operations issued from now on."""
        array, n = _lib.hints(values)
        check(_lib.library.chorus_comm_set_hints(self.handle, array, n))

    def suspend(self) -> None:
        """Release the device memory that the backend's library holds, until :meth:`resume`. All ranks call both."""
        check(_lib.library.chorus_comm_suspend(self.handle))

    def resume(self) -> None:
        """Allocate again the memory that :meth:`suspend` has released."""
        check(_lib.library.chorus_comm_resume(self.handle))

    def abort(self, reason: str) -> None:
        """Break the communicator on all ranks immediately. It doesn't wait."""
        check(_lib.library.chorus_comm_abort(self.handle, reason.encode()))

    def finalize(self, timeout_ns: int = 0) -> None:
        """End this rank's part, after the operations issued before. Once the interpreter's exit has ended it, that does
        nothing."""
        if self.finalized and exiting.is_set():
            return
        self.finalized = True
        check(_lib.library.chorus_comm_finalize(self.handle, timeout_ns))
        self.exposed.clear()
        self._open_store.close()

    def __del__(self, over: Callable[[], bool] = exiting.is_set) -> None:
        # Late in Python's shutdown this module's globals may be None.
        # A communicator that was dropped without finalize is finalized in the background.
        if not over() and hasattr(self, "finalized"):
            if self._watched is not None:
                self._watched.put(None)
            _lib.library.chorus_comm_release(self.handle)
            self._open_store.close()


def _failure(status: int) -> BaseException:
    """The exception of a synchronous operation for a status that isn't OK."""
    return KeyboardInterrupt() if status == _lib.INTERRUPTED else last_error(status)


_sweep_at = [64]


def sweep() -> None:
    """Release the tensors of finished operations without a waiter.

    Issuing operations does this now and then; tests call it directly.
    """
    for pending in list(_live.values()):
        pending.test()


def start(target: Callable[[], None], name: str) -> None:
    """Run a function on a background thread. It must check by itself whether the interpreter is exiting."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    _watchers.add(thread)
    thread.start()


def _watch(pending: Pending) -> None:
    _slot.watches = True
    while not pending.done and not exiting.is_set():
        status = _work_wait(pending.handle, _LOOK_NS)
        if status != _lib.PENDING:
            pending._ended(status)


def _watch_all(watched: queue.SimpleQueue[Pending | None]) -> None:
    while (pending := watched.get()) is not None:
        _watch(pending)
        del pending  # else the communicator would live as long as this thread


class _Holding:
    """Operations on memory of other allocators that no stream has waited for yet: they keep their tensors until done.

    A thread polls the first of each communicator. A late release costs only memory, and an operation that a stream
    waits for has released its tensors already.
    """

    PAUSE = 0.02

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lists: dict[Communicator, collections.deque[DevicePending]] = {}
        self._some = threading.Event()
        self._started = False

    def put(self, pending: DevicePending) -> None:
        with self._lock:
            self._lists.setdefault(pending.comm, collections.deque()).append(pending)
            if self._some.is_set():
                return
            if not self._started:
                self._started = True
                start(self._run, "chorus-holding")
            self._some.set()

    def _run(self) -> None:
        while not exiting.is_set():
            if self._some.wait(_LOOK_NS / 1e9):
                exiting.wait(self.PAUSE)
                self._look()

    def _look(self) -> None:
        with self._lock:
            lists = list(self._lists.values())
        for held in lists:
            while held and (held[0].keep is None or held[0].test()):
                held.popleft()
        with self._lock:
            for comm in [comm for comm, held in self._lists.items() if not held]:
                del self._lists[comm]
            if not self._lists:
                self._some.clear()


_holding = _Holding()


def _exit() -> None:
    """End operations, and the threads that wait for them, before the interpreter exits.

    It finalizes communicators that the program didn't, so that their peers report that this rank has left, not that it
    was lost.
    """
    exiting.set()
    why = _sites.tell_exception()
    reason = why.encode(errors="replace") if why else None
    for comm in list(_communicators):
        if not comm.finalized:
            _lib.library.chorus_comm_leave(comm.handle, reason, _EXIT_NS)
            comm.finalized = True
        if comm._watched is not None:
            comm._watched.put(None)
    for thread in list(_watchers):
        thread.join(timeout=1)


atexit.register(_exit)
