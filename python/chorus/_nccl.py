# PyTorch's stubs call some of these properties, and give them other types.
# mypy: disable-error-code="override, assignment"
"""Compatibility with PyTorch's ProcessGroupNCCL: its options, its environment variables, its methods and its pools of
memory.

PyTorch's class isn't needed, and may be absent: options are recognized by their attributes.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import DebugLevel, ErrorType, get_debug_level

from chorus import _lib
from chorus._devices import LIBRARIES, named, place_of
from chorus.errors import (
    AbortedError,
    Error,
    InvalidArgumentError,
    PeerLostError,
    TimeoutError,
    UnsupportedError,
    check,
)

if TYPE_CHECKING:
    from chorus._comm import Communicator

_UNSET = -(2**31)  # NCCL_CONFIG_UNDEF_INT
_TRUE, _FALSE = ("1", "true", "t", "yes", "on", "y"), ("0", "false", "f", "no", "off", "n")
_groups = itertools.count()


def hints_of(options: Any) -> dict[str, str] | None:
    """The hints for ProcessGroupNCCL.Options, or for an object with their attributes; None for anything else."""
    config = getattr(options, "config", None)
    if config is None or not hasattr(options, "is_high_priority_stream"):
        return None
    hints = {}
    if options.is_high_priority_stream:
        hints["is_high_priority_stream"] = "true"
    for name in dir(config):
        value = getattr(config, name)
        if not name.startswith("_") and not callable(value) and value not in (None, "", _UNSET):
            hints[name] = str(int(value) if isinstance(value, bool) else value)
    return hints


def complete(options: Any, group: Any) -> None:
    """Set what PyTorch sets in the options of a group: its timeout, ranks and name."""
    if getattr(options, "_timeout", group.timeout) != group.timeout:
        warnings.warn("pg_options._timeout isn't read: the timeout is that of the call", stacklevel=2)
    options._timeout = group.timeout
    options.global_ranks_in_group = group.global_ranks_in_group
    options.group_name = group.group_id


def defaults() -> dict[str, str]:
    """Hints of every group of GPUs that has no others: from TORCH_NCCL_HIGH_PRIORITY, and from
    TORCH_DISTRIBUTED_DEBUG=DETAIL, which makes PyTorch's own groups compare the ranks' calls."""
    hints = {}
    if _flag("TORCH_NCCL_HIGH_PRIORITY"):
        hints["is_high_priority_stream"] = "true"
    if get_debug_level() == DebugLevel.DETAIL:
        hints["compare"] = "true"
    return hints


def blocking_wait() -> bool:
    """Whether the host waits for operations, as TORCH_NCCL_BLOCKING_WAIT says."""
    return _flag("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")


def abort_on_error(given: Any = None) -> int | None:
    """chorus_comm_options.abort_on_error for an operation on a stream that fails; None leaves it to
    TORCHCOMM_ABORT_ON_ERROR. ``given`` is the option of pg_options.

    By default a failure ends the process, as with TORCH_NCCL_ASYNC_ERROR_HANDLING of 1 and 3; with 0 and 2 the process
    goes on. If the host waits for operations, no failure ends the process.
    """
    if given is not None:
        return _lib.ABORT_BEHIND if _truth("pg_options: abort_on_error", str(given)) else 0
    if os.environ.get("TORCHCOMM_ABORT_ON_ERROR"):
        return None
    name, mode = _variable("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")
    if mode not in ("", "0", "1", "2", "3"):
        raise InvalidArgumentError(f"chorus: {name}={mode!r} is none of 0, 1, 2 and 3")
    return 0 if mode in ("0", "2") or blocking_wait() else _lib.ABORT_BEHIND


def _variable(*names: str) -> tuple[str, str]:
    """The first of a variable's names that is set in the environment, and its value."""
    return next(((name, value) for name in names if (value := os.environ.get(name, "").strip())), (names[0], ""))


def _flag(*names: str) -> bool:
    name, value = _variable(*names)
    return bool(value) and _truth(name, value)


def _truth(name: str, value: str) -> bool:
    if value.lower() in _TRUE + _FALSE:
        return value.lower() in _TRUE
    raise InvalidArgumentError(f"chorus: {name}={value!r} is neither true nor false")


def library_pool(family: str, device: torch.device) -> tuple[int, int]:
    """The name of the library's pool of a device's memory that the library of a backend gives out; zeros if there's
    none. Raises :class:`chorus.UnsupportedError` if the library is too old."""
    name = (ctypes.c_uint64 * 2)()
    check(_lib.library.chorus_pool_of(family.encode(), place_of(device), name))
    return name[0], name[1]


@functools.cache
def allocator(family: str, device: torch.device) -> Any:
    """The allocator of memory of a backend's library, for torch.cuda.MemPool."""
    if named(device).partition(":")[0] not in ("cuda", "hip"):
        raise UnsupportedError(f"chorus: PyTorch has no pools for {device}; get_mem_allocator gives tensors there")
    library_pool(family, device)
    make: Any = getattr(torch.cuda.memory, "CUDAPluggableAllocator", None)
    if make is None or not hasattr(torch._C, "_cuda_customAllocator"):
        raise UnsupportedError("chorus: this PyTorch was built without CUDA, and has no pools of its memory")
    return make(_lib.PATH, f"chorus_{family}_alloc", f"chorus_{family}_free").allocator()


