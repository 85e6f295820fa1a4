# PyTorch's stubs give the methods of the base class other overloads than PyTorch calls.
# mypy: disable-error-code="override, assignment"
"""The torch.distributed backends ``chorus`` and ``accl``.

``torch.distributed.init_process_group("chorus")`` makes a :class:`ProcessGroup`. PyTorch calls its
methods, which have PyTorch's names and argument order. If a method has two names, they are those of
an older and a newer PyTorch.

A call with the option ``asyncOp = False`` is done when it returns, and returns None (to PyTorch 2.6, a :class:`Work`
that is done). Other calls return a :class:`Work` immediately. Tensors that are not contiguous are staged through
contiguous copies.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    PrefixStore,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
    Store,
)
from torch.autograd import profiler

from chorus import _devices, _lib, _nccl, _ops, _patches, _pytorch26_work, _store, _streams, memory
from chorus._comm import Communicator, DevicePending, Operation, Pending
from chorus._pg_options import split_options
from chorus._reductions import NUMBERS, reduction_of
from chorus._signatures import every_signature, has_fake
from chorus._tensors import check_devices, dense, same_sizes, single
from chorus.errors import Error, InvalidArgumentError, TimeoutError, UnsupportedError

_Tensors = list[torch.Tensor]


def timeout_ns(timeout: timedelta | None) -> int:
    """A timeout in nanoseconds, a hundred years at most; 0, for the communicator's, if PyTorch's is unset or zero."""
    if timeout is None:
        return 0
    if not isinstance(timeout, timedelta):
        raise TypeError(f"chorus: a timeout is a datetime.timedelta, not {type(timeout).__name__}")
    if not 0 <= timeout.days < 36500:
        return 0 if timeout.days < 0 else 36500 * 86400 * 1_000_000_000
    return (timeout.days * 86400 + timeout.seconds) * 1_000_000_000 + timeout.microseconds * 1000


class _FailedValue:
    """The value of a failed operation's future.

    A future made in Python can't carry an exception to its C++ users: they read its value and take the
    tensors out of it by pickling. So this value raises the error when it's pickled.
    """

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise self.error.with_traceback(None)


def _raise(value: Any) -> Any:
    if isinstance(value, _FailedValue):
        raise value.error.with_traceback(None)


class Work(dist.Work):
    """The handle of an operation. It may be dropped; the operation goes on."""

    _torchcomms_work: Any = None  # torchcomms' handle of it, which hooks have seen; it runs their callbacks for waits

    def __init__(self, pending: Pending | None, value: Any) -> None:
        super().__init__()
        self._pending = pending  # None: it's done, without an error
        self._value = value
        self._source = -1  # the sender's rank in this group, if the library's communicator has another number for it
        _pytorch26_work.keep(self, value)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the operation is done; raise its error.

        A ``timeout`` that isn't zero bounds this wait, after which the operation goes on;
        otherwise the operation's own timeout ends it. For tensors of a device the current stream waits, not the host,
        unless the process can't touch their memory: a later failure of the operation is that stream's error. For a
        barrier the host waits. With a ``timeout`` the host
        waits as well, and an operation of a GPU's group that isn't done in time breaks the group, like one that is
        overdue.
        """
        if self._torchcomms_work is not None:
            self._torchcomms_work._waited()
        pending = self._pending
        if isinstance(pending, DevicePending):
            ns = timeout_ns(timeout)
            if pending.kind != _lib.BARRIER:
                pending.join()
            if ns or pending.kind == _lib.BARRIER or pending.comm.blocking and not _streams.capturing(pending.device):
                pending.wait(ns or -1, overdue=True)
        elif pending is not None:
            pending.wait(timeout_ns(timeout) or -1)
        _pytorch26_work.waited(self)
        return True

    def is_completed(self) -> bool:
        return self._pending is None or self._pending.test()

    def is_success(self) -> bool:
        return self.is_completed() and (self._pending is None or self._pending.error is None)

    def exception(self) -> BaseException | None:
        return self._pending.error if self._pending is not None and self._pending.test() else None

    def result(self) -> Any:
        """The tensors that the operation fills, in lists like those passed in."""
        self.wait()
        return self._value

    def source_rank(self) -> int:
        """The rank whose message a receive got."""
        if isinstance(self._pending, DevicePending) and self._pending.kind == _lib.RECV:
            self._pending.wait()
        if self._pending is None or not self._pending.test() or self._pending.source < 0:
            return -1
        return self._source if self._source >= 0 else self._pending.source

    _source_rank = source_rank

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        self.wait()

    def get_future(self) -> torch.futures.Future[Any]:
        """A future of the result. Its error, if it has one, is that of :meth:`wait`.

        For tensors of a device the future is done immediately, and a wait for it makes the current stream wait, unless
        the process can't touch their memory.
        """
        _pytorch26_work.drop(self)
        if isinstance(self._pending, DevicePending):
            placed: torch.futures.Future[Any] = torch.futures.Future(devices=[self._pending.device])
            with self._pending.behind():
                placed.set_result(self._value)
            return placed
        device = self._pending.device if self._pending is not None else None
        future: torch.futures.Future[Any] = torch.futures.Future(devices=[device] if device is not None else None)
        if self._pending is None:
            future.set_result(self._value)
            return future
        future._set_unwrap_func(_raise)
        value = self._value

        def finish(pending: Pending) -> None:
            future.set_result(value if pending.error is None else _FailedValue(pending.error))

        self._pending.when_done(finish)
        return future

    def get_future_result(self) -> torch.futures.Future[Any]:
        """A future that holds 0 (WorkResult.SUCCESS), 1 (TIMEOUT) or 2 (COMM_ERROR)."""
        future: torch.futures.Future[Any] = torch.futures.Future()

        def finish(pending: Pending) -> None:
            error = pending.error
            future.set_result(0 if error is None else 1 if isinstance(error, TimeoutError) else 2)

        if self._pending is None:
            future.set_result(0)
        else:
            self._pending.when_done(finish)
        return future


