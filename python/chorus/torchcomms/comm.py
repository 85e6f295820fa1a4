"""The communicator of the torchcomms interface."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import operator
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import HashStore, PrefixStore, Store
from torch.autograd import profiler

from chorus import _lib, _nccl, memory
from chorus._comm import Communicator
from chorus._devices import LIBRARIES, served
from chorus.errors import InvalidArgumentError, UnsupportedError, invalid
from chorus.process_group import ProcessGroup, ours, timeout_ns
from chorus.torchcomms import _backend, _hints, _launcher, _layout
from chorus.torchcomms._backend import TorchCommBackend
from chorus.torchcomms._hook_args import POST, PRE, Hooks, OpName, RemovableHandle
from chorus.torchcomms._native import NativeBackend
from chorus.torchcomms._types import (
    BatchP2POptions,
    CommOptions,
    NodeRankLayout,
    Options,
    P2POp,
    P2POpType,
    ReduceOp,
)
from chorus.torchcomms._window import TorchCommWindow
from chorus.torchcomms._work import DONE, TorchWork, WorkWrapper

_Tensor = torch.Tensor
_Tensors = list[torch.Tensor]
_Hints = Mapping[str, str] | None

# Numbers of operations, for hooks: one sequence for the whole process. finalize has a number of its own.
_op_ids = itertools.count()
_FINALIZE_ID = (1 << 64) - 1
_ALL_REDUCE = _lib.ALL_REDUCE
_unnamed = itertools.count()
_open: weakref.WeakSet[TorchComm] = weakref.WeakSet()
# Operators of graphs take communicators by a text, which is a constant of the graph.
by_key: weakref.WeakValueDictionary[str, TorchComm] = weakref.WeakValueDictionary()
_keys = itertools.count()
_of_groups: weakref.WeakKeyDictionary[ProcessGroup, TorchComm] = weakref.WeakKeyDictionary()


class MemAllocator:
    """Gives memory that peers on this host can map, the fastest for a communicator's tensors.

    It's the memory of :func:`chorus.empty`, :func:`chorus.zeros` and :func:`chorus.shared_memory`; ``with`` it, new
    CPU tensors are in such memory::

        with comm.get_mem_allocator():
            x = torch.zeros(1024)

    The allocator of a communicator on a device gives tensors there. If the backend's library has an allocator, such as
    NCCL's ncclMemAlloc, tensors use the library's memory, which the communicator registers.
    """

    def __init__(self, device: torch.device, pool: Any = None) -> None:
        self._entered: list[contextlib.ExitStack] = []
        self._device = device
        self._pool = pool  # a MemPool of the device's module
        on_cpu = device.type == "cpu"
        self.empty: Callable[..., Any] = memory.empty if on_cpu else functools.partial(self._make, torch.empty)
        self.zeros: Callable[..., Any] = memory.zeros if on_cpu else functools.partial(self._make, torch.zeros)

    def _make(self, make: Callable[..., Any], *size: Any, **more: Any) -> Any:
        with self:
            return make(*size, device=self._device, **more)

    def __enter__(self) -> MemAllocator:
        entered = contextlib.ExitStack()
        entered.enter_context(memory.shared_memory() if self._device.type == "cpu" else self._device)
        if self._pool is not None:
            entered.enter_context(torch.get_device_module(self._device).use_mem_pool(self._pool, self._device))
        self._entered.append(entered)
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered.pop().__exit__(*error)


def get_mem_allocator(backend: str, device: torch.device | None = None) -> MemAllocator:
    """The allocator of a backend's memory, on a device.

    Raises :class:`chorus.UnsupportedError`, a RuntimeError, for backends without one, and over a library that is too
    old to give out memory.
    """
    device = device or torch.device("cpu")
    native = _backend.native_name(backend, device.type)
    if native in (None, "fake"):
        raise UnsupportedError(f"chorus: No allocator factory registered for backend {backend!r}")
    return MemAllocator(device, _pool(native, device) if device.type != "cpu" else None)


def _pool(backend: str, device: torch.device) -> Any:
    """The pool of the memory that a backend's library allocates; None if it's the device's ordinary memory."""
    module = torch.get_device_module(device)
    if device.index is None:
        device = torch.device(device.type, module.current_device())
    if device.type == "cuda":
        return _nccl.mem_pool(backend, device)
    name = _nccl.library_pool(backend, device)
    if not any(name):
        return None
    pool = module.MemPool()
    pool.id = name
    return pool