@functools.cache
def mem_pool(family: str, device: torch.device) -> Any:
    """A torch.cuda.MemPool of memory of a backend's library. It lives as long as the process."""
    make: Any = torch.cuda.MemPool
    return make(allocator(family, device))


def _symmetric(call: Any, comm: Communicator, segments: dict[int, int]) -> None:
    """Register or deregister segments, with their sizes by address, as symmetric memory."""
    n = len(segments)
    check(call(comm.handle, (ctypes.c_void_p * n)(*segments), (ctypes.c_int64 * n)(*segments.values()), n))


class _NoAllocatorError(UnsupportedError, AttributeError):
    """A group has no memory of a library."""


class Extras:
    """Methods of ProcessGroupNCCL beside its collectives. It's a part of :class:`chorus.process_group.ProcessGroup`."""

    comm: Communicator
    failure: Error | None
    _libraries: dict[str, Any]  # groups of GPUs' libraries, by the type of their device
    _options: Any = None  # pg_options
    _split_count = 0

    @property
    def options(self) -> Any:
        """The ProcessGroupNCCL.Options that the group was made with; None if it had none. split_group copies them."""
        return self._options

    @functools.cached_property
    def uid(self) -> int:
        """A number of the group in this process."""
        return next(_groups)

    @property
    def mem_allocator(self) -> Any:
        """The allocator of the library's memory (ncclMemAlloc), for ``torch.cuda.MemPool``. Every communicator
        on the device registers its memory. Groups without a library have none, as hasattr says."""
        try:
            place = self._place("mem_allocator")
        except UnsupportedError as error:
            raise _NoAllocatorError(*error.args, op="mem_allocator") from None
        return allocator(*place)

    def register_mem_pool(self, pool: Any, symm: bool = False) -> None:
        """Register the memory that a ``torch.cuda.MemPool`` has by now. A later call registers what is new since.
        Memory of :attr:`mem_allocator` needs no call.

        With ``symm`` it becomes NCCL's symmetric memory (``ncclCommWindowRegister``). That is collective: all ranks
        have allocated as many segments of the same sizes, and use the same place of a segment in each operation. The
        pool's memory is that of :attr:`mem_allocator`. It stays until :meth:`deregister_mem_pool`, which is collective
        then, or the group's end."""
        comm, device = self._library("register_mem_pool")
        known = self._pools.setdefault((tuple(pool.id), symm), {})
        new = {
            segment["address"]: segment["total_size"]
            for segment in pool.snapshot()
            if segment["device"] == device.index and known.get(segment["address"]) != segment["total_size"]
        }
        if symm:
            _symmetric(_lib.library.chorus_register_symmetric, comm, new)
            known.update(new)
            return
        for at, size in new.items():
            check(_lib.library.chorus_register(comm.handle, at, size))
            known[at] = size

    def deregister_mem_pool(self, pool: Any) -> None:
        """Deregister what :meth:`register_mem_pool` has registered of a pool."""
        comm, _ = self._library("deregister_mem_pool")
        name = tuple(pool.id)
        if (name, True) in self._pools:
            _symmetric(_lib.library.chorus_deregister_symmetric, comm, self._pools.pop((name, True)))
        for at, size in self._pools.pop((name, False), {}).items():
            check(_lib.library.chorus_deregister(comm.handle, at, size))

    @functools.cached_property
    def _pools(self) -> dict[tuple[tuple[int, int], bool], dict[int, int]]:
        """The segments that are registered, by pool and whether as symmetric memory: sizes by address."""
        return {}

    def get_error(self) -> ErrorType:
        """Why the group is broken, as PyTorch names it; ``ErrorType.SUCCESS`` if it isn't."""
        error = self.failure
        if error is None:
            return ErrorType.SUCCESS
        if isinstance(error, TimeoutError):
            return ErrorType.TIMEOUT
        theirs = isinstance(error, PeerLostError) or isinstance(error, AbortedError) and error.by != self.comm.rank
        return ErrorType.REMOTE_ERROR if theirs else ErrorType.COMM_ERROR

    def comm_split_count(self) -> int:
        """How many splits this rank has taken part in."""
        return self._split_count

    def perform_nocolor_split(self, device: torch.device | None = None) -> None:
        """Take part in a split in which this rank is in no part; the others call ``split_group``."""
        self.comm.split([])
        self._split_count += 1

    def _is_initialized(self) -> bool:
        """Whether the communicator was made and isn't finalized."""
        comm = vars(self).get("comm")
        return comm is not None and not comm.finalized

    def suspend(self) -> None:
        """Release the device memory that the library holds for the group, until :meth:`resume`. All ranks call both."""
        self._library("suspend")[0].suspend()

    def resume(self) -> None:
        """Allocate again the memory that :meth:`suspend` has released."""
        self._library("resume")[0].resume()

    def _place(self, op: str) -> tuple[str, torch.device]:
        """The library's backend that serves the group's tensors on GPUs, and the device."""
        for part in self._libraries.values():
            place: tuple[str, torch.device] = part._place(op)
            return place
        comm, device = self._library(op)
        return comm.backend, device

    def _library(self, op: str) -> tuple[Communicator, torch.device]:
        """The group's communicator over a library for GPUs, and its device."""
        for part in self._libraries.values():
            found: tuple[Communicator, torch.device] = part._library(op)
            return found
        comm = self.comm
        if comm.backend not in LIBRARIES or comm.device is None:
            raise UnsupportedError(
                f"chorus: {op} is for groups of GPUs; this one's operations are carried out by {comm.backend}", op=op
            )
        return comm, comm.device