def _refused(name: str, instead: str) -> Callable[..., Any]:
    """A method that refuses, and says what to use instead."""

    def refuse(self: ProcessGroup, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError(f"chorus: a process group has no {name}: {instead}", op=name)

    refuse.__name__ = name
    return refuse


class ProcessGroup(_nccl.Extras, dist.ProcessGroup):
    """A torch.distributed process group whose CPU side is a Chorus communicator.

    PyTorch makes it. Tensors of other devices go to the backends that are
    registered for them, as in ``init_process_group("cpu:chorus,cuda:nccl")``.
    """

    # PyTorch reads these before it relies on a feature of a backend.
    supports_splitting = True
    supports_coalescing = True
    supports_time_estimate = False
    supports_shrinking = True
    supports_reconfigure = False
    supports_window = False
    supports_abort_hooks = False
    supports_completion_hooks = False
    use_pg_for_symm_mem_rendezvous = False

    _hints: dict[str, str] = {}  # the hints that it was made with
    _libraries: dict[str, Any]  # groups of GPUs' libraries, by the type of their device
    _named: dict[str, str] = {}  # the backends that programs name for types of device
    _abort: Any = None  # the option abort_on_error

    def __init__(self, comm: Communicator, store: Store | None, timeout: timedelta) -> None:
        init: Any = super().__init__  # PyTorch's stubs before 2.15 declare other arguments
        init(comm.rank, comm.size)
        self.comm = comm
        self._store = store
        self._timeout = timeout
        self._group_name = ""
        self._group_desc = "undefined"
        # PyTorch's own group, with the backends of other devices. It serves their tensors: a method of the base class
        # would call this class again if the method has another name in PyTorch.
        make: Any = dist.ProcessGroup
        self._elsewhere: dist.ProcessGroup = make(comm.rank, comm.size)
        self._libraries = {}  # the parts for GPUs, by the type of device
        self._others: list[torch.device] = []  # devices that another backend or one of these parts serves
        self._ours = {"cpu", *_devices.served()}  # the types of device that this backend serves
        self._splits = 0  # names groups of splits: a number that all ranks agree on

    # ---- collectives: one tensor ----

    def allreduce(self, tensors: _Tensors, opts: Any = None, *more: Any, **named: Any) -> dist.Work | None:
        """Combine the ranks' tensors, in place. Shapes: the same on every rank."""
        if type(tensors) is list and len(tensors) == 1:
            tensor = tensors[0]
            comm = self.comm
            if self._can_submit(tensor, opts, AllreduceOptions) and (reduction := NUMBERS.get(hash(opts.reduceOp))):
                kind, ns = _lib.ALL_REDUCE, timeout_ns(opts.timeout)
                if not self._synchronous(opts):
                    if (pending := comm.begin(kind, reduction, 0, ns, 1, tensor)) is not None:
                        return Work(pending, tensors)
                elif comm.handled(comm.submit(kind, reduction, 0, ns, 1, False, tensor)):
                    return _done(tensors)
        return self._allreduce(tensors, opts, *more, **named)

    @every_signature(AllreduceOptions, "op")
    def _allreduce(self, tensors: _Tensors, opts: Any = None) -> dist.Work | None:
        """:meth:`allreduce` of any tensors. Sparse COO ones are gathered and added up, with SUM and AVG only."""
        if tensors and self._other_backend(tensors[0]):
            return self._at(tensors[0].device).allreduce(tensors, *_given(opts))
        if len(tensors) != 1:
            return self.allreduce_coalesced(tensors, opts)
        tensor = tensors[0]
        if tensor.layout is not torch.strided:
            from chorus import _sparse

            return Work(None, [_sparse.allreduce(self, tensor, opts)])
        reduction = reduction_of(opts, tensor.dtype, "all_reduce", self.comm.invalid)
        return self._run(opts, tensors, _ops.all_reduce(self.comm, tensor, reduction))

    def broadcast(self, tensors: _Tensors, opts: Any = None, *more: Any, **named: Any) -> dist.Work | None:
        """Copy the root's tensor to every rank. Shapes: the same on every rank."""
        if type(tensors) is list and len(tensors) == 1:
            tensor = tensors[0]
            comm = self.comm
            if self._can_submit(tensor, opts, BroadcastOptions):
                kind, ns = _lib.BROADCAST, timeout_ns(opts.timeout)
                if not self._synchronous(opts):
                    if (pending := comm.begin(kind, 0, opts.rootRank, ns, 1, tensor)) is not None:
                        return Work(pending, tensors)
                elif comm.handled(comm.submit(kind, 0, opts.rootRank, ns, 1, False, tensor)):
                    return _done(tensors)
        return self._broadcast(tensors, opts, *more, **named)

    @every_signature(BroadcastOptions, "root")
    def _broadcast(self, tensors: _Tensors, opts: Any = None) -> dist.Work | None:
        tensor = single(tensors, "broadcast", self.comm.invalid)
        if self._other_backend(tensor):
            return self._at(tensor.device).broadcast(tensors, *_given(opts))
        root = opts.rootRank if opts is not None else 0
        dense(tensor, "broadcast", self.comm.invalid)
        return self._run(opts, tensors, _ops.broadcast(self.comm, tensor, root))

    @every_signature(ReduceOptions, "root", "op")
    def reduce(self, tensors: _Tensors, opts: Any = None) -> dist.Work | None:
        """Combine the ranks' tensors into the root's; the others' are left as they are."""
        tensor = single(tensors, "reduce", self.comm.invalid)
        if self._other_backend(tensor):
            return self._at(tensor.device).reduce(tensors, *_given(opts))
        dense(tensor, "reduce", self.comm.invalid)
        root = opts.rootRank if opts is not None else 0
        reduction = reduction_of(opts, tensor.dtype, "reduce", self.comm.invalid)
        return self._run(opts, tensors, _ops.reduce(self.comm, tensor, reduction, root))

    @every_signature(AllgatherOptions, lists=False)
    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> dist.Work | None:
        """Block r of ``output`` becomes rank r's ``input``. Shapes: world size times the elements."""
        if self._other_backend(input):
            return self._at(input.device)._allgather_base(output, input, *_given(opts))
        check_devices([output, input], "all_gather_single", self.comm.invalid)
        return self._run(opts, [output], _ops.all_gather_single(self.comm, output, input))

    _allgather_base = all_gather_single

    @every_signature(ReduceScatterOptions, "op", lists=False)
    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> dist.Work | None:
        """``output`` becomes the combination of block rank of all ``input``. Shapes: world size times the elements."""
        if self._other_backend(input):
            return self._at(input.device)._reduce_scatter_base(output, input, *_given(opts))
        op = "reduce_scatter_single"
        check_devices([output, input], op, self.comm.invalid)
        reduction = reduction_of(opts, input.dtype, op, self.comm.invalid)
        return self._run(opts, [output], _ops.reduce_scatter_single(self.comm, output, input, reduction))

    _reduce_scatter_base = reduce_scatter_single

    @every_signature(AllToAllOptions, lists=False)
    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any = None,
    ) -> dist.Work | None:
        """Send block s of ``input`` to rank s and receive block r of ``output`` from rank r.

        Shapes: splits count rows, that is, steps of dimension 0; empty splits are equal ones.
        """
        if self._other_backend(input):
            splits = list(output_split_sizes), list(input_split_sizes)
            return self._at(input.device).alltoall_base(output, input, *splits, *_given(opts))
        op = "all_to_all_single"
        check_devices([output, input], op, self.comm.invalid)
        if output_split_sizes or input_split_sizes:
            in_rows = self._rows(input, input_split_sizes, "input", op)
            out_rows = self._rows(output, output_split_sizes, "output", op)
            return self._run(opts, [output], _ops.all_to_all_v_single(self.comm, output, input, out_rows, in_rows))
        if input.dim() and input.size(0) % self.comm.size:
            raise self.comm.invalid(op, f"dimension 0 has {input.size(0)} rows, which {self.comm.size} ranks can't share equally")  # noqa: E501
        return self._run(opts, [output], _ops.all_to_all_single(self.comm, output, input))

    alltoall_base = all_to_all_single

    # ---- collectives: lists ----

    @every_signature(AllgatherOptions)
    def allgather(self, outputs: list[_Tensors], inputs: _Tensors, opts: Any = None) -> dist.Work | None:
        """``outputs[0][r]`` becomes rank r's ``inputs[0]``. Sizes may differ between ranks."""
        input = single(inputs, "all_gather", self.comm.invalid)
        if self._other_backend(input):
            return self._at(input.device).allgather(outputs, inputs, *_given(opts))
        if len(outputs) != 1:
            raise self.comm.invalid("all_gather", f"takes one list of outputs, not {len(outputs)}")
        check_devices([input, *outputs[0]], "all_gather", self.comm.invalid)
        lower = _ops.all_gather if same_sizes(outputs[0]) else _ops.all_gather_v
        return self._run(opts, outputs[0], lower(self.comm, outputs[0], input))

    @every_signature(ReduceScatterOptions, "op")
    def reduce_scatter(self, outputs: _Tensors, inputs: list[_Tensors], opts: Any = None) -> dist.Work | None:
        """``outputs[0]`` becomes the combination of all ``inputs[0][rank]``. Sizes may differ between ranks."""
        output = single(outputs, "reduce_scatter", self.comm.invalid)
        if self._other_backend(output):
            return self._at(output.device).reduce_scatter(outputs, inputs, *_given(opts))
        if len(inputs) != 1:
            raise self.comm.invalid("reduce_scatter", f"takes one list of inputs, not {len(inputs)}")
        check_devices([output, *inputs[0]], "reduce_scatter", self.comm.invalid)
        reduction = reduction_of(opts, output.dtype, "reduce_scatter", self.comm.invalid)
        lower = _ops.reduce_scatter if same_sizes(inputs[0]) else _ops.reduce_scatter_v
        return self._run(opts, outputs, lower(self.comm, output, inputs[0], reduction))

    @every_signature(AllToAllOptions)
    def alltoall(self, outputs: _Tensors, inputs: _Tensors, opts: Any = None) -> dist.Work | None:
        """Send ``inputs[s]`` to rank s and receive ``outputs[r]`` from rank r, of any sizes."""
        if inputs and self._other_backend(inputs[0]):
            return self._at(inputs[0].device).alltoall(outputs, inputs, *_given(opts))
        if not inputs or not outputs:
            raise self.comm.invalid(
                "all_to_all", f"a list is empty; it must have {self.comm.size} tensors, one per rank"
            )
        check_devices([*inputs, *outputs], "all_to_all", self.comm.invalid)
        return self._run(opts, outputs, _ops.all_to_all(self.comm, outputs, inputs))

    @every_signature(GatherOptions, "root")
    def gather(self, outputs: list[_Tensors], inputs: _Tensors, opts: Any = None) -> dist.Work | None:
        """The root's ``outputs[0][r]`` becomes rank r's ``inputs[0]``."""
        input = single(inputs, "gather", self.comm.invalid)
        if self._other_backend(input):
            return self._at(input.device).gather(outputs, inputs, *_given(opts))
        root = opts.rootRank if opts is not None else 0
        if (root == self.comm.rank) != (len(outputs) == 1):
            raise self.comm.invalid("gather", "the root passes one list of outputs, the others none")
        targets = outputs[0] if outputs else None
        check_devices([input, *(targets or ())], "gather", self.comm.invalid)
        return self._run(opts, targets or [], _ops.gather(self.comm, targets, input, root))

    @every_signature(GatherOptions, "root", lists=False)
    def gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> dist.Work | None:
        """Block r of the root's ``output``, which is contiguous, becomes rank r's ``input``; the others' is not used.
        Shapes: world size times the elements. PyTorch calls it from 2.15 on."""
        if self._other_backend(input):
            theirs: Any = self._at(input.device)
            work: dist.Work = theirs.gather_single(output, input, *_given(opts))
            return work
        if (opts.rootRank if opts is not None else 0) != self.comm.rank:
            return self.gather([], [input], opts)
        if output.numel() != self.comm.size * input.numel() or not output.is_contiguous():
            raise self.comm.invalid(
                "gather_single",
                f"the root's output is to be contiguous, with {self.comm.size} times the {input.numel()} elements of "
                f"its input; it has {output.numel()}",
            )
        return self.gather([list(output.view(self.comm.size, *input.shape).unbind())], [input], opts)

    gather_into_tensor = gather_single

    @every_signature(ScatterOptions, "root")
    def scatter(self, outputs: _Tensors, inputs: list[_Tensors], opts: Any = None) -> dist.Work | None:
        """``outputs[0]`` becomes the root's ``inputs[0][rank]``."""
        output = single(outputs, "scatter", self.comm.invalid)
        if self._other_backend(output):
            return self._at(output.device).scatter(outputs, inputs, *_given(opts))
        root = opts.rootRank if opts is not None else 0
        if (root == self.comm.rank) != (len(inputs) == 1):
            raise self.comm.invalid("scatter", "the root passes one list of inputs, the others none")
        sources = inputs[0] if inputs else None
        check_devices([output, *(sources or ())], "scatter", self.comm.invalid)
        return self._run(opts, outputs, _ops.scatter(self.comm, output, sources, root))

    def barrier(self, opts: Any = None, *more: Any, **named: Any) -> dist.Work | None:
        """Wait until every rank has called it."""
        if self._others and (other := self._place_of_barrier(opts)) is not None:
            return self._at(other).barrier(opts)
        comm = self.comm
        if (
            self._synchronous(opts)
            and not profiler._is_profiler_enabled
            and comm.handled(comm.submit(_lib.BARRIER, 0, 0, timeout_ns(opts.timeout), 1, False))
        ):
            return _done([])
        return self._barrier(opts, *more, **named)

    @every_signature(BarrierOptions)
    def _barrier(self, opts: Any = None) -> dist.Work | None:
        if self.comm.device is None:
            return self._run(opts, [], _ops.barrier(None))
        pending = self._issue_barrier(0 if opts is None else timeout_ns(opts.timeout))
        work = Work(pending, [])
        if not self._synchronous(opts):
            return work
        work.wait()
        return _done([])

    def _issue_barrier(self, ns: int) -> Pending | None:
        """A barrier for which the host waits, after the work on the current stream of the group's device."""
        device = self.comm.device
        op = _ops.barrier(device if _streams.foreign(device) else None)
        op.timeout_ns = ns
        return self.comm.run(op, True)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """A barrier whose :class:`chorus.TimeoutError` names the ranks that didn't come, on every rank that did.

        Its ``missing_ranks`` are all of them. Its text ends with PyTorch's words, which name only the first of them, or
        all with ``wait_all_ranks``. A ``timeout`` of zero expires immediately.
        """
        ns = 1 if timeout is not None and not timeout else timeout_ns(timeout)
        try:
            if (pending := self._issue_barrier(ns)) is not None:
                pending.wait()
        except Error as error:
            if missing := error.missing_ranks:  # PyTorch's words, which users search for
                who = f"Ranks {', '.join(map(str, missing))}" if wait_all_ranks else f"Rank {missing[0]}"
                ms = (ns or timeout_ns(self._timeout)) // 1_000_000
                error.args = (f"{error} ({who} failed to pass monitoredBarrier in {ms} ms)",)
            raise

    # ---- several operations as one ----

    def allreduce_coalesced(self, tensors: _Tensors, opts: Any = None) -> dist.Work:
        """:meth:`allreduce` of each tensor."""
        if tensors and self._other_backend(tensors[0]):
            return self._at(tensors[0].device).allreduce_coalesced(tensors, *_given(opts))
        return self._coalesced(opts, tensors, [(self.allreduce, ([t], opts)) for t in tensors])

    def all_gather_single_coalesced(self, outputs: _Tensors, inputs: _Tensors, opts: Any = None) -> dist.Work:
        """:meth:`all_gather_single` of each pair."""
        if inputs and self._other_backend(inputs[0]):
            return self._at(inputs[0].device).allgather_into_tensor_coalesced(outputs, inputs, *_given(opts))
        calls = [(self.all_gather_single, (o, i, opts)) for o, i in zip(outputs, inputs, strict=True)]
        return self._coalesced(opts, outputs, calls)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter_single_coalesced(self, outputs: _Tensors, inputs: _Tensors, opts: Any = None) -> dist.Work:
        """:meth:`reduce_scatter_single` of each pair."""
        if inputs and self._other_backend(inputs[0]):
            return self._at(inputs[0].device).reduce_scatter_tensor_coalesced(outputs, inputs, *_given(opts))
        calls = [(self.reduce_scatter_single, (o, i, opts)) for o, i in zip(outputs, inputs, strict=True)]
        return self._coalesced(opts, outputs, calls)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def allgather_coalesced(self, outputs: list[_Tensors], inputs: _Tensors, opts: Any = None) -> dist.Work:
        """``outputs[r][i]`` becomes rank r's ``inputs[i]``."""
        if inputs and self._other_backend(inputs[0]):
            return self._at(inputs[0].device).allgather_coalesced(outputs, inputs, *_given(opts))
        calls = [(self.allgather, ([[o[i] for o in outputs]], [t], opts)) for i, t in enumerate(inputs)]
        return self._coalesced(opts, outputs, calls)

    def _coalesced(self, opts: Any, value: Any, calls: list[tuple[Callable[..., Any], tuple[Any, ...]]]) -> dist.Work:
        if not calls:
            raise self.comm.invalid("a coalesced operation", "there are no tensors")
        if self.comm._batch is not None:  # between _start_coalescing and _end_coalescing
            for call, arguments in calls:
                _pytorch26_work.drop(call(*arguments))
            return Work(None, value)
        self.comm.begin_batch()
        try:
            for call, arguments in calls:
                _pytorch26_work.drop(call(*arguments))
        except BaseException:
            self.comm.drop_batch()
            raise
        return Work(self.comm.end_batch(opts is None or getattr(opts, "asyncOp", True)), value)

    def _start_coalescing(self, device: torch.device) -> None:
        """Collect the operations that follow, until :meth:`_end_coalescing`."""
        if device.type not in self._ours:
            return self._at(device)._start_coalescing(device)
        self.comm.begin_batch()

    def _end_coalescing(self, device: torch.device) -> dist.Work:
        """Issue the operations collected, as one; its messages can't block each other."""
        if device.type not in self._ours:
            return self._at(device)._end_coalescing(device)
        return Work(self.comm.end_batch(True), [])

    def _drop_coalescing(self, device: torch.device | None) -> None:
        """Forget what was collected since :meth:`_start_coalescing` of a device, if that was called."""
        if device is not None and device.type not in self._ours:
            part = self._at(device)
            if isinstance(part, ProcessGroup):
                part._drop_coalescing(device)
        else:
            self.comm.drop_batch()

    # ---- messages ----

    def send(self, tensors: _Tensors, dst: int, tag: int) -> dist.Work:
        """Send a tensor; done when the tensor may be reused."""
        tensor = single(tensors, "send", self.comm.invalid)
        if self._other_backend(tensor):
            return self._at(tensor.device).send(tensors, dst, tag)
        if has_fake(tensor):
            return Work(None, tensors)
        dense(tensor, "send", self.comm.invalid)
        return Work(self.comm.run(_ops.send(self.comm, tensor, dst, tag), True), tensors)

    def recv(self, tensors: _Tensors, src: int, tag: int) -> dist.Work:
        """Receive a tensor. Shapes: dtype and number of elements must be the message's."""
        tensor = single(tensors, "recv", self.comm.invalid)
        if self._other_backend(tensor):
            return self._at(tensor.device).recv(tensors, src, tag)
        if has_fake(tensor):
            return Work(None, tensors)
        dense(tensor, "recv", self.comm.invalid)
        return Work(self.comm.run(_ops.recv(self.comm, tensor, src, tag), True), tensors)

    def recv_anysource(self, tensors: _Tensors, tag: int) -> dist.Work:
        """:meth:`recv` from any rank; ``Work.source_rank`` says from which."""
        if tensors and self._other_backend(tensors[0]):
            return self._at(tensors[0].device).recv_anysource(tensors, tag)
        return self.recv(tensors, _lib.ANY, tag)

    def _batching(self, device: torch.device) -> ProcessGroup | None:
        """The group that issues the messages of a batch of a device's tensors as one; None if none need do so."""
        if device.type not in self._ours:
            library = self._libraries.get(device.type)
            return library.at(device) if library is not None else None
        return self if self.comm.backend in _devices.LIBRARIES else None

    def _messages(self, messages: Sequence[tuple[bool, torch.Tensor, int, int]]) -> dist.Work:
        """Issue messages as one: whether they're sent, tensors, peers and tags."""
        self.comm.begin_batch()
        try:
            for sent, tensor, peer, tag in messages:
                (self.send if sent else self.recv)([tensor], peer, tag)
        except BaseException:
            self.comm.drop_batch()
            raise
        return Work(self.comm.end_batch(True), [])

    # ---- the group itself ----

    @property
    def failure(self) -> Error | None:
        """Why the group is broken, with all facts; None if it isn't."""
        error = self.comm.failure()
        for part in self._libraries.values():  # this communicator learns of their failures a moment later
            error = error or part.broken()
        return error

    def set_timeout(self, timeout: timedelta) -> None:
        """Change the timeout of the operations issued from now on."""
        self.comm.set_timeout(timeout_ns(timeout))
        self._timeout = timeout
        for part in self._parts():
            part.set_timeout(timeout)

    _set_default_timeout = set_timeout

    def abort(self) -> None:
        """Break the group on all ranks immediately; operations under way raise :class:`chorus.AbortedError`."""
        self.comm.abort("abort was called")
        for part in self._parts():
            part.abort()

    def shutdown(self) -> None:
        """End this rank's part, after the operations issued before. A broken group ends as well."""
        with contextlib.ExitStack() as parts:  # each of them ends even if another one fails to
            if not self.comm.finalized:
                parts.callback(self._leave_store)
                parts.callback(self.comm.finalize, timeout_ns(self._timeout))
            for part in self._parts():
                parts.callback(part.shutdown)

    def _leave_store(self) -> None:
        """Delete the group's keys from the store, on its rank 0. If no agent of torchrun serves the store, only the
        world's rank 0, which serves it, does so: on another rank the store may be gone by now."""
        used, self.comm.store_keys = self.comm.store_keys, set()
        if self._store is None or self.comm.rank or self.comm.backend not in ("native", _devices.ACCL):
            return  # other groups use the store as long as they live
        agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        if agent or dist.is_initialized() and dist.get_rank() == 0:
            with contextlib.suppress(RuntimeError):  # the store is gone, or can't delete keys
                _store.forget(self._store, used, self.comm.size)

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: list[torch.device] | None = None,
    ) -> ProcessGroup | None:
        """A group of some of this one's ranks. Every rank calls it, with the ranks of its own
        part; a rank that isn't among those that it passes gets None. ``opts`` is None, a dict of hints, or
        ProcessGroupNCCL.Options."""
        alone = self.comm.backend in _devices.LIBRARIES  # the options are the communicator's own
        hints, for_libraries = split_options(opts, [self.comm.backend] if alone else self._libraries)
        if hints is not None and not isinstance(hints, dict):
            raise self.comm.invalid("split", f"options must be a dict of hints, not {type(opts).__name__}")
        if alone and hints is None:
            hints = for_libraries.get(self.comm.backend)
        if len(self._others) > len(self._libraries):
            raise UnsupportedError("chorus: a group of several devices can't be split; use new_group", op="split")
        beyond = any(not 0 <= r < self.comm.size for r in ranks)  # the library refuses it, and tells the others
        members = list(ranks) if self.comm.rank in ranks or beyond else []
        name = group_name
        if not name:  # PyTorch knows groups by their names
            again = f"#{self._splits}" if self._splits else ""
            name = f"{self._group_name or self.comm.name}.{min(members, default='')}{again}"
        comm = self.comm.split(members, name=name if members else None, timeout_ns=timeout_ns(timeout), hints=hints)
        self._split_count += 1
        # Not if the library refused this rank's arguments: then the others still wait for it, or were refused, too.
        self._splits += not group_name
        group = None
        if comm is not None:
            store = PrefixStore(name, self._store) if self._store is not None else None
            group = self._around(comm, store, timeout or self._timeout)
        for part in self._libraries.values():
            part.divide(group, members, for_libraries)
        if group is None:
            return None
        for split in (group, *group._libraries.values()):
            split._options = None if isinstance(opts, dict) else opts
        group.setGroupName(name)
        group.setGroupDesc(group_desc or f"{self._group_desc}:split")
        return group

    splitGroup = split_group

    def shrink(self, ranks_to_exclude: Sequence[int], shrink_flags: int = 0, opts: Any = None) -> ProcessGroup:
        """A group of the other ranks, which all call this; PyTorch's ``shrink_group`` does. It finalizes this group.

        It detects lost ranks that aren't in the list, but then it fails: PyTorch expects a group without exactly those
        listed. ``SHRINK_ABORT`` first aborts the operations under way.
        """
        if len(self._others) > len(self._libraries):
            raise UnsupportedError("chorus: a group of several devices can't be shrunk; use new_group", op="shrink")
        if shrink_flags & dist.distributed_c10d.SHRINK_ABORT:
            self.comm.abort("the group is being shrunk")
        left = self.comm.size - len(ranks_to_exclude)
        comm = self.comm.regroup(without=list(ranks_to_exclude), at_least=left, timeout_ns=timeout_ns(self._timeout))
        group = self._around(comm, self._store, self._timeout)
        for part in self._libraries.values():
            part.follow(group, [r for r in range(self.comm.size) if r not in ranks_to_exclude])
        return group

    def _around(self, comm: Communicator, store: Store | None, timeout: timedelta) -> ProcessGroup:
        """A group of some of the ranks with their communicator, for the same tensors except those of the parts for
        GPUs."""
        group = ProcessGroup(comm, store, timeout)
        group._ours = set(self._ours)
        if "cpu" not in group._ours:
            comm.leave_host()
        return group

    def merge_remote_group(self, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError("chorus: groups can't be merged", op="merge")

    mergeRemoteGroup = merge_remote_group

    # PyTorch's groups have these from 2.15 on, if a backend does. supports_window and the like say that this hasn't.
    new_window = _refused("new_window", "windows are chorus.torchcomms's: distwrap.get_comm(group).new_window()")
    reconfigure, get_reconfigure_handle = (
        _refused(name, "use shrink_group, or reconfigure of chorus.torchcomms")
        for name in ("reconfigure", "get_reconfigure_handle")
    )
    register_pre_hook, register_post_hook, register_abort_hook = (
        _refused(name, "hooks are chorus.torchcomms's: distwrap.get_comm(group)")
        for name in ("register_pre_hook", "register_post_hook", "register_abort_hook")
    )

    def get_group_store(self) -> Store:
        if self._store is None:
            raise UnsupportedError("chorus: this group was made without a store")
        return self._store

    def eager_connect_single_device(self, device: torch.device | None = None) -> None:
        """Connect the ranks. PyTorch calls it after init_process_group with a device_id; they're connected by then."""

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        return device.type in self._ours

    def allocate_tensor(self, *size: Any, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
        """A tensor in memory that peers on this host can map; FSDP asks for it."""
        if device is None or torch.device(device).type == "cpu":
            return memory.empty(*size, dtype=dtype)
        return torch.empty(*size, dtype=dtype, device=device)

    # ---- facts for PyTorch ----

    def name(self) -> str:
        """The backend's name in PyTorch."""
        return _devices.ACCL if self.comm.backend == _devices.ACCL else _devices.NAME

    getBackendName = name
    _get_backend_name = name

    @property
    def _device_types(self) -> list[torch.device]:
        # PyTorch 2.15 gives a group with device types a flight recorder while it makes the group, which fails
        # for a group written in Python. It skips groups without device types.
        c10d: Any = dist.distributed_c10d
        if self not in c10d._world.pg_map:
            return []
        return [*map(torch.device, sorted(self._ours, key="cpu".__ne__)), *self._others]

    def _get_backend(self, device: torch.device) -> Any:
        if device.type in self._ours:
            return self
        library = self._libraries.get(device.type)
        return library if library is not None else self._elsewhere._get_backend(device)

    def _add_backend(self, device: torch.device, kind: Any, backend: Any) -> None:
        self._elsewhere._register_backend(device, kind, backend)
        self._register_backend(device, kind, backend)  # for C++ callers, which ask the group itself
        self._others.append(device)
        self._ours.discard(device.type)
        if device.type == "cpu":
            self.comm.leave_host()

    def _add_library(self, part: Any) -> None:
        """Let one of the group's parts serve the tensors of a type of device."""
        self._libraries[part._kind] = part
        self._others.append(torch.device(part._kind))
        self._ours.discard(part._kind)

    def _at(self, device: torch.device) -> dist.ProcessGroup:
        """The group that serves the tensors of a device, if this one doesn't."""
        library = self._libraries.get(device.type)
        return self._elsewhere if library is None else library.at(device)

    def _library_comm(self, device: torch.device) -> Communicator | None:
        """The library's communicator for a device's tensors, if it was made already, and no batch is open."""
        library = self._libraries.get(device.type)
        return library.comm if library is not None and library.begun and library.comm._batch is None else None

    def _parts(self) -> list[Any]:
        """The groups that serve the tensors of other devices."""
        elsewhere = len(self._others) > len(self._libraries)
        return [*self._libraries.values(), *([self._elsewhere] if elsewhere else [])]

    def _place_of_barrier(self, opts: Any) -> torch.device | None:
        """The device of a barrier that another part carries out; None if the group does so itself."""
        device: torch.device | None = getattr(opts, "device", None)
        if device is None and not self._ours:  # a group of GPUs alone
            return self._others[0]
        return device if self._served_elsewhere(device) else None

    def _served_elsewhere(self, device: torch.device | None) -> bool:
        """Whether another backend of the group serves a device."""
        return device is not None and any(device.type == other.type for other in self._others)

    def _has_hooks(self) -> bool:
        return False

    def _wait_for_pending_works(self) -> None:
        pass

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return self.comm.issued

    # The base class keeps these names in its C++ backend, which a group written in Python doesn't have.

    @property
    def group_name(self) -> str:
        return self._group_name

    def getGroupName(self) -> str:
        return self._group_name

    def setGroupName(self, name: str) -> None:
        self._group_name = name
        if "comm" in vars(self):  # don't make a communicator for this
            self.comm.group_name = name
        for part in self._libraries.values():
            part.setGroupName(name)
        self._elsewhere._set_group_name(name)  # type: ignore[arg-type]

    _set_group_name = setGroupName

    @property
    def group_desc(self) -> str:
        return self._group_desc

    def getGroupDesc(self) -> str:
        return self._group_desc

    def setGroupDesc(self, desc: str) -> None:
        self._group_desc = desc
        self._elsewhere._set_group_desc(desc)

    _set_group_desc = setGroupDesc

    # ---- helpers ----

    def _synchronous(self, opts: Any) -> bool:
        """Whether a call is to be done when it returns."""
        return opts is not None and not getattr(opts, "asyncOp", True) and self.comm._batch is None

    def _can_submit(self, tensor: torch.Tensor, opts: Any, kind: type) -> bool:
        """Whether a call on a tensor may use the communicator's ``submit`` or ``begin``."""
        return (
            type(opts) is kind
            and type(tensor) is torch.Tensor
            and self.comm._batch is None
            and not tensor.is_neg()
            and not profiler._is_profiler_enabled
            and not torch._C._len_torch_dispatch_stack()
        )

    def _run(self, opts: Any, value: Any, op: Operation) -> dist.Work | None:
        """Run an operation with the options of a call, or issue it; ``value`` is what the operation fills."""
        now = self._synchronous(opts)
        if opts is not None:
            op.timeout_ns = timeout_ns(opts.timeout)
        awaited = now and self.comm.blocking and op.device is not None
        pending = self.comm.run(op, not now or awaited)
        if awaited:
            Work(pending, value).wait()
        return _done(value) if now else Work(pending, value)

    def _fake_result(self, value: Any, opts: Any) -> dist.Work | None:
        """The result of a call on tensors without elements."""
        return _done(value) if self._synchronous(opts) else Work(None, value)

    def _other_backend(self, tensor: torch.Tensor) -> bool:
        """Whether another backend of the group serves a tensor's device."""
        if tensor.device.type in self._ours:
            return False
        if tensor.device.type == "meta" and not self._served_elsewhere(tensor.device):
            raise self.comm.invalid("operation", "the tensor is on meta: it has no elements that could be moved")
        return True

    def _rows(self, tensor: torch.Tensor, rows: Sequence[int], what: str, op: str) -> Sequence[int]:
        """The splits of a tensor, which make up its rows; equal ones if none are given."""
        n, height = self.comm.size, tensor.size(0) if tensor.dim() else 1
        if not rows:
            if height % n:
                raise self.comm.invalid(op, f"the {what} has {height} rows, which {n} ranks can't share equally")
            rows = [height // n] * n
        if len(rows) != n or sum(rows) != height:
            raise self.comm.invalid(op, f"the {what} splits {list(rows)} don't make up its {height} rows on {n} ranks")
        return rows


def _done(value: Any) -> dist.Work | None:
    """The result of a call that is done: None, as PyTorch's own backends return."""
    return Work(None, value) if _pytorch26_work.WANTED else None


def _given(opts: Any) -> tuple[Any, ...]:
    """Options as the base class takes them: it has defaults of its own."""
    return () if opts is None else (opts,)


def ours(group: Any) -> ProcessGroup:
    """A group, None for the world, if it's one of these backends; raises InvalidArgumentError otherwise."""
    group = group if group is not None else dist.group.WORLD
    if not isinstance(group, ProcessGroup):
        names = " or ".join(map(repr, _devices.NAMES))
        raise InvalidArgumentError(f"chorus: {group!r} is not a group of the backend {names}")
    return group


_patches.apply("all_reduce", ProcessGroup, Work)
for name in ("batches", "buckets", "coalescing", "fp16_hook", "shrink", "dynamo"):
    _patches.apply(name, ProcessGroup)