class PersistentAllGather:
    """A prepared all-gather, made by :meth:`TorchComm.all_gather_p_init`."""

    def __init__(self, output: _Tensor, hints: _Hints, timeout: timedelta | None) -> None:
        self.output: _Tensor | None = output
        self.hints = hints
        self.timeout = timeout


class BatchSendRecv:
    """Messages to be posted together, so that their order can't deadlock. They match those of other ranks in order.

    Attributes:
        ops: the messages so far; the list may be changed.
    """

    def __init__(self, comm: TorchComm) -> None:
        self._comm = comm
        self.ops: list[P2POp] = []

    def send(self, tensor: _Tensor, dst: int) -> None:
        """Add a send to rank ``dst``."""
        self.ops.append(P2POp(P2POpType.SEND, tensor, dst))

    def recv(self, tensor: _Tensor, src: int) -> None:
        """Add a receive from rank ``src``. Shapes: dtype and number of elements must be the message's."""
        self.ops.append(P2POp(P2POpType.RECV, tensor, src))

    def issue(self, async_op: bool = False, options: BatchP2POptions | None = None) -> TorchWork:
        """Post the messages. Without ``async_op`` they have all arrived when this returns.

        Raises :class:`chorus.InvalidArgumentError`, before anything is posted, for an empty batch.
        """
        hints, timeout = (None, None) if options is None else (options.hints, options.timeout)
        return self._comm._issue(OpName.batch_op_issue, (self.ops,), async_op, hints, timeout)


class TorchComm:
    """One rank's part in a group of ranks. :func:`new_comm` and :meth:`split` make them.

    Operations without ``async_op`` are done when they return; with it they return a :class:`TorchWork`
    immediately. Collectives run one at a time in the order in which they were issued, which must be the
    same on all ranks. ``hints`` (``algorithm``, ``mapped``, ``chunk_bytes``; the same on all ranks) and
    ``timeout`` are the communicator's if they are None or empty. Tensors are on the CPU or on the
    communicator's device. Operations that don't reduce take any dtype. Inputs are never written. On a device
    operations are work of the current stream, or run after its earlier work with ``async_op``, and the host
    doesn't wait.

    Operations raise, or their ``wait`` raises, :class:`chorus.InvalidArgumentError` before anything moves,
    :class:`chorus.MismatchError`, :class:`chorus.TimeoutError`, :class:`chorus.PeerLostError` and
    :class:`chorus.AbortedError`; all are RuntimeErrors that name the ranks concerned.

    Methods may be called from any thread.
    """

    def __init__(
        self,
        impl: TorchCommBackend,
        device: torch.device,
        options: CommOptions,
        ranks: list[int],
    ) -> None:
        self._impl = impl
        self._device = device
        self._options = options
        self._ranks = ranks
        self._hooks = Hooks()
        self._finalized = False
        self._layout: NodeRankLayout | None = None
        self._key = str(next(_keys))
        by_key[self._key] = self
        _open.add(self)

    def __del__(self) -> None:
        if not getattr(self, "_finalized", True):
            _warn_of(self)

    # ---- properties ----

    def get_rank(self) -> int:
        """This process's rank in the communicator."""
        return self._impl.get_rank()

    def get_size(self) -> int:
        """The number of ranks."""
        return self._impl.get_size()

    def get_name(self) -> str:
        """The communicator's name."""
        return self._impl.get_comm_name()

    def get_device(self) -> torch.device:
        """The device that the communicator is bound to."""
        return self._device

    def get_backend(self) -> str:
        """The name of the backend, as given to :func:`new_comm`."""
        return self._impl.get_backend_name()

    def get_backend_version(self) -> str:
        """The version of the library that carries out the operations."""
        return self._impl.get_backend_version()

    def get_backend_impl(self) -> TorchCommBackend:
        """The backend itself."""
        return self._impl

    def unsafe_get_backend(self) -> TorchCommBackend:
        """The older name of :meth:`get_backend_impl`."""
        warnings.warn("unsafe_get_backend is deprecated; use get_backend_impl", DeprecationWarning, stacklevel=2)
        return self._impl

    def get_options(self) -> CommOptions:
        """The options in force."""
        return self._options

    def get_ranks(self) -> list[int]:
        """For each rank, its rank in the communicator that was made by :func:`new_comm`."""
        return list(self._ranks)

    def get_node_rank_layout(self) -> NodeRankLayout:
        """Which ranks are on which hosts. The first call is collective: the ranks exchange their hosts.

        Raises :class:`chorus.UnsupportedError` if the hint ``compute_node_rank_layout`` is false.
        """
        if not _hints.truth("compute_node_rank_layout", self._options.hints.get("compute_node_rank_layout", "true")):
            raise UnsupportedError(f"chorus: {self.get_name()}: the hint compute_node_rank_layout is false",
                comm=self.get_name(), op="get_node_rank_layout")  # fmt: skip
        if self._layout is None:
            self._layout = _layout.of(self)
        return self._layout

    def __repr__(self) -> str:
        return f"<TorchComm {self.get_name()!r}: rank {self.get_rank()} of {self.get_size()}, {self.get_backend()}>"

    def __copy__(self) -> TorchComm:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> TorchComm:
        memo[id(self)] = self
        return self

    # ---- messages ----

    def send(
        self, tensor: _Tensor, dst: int, async_op: bool = False, hints: _Hints = None, timeout: timedelta | None = None
    ) -> TorchWork:
        """Send a tensor to rank ``dst``. The tensor may be reused when the operation is done."""
        return self._issue(OpName.send, (tensor, dst), async_op, hints, timeout)

    def recv(
        self, tensor: _Tensor, src: int, async_op: bool = False, hints: _Hints = None, timeout: timedelta | None = None
    ) -> TorchWork:
        """Receive a tensor from rank ``src``. Shapes: dtype and number of elements must be the message's."""
        return self._issue(OpName.recv, (tensor, src), async_op, hints, timeout)

    def batch_op_create(self) -> BatchSendRecv:
        """An empty batch of messages."""
        return BatchSendRecv(self)

    # ---- collectives ----

    def broadcast(
        self, tensor: _Tensor, root: int, async_op: bool = False, hints: _Hints = None, timeout: timedelta | None = None
    ) -> TorchWork:
        """Copy the root's tensor to every rank. Shapes: the same on every rank."""
        return self._issue(OpName.broadcast, (tensor, root), async_op, hints, timeout)

    def all_reduce(
        self,
        tensor: _Tensor,
        op: ReduceOp,
        async_op: bool = False,
        hints: _Hints = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """Combine the ranks' tensors, in place. Shapes: the same on every rank."""
        impl, hooks = self._impl, self._hooks
        # Fast path of most calls: two more function calls would take as long as 4 B take between two ranks.
        if (
            type(impl) is NativeBackend and type(tensor) is _Tensor and type(op) is ReduceOp and op._factor is None
            and not (async_op or hints or timeout or hooks.pre or hooks.post or tensor.is_neg()
                     or profiler._is_profiler_enabled)
        ):  # fmt: skip
            comm = impl.comm
            status = comm.submit(_ALL_REDUCE, op._type._value_, 0, 0, 1, False, tensor)
            if not status:
                comm.issued += 1
                next(_op_ids)
                return DONE
            comm.handled(status)  # raises the operation's error
        return self._issue(OpName.all_reduce, (tensor, op), async_op, hints, timeout)

    def reduce(
        self,
        tensor: _Tensor,
        root: int,
        op: ReduceOp,
        async_op: bool = False,
        hints: _Hints = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """Combine the ranks' tensors into the root's; the others' stay as they are. Shapes: the same on every rank."""
        return self._issue(OpName.reduce, (tensor, root, op), async_op, hints, timeout)

    def all_gather(
        self,
        tensor_list: _Tensors,
        tensor: _Tensor,
        async_op: bool = False,
        hints: _Hints = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """``tensor_list[r]`` becomes rank r's ``tensor``. Shapes: all of one number of elements."""
        return self._issue(OpName.all_gather, (tensor_list, tensor), async_op, hints, timeout)

    def all_gather_v(
        self,
        tensor_list: _Tensors,
        tensor: _Tensor,
        async_op: bool = False,
        hints: _Hints = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """:meth:`all_gather` of sizes that differ between ranks; every rank passes the same sizes."""
        return self._issue(OpName.all_gather_v, (tensor_list, tensor), async_op, hints, timeout)

    def all_gather_single(
        self,
        output: _Tensor,
        input: _Tensor,
        async_op: bool = False,
        hints: _Hints = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """Block r of ``output`` becomes rank r's ``input``. Shapes: get_size() times the input's elements."""
        return self._issue(OpName.all_gather_single, (output, input), async_op, hints, timeout)

    def reduce_scatter(
        self,
        output: _Tensor,
        input_list: _Tensors,
        op: ReduceOp,
        async_op: bool = False,
        hints: _Hints = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """``output`` becomes the combination of ``input_list[rank]`` of all ranks. Shapes: all of one size."""
        return self._issue(OpName.reduce_scatter, (output, input_list, op), async_op, hints, timeout)

    def reduce_scatter_v(
        self,
        output: _Tensor,
        input_list: _Tensors,
        op: ReduceOp,
        async_op: bool = False,
        hints: _Hints = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """:meth:`reduce_scatter` of sizes that differ between ranks; every rank passes the same sizes."""
        return self._issue(OpName.reduce_scatter_v, (output, input_list, op), async_op, hints, timeout)

    def reduce_scatter_single(
        self,
        output: _Tensor,
        input: _Tensor,
        op: ReduceOp,
        async_op: bool = False,
        hints: _Hints = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """``output`` becomes the combination of block rank of all ``input``. Shapes: input get_size() times output."""
        return self._issue(OpName.reduce_scatter_single, (output, input, op), async_op, hints, timeout)

    def all_to_all(
        self,
        output_tensor_list: _Tensors,
        input_tensor_list: _Tensors,
        async_op: bool = False,
        hints: _Hints = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """Send entry s of the inputs to rank s, and receive entry r of the outputs from rank r, of any sizes."""
        return self._issue(OpName.all_to_all, (output_tensor_list, input_tensor_list), async_op, hints, timeout)

    def all_to_all_single(
        self,
        output: _Tensor,
        input: _Tensor,
        async_op: bool = False,
        hints: _Hints = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """Send block s of ``input`` to rank s, and receive block r of ``output`` from rank r.

        Shapes: both the same; dimension 0 divisible by get_size().
        """
        return self._issue(OpName.all_to_all_single, (output, input), async_op, hints, timeout)

    def all_to_all_v_single(
        self,
        output: _Tensor,
        input: _Tensor,
        output_split_sizes: list[int],
        input_split_sizes: list[int],
        async_op: bool = False,
        hints: _Hints = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """:meth:`all_to_all_single` with blocks of given sizes, in steps of dimension 0.

        The sizes may add up to less than the tensor; the rest is neither sent nor changed.
        """
        args = (output, input, output_split_sizes, input_split_sizes)
        return self._issue(OpName.all_to_all_v_single, args, async_op, hints, timeout)

    def barrier(self, async_op: bool = False, hints: _Hints = None, timeout: timedelta | None = None) -> TorchWork:
        """Wait until every rank has called it. A timeout error names the ranks that didn't."""
        return self._issue(OpName.barrier, (), async_op, hints, timeout)

    def scatter(
        self,
        output_tensor: _Tensor,
        input_tensor_list: _Tensors,
        root: int,
        async_op: bool = False,
        hints: _Hints = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """``output_tensor`` becomes the root's ``input_tensor_list[rank]``; the others' lists are ignored."""
        return self._issue(OpName.scatter, (output_tensor, input_tensor_list, root), async_op, hints, timeout)

    def gather(
        self,
        output_tensor_list: _Tensors,
        input_tensor: _Tensor,
        root: int,
        async_op: bool = False,
        hints: _Hints = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """The root's ``output_tensor_list[r]`` becomes rank r's ``input_tensor``; the others' lists are ignored."""
        return self._issue(OpName.gather, (output_tensor_list, input_tensor, root), async_op, hints, timeout)

    def gather_single(
        self,
        output: _Tensor,
        input: _Tensor,
        root: int,
        async_op: bool = False,
        hints: _Hints = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """Block r of the root's ``output`` becomes rank r's ``input``; the others' outputs are ignored."""
        return self._issue(OpName.gather_single, (output, input, root), async_op, hints, timeout)

    # ---- persistent all-gather ----

    def all_gather_p_init(
        self, output: _Tensor, hints: _Hints = None, timeout: timedelta | None = None
    ) -> PersistentAllGather:
        """Prepare all-gathers into ``output``, to be run by :meth:`all_gather_p_exec`."""
        if output.numel() % (self.get_size() or 1):
            raise self._invalid("all_gather_p_init",
                f"the output's {output.numel()} elements must be divisible by comm_size ({self.get_size()})")
        return PersistentAllGather(output, hints, timeout)

    def all_gather_p_exec(
        self,
        handle: PersistentAllGather,
        input: _Tensor,
        async_op: bool = False,
        hints: _Hints = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """:meth:`all_gather_single` into the handle's output. Hooks don't see it."""
        if handle.output is None:
            raise self._invalid("all_gather_p_exec", "the handle was freed")
        options = _options(hints or handle.hints, timeout or handle.timeout)
        return _work(self._impl.all_gather_single(handle.output, input, async_op, **options))

    def all_gather_p_free(self, handle: PersistentAllGather) -> None:
        """Release the handle's output."""
        if handle.output is None:
            raise self._invalid("all_gather_p_free", "the handle was freed")
        handle.output = None

    # ---- other communicators, windows, memory ----

    def split(
        self, ranks: list[int], name: str | None = None, hints: _Hints = None, timeout: timedelta | None = None
    ) -> TorchComm | None:
        """A communicator of some of this one's ranks, in the given order. Collective.

        Every rank calls it, each with the ranks of its own group; one that passes none gets None.
        Timeout and hints are this communicator's unless given. The two communicators are finalized
        separately; hooks aren't copied. Raises :class:`chorus.InvalidArgumentError` for ranks out of range or
        listed twice, or if this rank is not among them.
        """
        ranks = [operator.index(r) for r in ranks]
        op_id = self._before(OpName.split, lambda: (ranks, name))
        options = CommOptions(**vars(self._options))
        options.timeout = timeout or options.timeout
        options.hints = dict(hints or {})
        impl = self._impl.split(ranks, name, options)
        if impl is None:
            for tell in list(self._hooks.left_out):
                tell(op_id)
            return None
        options.hints = dict(hints or self._options.hints)
        comm = TorchComm(impl, self._device, options, [self._ranks[r] for r in ranks])
        self._after(OpName.split, op_id, comm)
        return comm

    def new_window(self, tensor: _Tensor | None = None) -> TorchCommWindow:
        """A window, with ``tensor`` registered if there is one; then it's collective."""
        op_id = self._before(OpName.new_window, lambda: (tensor,))
        if not isinstance(self._impl, NativeBackend):
            raise self._impl._lacks("new_window")
        window = TorchCommWindow(self._impl)
        if tensor is not None:
            window.tensor_register(tensor)
        self._after(OpName.new_window, op_id, window)
        return window

    def get_mem_allocator(self) -> MemAllocator:
        """The allocator of the memory with which this communicator is fastest."""
        return get_mem_allocator(self.get_backend(), self._device)

    @property
    def mem_allocator(self) -> MemAllocator:
        """The older name of :meth:`get_mem_allocator`."""
        warnings.warn("mem_allocator is deprecated; use get_mem_allocator()", DeprecationWarning, stacklevel=2)
        return self.get_mem_allocator()

    def tensor_register(self, tensor: _Tensor) -> None:
        """Tell the backend that a tensor will be used often. It helps for tensors of :meth:`get_mem_allocator`, and is
        accepted for any other."""
        self._impl.tensor_register(tensor)

    def tensor_deregister(self, tensor: _Tensor) -> None:
        """Undo :meth:`tensor_register`."""
        self._impl.tensor_deregister(tensor)

    def get_device_transport(self) -> int:
        """Not on CPUs: :class:`chorus.UnsupportedError`."""
        raise self._impl._lacks("get_device_transport")

    # ---- settings, failures, the end ----

    def set_timeout(self, timeout: timedelta) -> None:
        """Change the timeout of the operations issued from now on."""
        self._impl.set_timeout(timeout)
        self._options.timeout = timeout

    def set_hints(self, hints: dict[str, str]) -> None:
        """Replace the hints of the operations issued from now on: algorithm, mapped, chunk_bytes."""
        self._impl.set_hints(hints)
        self._options.hints = dict(hints)

    def abort(self) -> None:
        """Break the communicator on all ranks immediately; operations under way raise :class:`chorus.AbortedError`."""
        self._impl.abort()

    def suspend(self) -> None:
        """Release the device memory that the backend's library holds for the communicator, until :meth:`resume`.

        It runs after the operations issued before; all ranks call it. Operations are refused until :meth:`resume`.
        Raises :class:`chorus.UnsupportedError` if the backend has no such memory, or its library can't release it. Not
        in the original.
        """
        self._native("suspend").suspend()

    def resume(self) -> None:
        """Allocate again the memory that :meth:`suspend` has released. All ranks call it."""
        self._native("resume").resume()

    def is_abort_supported(self) -> bool:
        """Whether :meth:`abort` works."""
        return self._impl.is_abort_supported()

    def is_aborted(self) -> bool:
        """Whether the communicator is broken, by an abort or by any other failure."""
        return self._impl.is_aborted()

    def get_init_handle(self) -> str:
        """This rank's handle, by which members of a new world find it.

        It's valid until :meth:`reconfigure` succeeds, or :meth:`finalize`, even if the communicator is broken.
        """
        return self._impl.get_init_handle()

    def reconfigure(
        self,
        uuid: int,
        init_handles: list[str] | set[str],
        timeout: timedelta | None = None,
        hints: _Hints = None,
    ) -> TorchWork:
        """Make this the communicator of the processes whose handles are given. All of them call this with the same
        arguments.

        Survivors of a broken communicator call it on that one, and newcomers on one that :func:`new_comm` has
        made with ``enable_reconfigure``. ``uuid`` must be a new one. In a list, handle r becomes rank r. In a set,
        survivors keep their order, and newcomers come last. The call blocks, and the work that it returns is done.

        Either all members that survive the call succeed, or none does. On failure it raises
        :class:`chorus.PeerLostError`, :class:`chorus.TimeoutError` and so on; the message names the member at fault.
        The communicator is unchanged then, and another call, with another uuid, may leave that member out. Operations
        and windows under way end. Hooks stay, and are not called for this.
        """
        self._impl.reconfigure(uuid, init_handles, **_options(hints, timeout))
        if hints:
            self._options.hints = dict(hints)
        return self._renewed()

    def regroup(
        self, without: Sequence[int] = (), newcomers: Sequence[str] = (), timeout: timedelta | None = None
    ) -> TorchWork:
        """:meth:`reconfigure` for ranks that don't know the survivors: all survivors call it. Not in the original.

        Survivors keep their order. ``newcomers`` are handles of processes that call this, too, on communicators
        of :func:`new_comm` with ``enable_reconfigure``. They get the ranks of lost members, and then ranks at the end.
        """
        self._native("regroup").regroup(without, newcomers, timeout)
        return self._renewed()

    def _ended(self) -> bool:
        """Whether it was finalized, by itself or by its process group."""
        return self._impl.comm.finalized if isinstance(self._impl, NativeBackend) else self._finalized

    def _native(self, what: str) -> NativeBackend:
        """The backend, if it's this package's: only that has the methods that the original torchcomms lacks."""
        if not isinstance(self._impl, NativeBackend):
            raise self._impl._lacks(what)
        return self._impl

    def _renewed(self) -> TorchWork:
        self._ranks = list(range(self._impl.get_size()))
        self._layout = None
        return TorchWork()

    def finalize(self) -> None:
        """End this rank's part, after the operations issued before. A second call raises
        :class:`chorus.FinalizedError`."""
        if self._hooks.pre and not self._finalized:
            self._run_pre(OpName.finalize, _FINALIZE_ID, ())
        self._finalized = True
        self._impl.finalize()
        if self._hooks.post:
            self._after(OpName.finalize, _FINALIZE_ID)

    # ---- hooks ----

    def register_pre_hook(self, callback: Callable[[OpName, int, Any], None]) -> RemovableHandle:
        """Call ``callback(name, op_id, args)`` before each operation; ``args`` is its class of arguments.

        An exception of the callback ends the call, and nothing is issued. ``op_id`` counts the operations of the
        process; finalize's is 2^64-1.
        """
        return self._hook(self._hooks.pre, callback)

    def register_post_hook(self, callback: Callable[[int, Any], None]) -> RemovableHandle:
        """Call ``callback(op_id, args)`` after each operation was issued, but not if issuing it failed.

        ``args.work``, ``args.comm`` or ``args.window`` is the result of the call.
        """
        return self._hook(self._hooks.post, callback)

    def register_abort_hook(self, callback: Callable[[], None]) -> RemovableHandle:
        """Call ``callback()`` once when the communicator breaks, from a thread of its own; soon, if it has already.

        An exception of the callback is logged.
        """
        hooks = [callback]  # emptied by removal; not self, as the backend would keep the communicator alive

        def broken() -> None:
            for hook in list(hooks):
                hook()

        self._impl.on_abort(broken)
        return RemovableHandle(hooks, callback)

    @staticmethod
    def _hook(hooks: list[Any], callback: Callable[..., None]) -> RemovableHandle:
        hooks.append(callback)
        return RemovableHandle(hooks, callback)

    def _invalid(self, op: str, detail: str) -> InvalidArgumentError:
        return invalid(self.get_name(), self.get_rank(), op, detail)

    def _run_pre(self, op: OpName, op_id: int, args: tuple[Any, ...]) -> None:
        told = PRE[op](*args)
        for hook in list(self._hooks.pre):
            hook(op, op_id, told)

    def _before(self, op: OpName, args: Callable[[], tuple[Any, ...]]) -> int:
        op_id = next(_op_ids)
        if self._hooks.pre:
            self._run_pre(op, op_id, args())
        return op_id

    def _after(self, op: OpName, op_id: int, *result: Any) -> None:
        if self._hooks.post:
            told = POST[op](*result)
            for hook in list(self._hooks.post):
                hook(op_id, told)

    def _issue(
        self, op: OpName, args: tuple[Any, ...], async_op: bool, hints: _Hints, timeout: timedelta | None
    ) -> TorchWork:
        op_id = next(_op_ids)
        hooks = self._hooks
        if hooks.pre:
            self._run_pre(op, op_id, (*args, async_op))
        call = getattr(self._impl, op._name_)  # not .name, which is a function
        work = _work(call(*args, async_op, **_options(hints, timeout)) if hints or timeout else call(*args, async_op))
        if hooks.post:
            self._after(op, op_id, work)
        return work


def _options(hints: _Hints, timeout: timedelta | None) -> Options:
    """Keyword arguments for a backend; options that weren't given are left out, as the backend need not take them."""
    options: Options = {}
    if hints:
        options["hints"] = hints
    if timeout:
        options["timeout"] = timeout
    return options


def _work(result: Any) -> TorchWork:
    if isinstance(result, TorchWork):
        return result
    return TorchWork() if result is None else WorkWrapper(result)


def new_comm(
    backend: str,
    device: torch.device | str,
    name: str | None = None,
    abort_process_on_timeout_or_error: bool | None = None,
    timeout: timedelta | None = None,
    is_high_priority_stream: bool | None = None,
    store: Store | None = None,
    enable_reconfigure: bool = False,
    hints: dict[str, str] | None = None,
    *,
    high_priority_stream: bool | None = None,
    rank: int | None = None,
    world_size: int | None = None,
) -> TorchComm:
    """Join a communicator. All of its ranks call it; it returns when they have found each other.

    Args:
        backend: "native" (also "chorus" and "gloo"); "fake", which moves nothing; "mpi", over the site's MPI
            library; "nccl", "ncclx" and "rccl", on devices of the library of this name; or a registered one.
        device: the CPU, or a device whose driver is the library's, such as "accinte:1". The operations take its tensors
            and the CPU's; those of NCCL take the device's alone. Without an index it's the device of number rank modulo
            the number of devices, or the thread's current one if the environment doesn't tell the rank.
        name: the same on all ranks. By default the process's communicators are numbered.
        abort_process_on_timeout_or_error: whether a failure aborts the process; as
            TORCHCOMM_ABORT_ON_ERROR says, or no.
        timeout: of this call, and of operations that give none; as TORCHCOMM_TIMEOUT_SECONDS says, or 600 s.
        is_high_priority_stream: whether the communicator's stream, on a device, has high priority.
        store: where the ranks meet, any store of PyTorch; by default the one at MASTER_ADDR and MASTER_PORT.
        enable_reconfigure: return immediately, without a world: rank -1 and size 0, until
            :meth:`TorchComm.reconfigure`. Other communicators can be reconfigured, too.
        hints: for the backend, under Chorus's names or the original's; unknown ones are a warning. With
            ``{"wire": "gloo"}`` the other ranks may be PyTorch's own: of ``init_process_group("gloo")``, or, if a
            store is given, of ``ProcessGroupGloo(store, ...)``.
        high_priority_stream: another name of is_high_priority_stream.
        rank: this process's rank; by default as the launcher's environment says. Not in the original.
        world_size: the number of ranks; likewise.

    Raises ModuleNotFoundError for an unknown backend, :class:`chorus.UnsupportedError` for options that this version
    doesn't support, and :class:`chorus.TimeoutError`, which names the missing ranks.
    """
    device = torch.device(device)
    native = _backend.native_name(backend, device.type)
    made_of = _backend.registered_class(backend) if native is None else None
    if enable_reconfigure and native is None:
        raise UnsupportedError(f"chorus: new_comm: backend {backend!r} has no reconfigure")
    apart = device.type != "cpu"
    if native is not None and apart and device.type not in served():
        raise UnsupportedError(f"chorus: new_comm: backend {backend!r} is for tensors of {', '.join(['cpu', *served()])}, not for {device.type}")  # noqa: E501
    if (rank is None) != (world_size is None):
        raise InvalidArgumentError("chorus: new_comm: rank and world_size are given together or not at all")
    if made_of is not None and rank is not None:
        raise InvalidArgumentError(
            f"chorus: new_comm: backend {backend!r} finds its own rank; rank and world_size are for Chorus' backends"
        )
    wire = (hints or {}).get("wire", "chorus")
    if wire not in ("chorus", "gloo"):
        raise InvalidArgumentError(f"chorus: new_comm: hint wire={wire!r}: it is chorus or gloo")
    foreign = wire == "gloo"
    if foreign and (native != "native" or enable_reconfigure):
        what = "reconfigure" if native == "native" else f"backend {backend!r}"
        raise UnsupportedError(f"chorus: new_comm: hint wire=gloo: {what} has no part in Gloo's wire")
    own, priority = _hints.of_gloo(hints) if foreign else _hints.of_communicator(hints, native)
    for said in (is_high_priority_stream, high_priority_stream):
        priority = priority if said is None else said
    if name is None:
        name = f"comm{next(_unnamed)}"
    aborts = abort_process_on_timeout_or_error
    options = CommOptions(_launcher.default_abort() if aborts is None else aborts,
        timeout or _launcher.default_timeout(), bool(priority), store, enable_reconfigure,
        dict(hints or {}))  # fmt: skip
    if apart and priority:
        own["is_high_priority_stream"] = "true"
    if rank is None or world_size is None:
        rank, world_size = _launcher.query_ranksize() if made_of is None or apart else (-1, 0)
    alone = native in LIBRARIES
    if made_of is not None or alone or enable_reconfigure:
        device = _of_rank(device, rank)
    if made_of is not None:
        impl = made_of()
        impl.init(device, name, options)
        return TorchComm(impl, device, options, list(range(impl.get_size())))
    if enable_reconfigure:
        rank, world_size, store = _lib.NO_WORLD, 0, None
    if native == "fake" and world_size > 1:
        store = HashStore()  # the library requires one; no rank meets there
    elif store is None and world_size > 1:
        store = _launcher.store_of_environment(rank, world_size, options.timeout, foreign)
    elif foreign:
        own["own_store"] = "true"
    if store is not None and world_size > 1 and native != "fake" and not foreign:
        store = PrefixStore(f"torchcomms/{name}", store)
    comm = Communicator.create(
        rank,
        world_size,
        store,
        name=name,
        timeout_ns=timeout_ns(options.timeout),
        hints=own,
        abort_on_error=options.abort_process_on_timeout_or_error,
        backend="gloo" if foreign else native,
        device=device if alone else None,
        keep_store=foreign,
        again=not foreign,
    )
    if apart and not alone:
        device = _of_rank(device, comm.rank)
        comm.bind(device)
    return TorchComm(NativeBackend(comm, backend), device, options, list(range(comm.size)))


def _of_rank(device: torch.device, rank: int) -> torch.device:
    """The device for a type without an index: number rank modulo the number of devices; without a rank, the current."""
    if device.type == "cpu" or device.index is not None:
        return device
    module = torch.get_device_module(device)
    return torch.device(device.type, rank % module.device_count() if rank >= 0 else module.current_device())


def of_group(group: Any = None) -> TorchComm:
    """The communicator of a group of the backend "chorus" (default: the world).

    The group keeps it: destroying the group finalizes it.
    """
    owner = ours(group)
    if owner not in _of_groups:
        info = owner.comm.info()
        options = CommOptions(bool(info.abort_on_error), timedelta(microseconds=info.timeout_ns / 1000))
        device = owner.comm.device or torch.device("cpu")
        comm = TorchComm(NativeBackend(owner.comm, "chorus", True), device, options, list(range(owner.comm.size)))
        comm._finalized = True  # the group finalizes it
        _of_groups[owner] = comm
    return _of_groups[owner]


def _warn_of(comm: TorchComm) -> None:
    comm._finalized = True
    warnings.warn(f"chorus: {comm!r} was not finalized; it is now, behind the scenes", RuntimeWarning, stacklevel=2)


def _warn() -> None:
    """Warn at the interpreter's exit of communicators that were not finalized."""
    for comm in list(_open):
        if not comm._finalized:
            _warn_of(comm)


atexit.register(_warn)
