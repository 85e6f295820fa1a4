"""One-sided windows."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch

from chorus import _lib, memory
from chorus._comm import Communicator
from chorus._tensors import moved_as, owner, plain, reduced_as
from chorus._window import Window
from chorus.errors import UnsupportedError
from chorus.process_group import timeout_ns
from chorus.torchcomms._native import NativeBackend
from chorus.torchcomms._types import ReduceOp, TorchCommWinAccessType, TorchCommWindowAttr
from chorus.torchcomms._work import TorchWork

_Hints = Mapping[str, str] | None


class TorchCommWindow:
    """A tensor of every rank, with one-sided access for the others.

    :meth:`put` is done when its tensor may be reused; the target sees the data once it has waited for a
    :meth:`signal` that followed. Signals are counted for each window, pair of ranks and slot;
    :meth:`wait_signal` consumes one. Offsets count elements. Bounds and dtypes are checked before
    anything moves; errors are those of the communicator.

    Operations on a tensor of a device are enqueued on the current stream, which reports their errors. With ``async_op``
    they run on a stream of their own, after the current stream's earlier work. :meth:`map_remote_tensor` is not
    supported for devices, as the host can't access their memory.
    """

    def __init__(self, impl: NativeBackend) -> None:
        self._impl = impl
        self._window: Window | None = None
        self._tensor: torch.Tensor | None = None
        self._owning = True

    # ---- registration ----

    def tensor_register(self, tensor: torch.Tensor, owning: bool = True) -> None:
        """Expose a tensor to all ranks. Collective; the dtype is the same on all ranks, sizes may differ.

        Shapes: contiguous. Memory that peers can map is faster and can be reached by
        :meth:`map_remote_tensor`. The window holds the tensor in any case; without ``owning``
        :meth:`get_tensor` gives None.
        """
        if self._window is not None:
            raise self._comm.invalid("tensor_register", "the window has a tensor already; deregister it first")
        tensor = self._plain(tensor, "tensor_register")
        dtype, width = moved_as(tensor)
        place = None if tensor.is_cpu else tensor.device
        self._window = Window(self._comm, tensor.data_ptr(), tensor.numel() * width, dtype, tensor, place)
        self._tensor, self._owning, self._width = tensor, owning, width

    def tensor_deregister(self) -> None:
        """End the registration. Collective; tensors of :meth:`map_remote_tensor` must not be used afterwards."""
        window, _ = self._registered("tensor_deregister")
        self._window = self._tensor = None
        window.close()

    # ---- operations ----

    def put(
        self,
        tensor: torch.Tensor,
        dst_rank: int,
        target_offset_nelems: int,
        async_op: bool = False,
        hints: _Hints = None,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """Write a tensor into rank ``dst_rank``'s, from its element ``target_offset_nelems``."""
        return self._move(_lib.PUT, "put", tensor, dst_rank, target_offset_nelems, async_op, timeout)

    def get(
        self,
        tensor: torch.Tensor,
        src_rank: int,
        source_offset_nelems: int,
        async_op: bool = False,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """Read rank ``src_rank``'s tensor, from its element ``source_offset_nelems``. Not in the original."""
        return self._move(_lib.GET, "get", tensor, src_rank, source_offset_nelems, async_op, timeout)

    def accumulate(
        self,
        tensor: torch.Tensor,
        dst_rank: int,
        target_offset_nelems: int,
        op: ReduceOp,
        async_op: bool = False,
        timeout: timedelta | None = None,
    ) -> TorchWork:
        """Combine a tensor into rank ``dst_rank``'s; each element atomically. Not in the original."""
        if not isinstance(op, ReduceOp):
            raise TypeError(f"accumulate: op must be a ReduceOp of torchcomms, not {op!r}")
        reduced_as(tensor, "accumulate", self._comm.invalid)
        return self._move(_lib.ACCUMULATE, "accumulate", tensor, dst_rank, target_offset_nelems, async_op, timeout,
            reduction=op.type.value)  # fmt: skip

    def signal(
        self,
        peer_rank: int | None = None,
        async_op: bool = False,
        hints: _Hints = None,
        timeout: timedelta | None = None,
        *,
        slot: int = 0,
        dst_rank: int | None = None,
    ) -> TorchWork:
        """Signal rank ``peer_rank``, which is also ``dst_rank``, after this rank's earlier operations there."""
        if (peer_rank is None) == (dst_rank is None):
            raise TypeError("signal: one rank must be given, as peer_rank or as dst_rank")
        rank = peer_rank if peer_rank is not None else dst_rank
        assert rank is not None
        return self._signal(_lib.SIGNAL, "signal", rank, async_op, timeout, slot)

    def wait_signal(
        self,
        peer_rank: int,
        async_op: bool = False,
        hints: _Hints = None,
        timeout: timedelta | None = None,
        *,
        slot: int = 0,
    ) -> TorchWork:
        """Wait for a signal of rank ``peer_rank``, and consume it."""
        return self._signal(_lib.WAIT_SIGNAL, "wait_signal", peer_rank, async_op, timeout, slot)

    def fence(self, async_op: bool = False, timeout: timedelta | None = None) -> TorchWork:
        """Wait until this rank's earlier operations are complete on all ranks. Not in the original."""
        window, _ = self._registered("fence")
        op = _lib.WindowOp(kind=_lib.FENCE, rank=_lib.ANY, timeout_ns=timeout_ns(timeout))
        return TorchWork(window.run(op, async_op, self))

    def map_remote_tensor(self, rank: int) -> torch.Tensor:
        """Rank ``rank``'s tensor itself, to load from and store to, until :meth:`tensor_deregister`.

        Shapes: this rank's if the sizes are equal, else one dimension. Raises
        :class:`chorus.UnsupportedError` where :meth:`get_attr` says SEPARATE.
        """
        window, mine = self._registered("map_remote_tensor")
        self._in_range(rank, "map_remote_tensor")
        _, count = window.peer(rank)
        shape = mine.shape if count == mine.numel() * self._width else (count // self._width,)
        if count == 0:
            return torch.empty(shape, dtype=mine.dtype, device=mine.device)
        nbytes = count // self._width * mine.element_size()
        memory = (ctypes.c_uint8 * nbytes).from_address(window.map(rank))
        return torch.frombuffer(memory, dtype=torch.uint8).view(mine.dtype).view(shape)

    # ---- properties ----

    def get_attr(self, peer_rank: int) -> TorchCommWindowAttr:
        """How rank ``peer_rank``'s tensor can be reached."""
        window, _ = self._registered("get_attr")
        self._in_range(peer_rank, "get_attr")
        access = TorchCommWinAccessType
        mapped, _ = window.peer(peer_rank)
        return TorchCommWindowAttr(access.WIN_ACCESS_TYPE_UNIFIED if mapped else access.WIN_ACCESS_TYPE_SEPARATE)

    def get_tensor(self) -> torch.Tensor | None:
        """This rank's tensor; None if there is none, or it was registered without ``owning``."""
        return self._tensor if self._owning else None

    def get_size(self) -> int:
        """The bytes that this rank exposes."""
        return 0 if self._tensor is None else self._tensor.numel() * self._tensor.element_size()

    @property
    def dtype(self) -> torch.dtype:
        return self._registered("dtype")[1].dtype

    @property
    def shape(self) -> list[int]:
        return list(self._registered("shape")[1].shape)

    @property
    def device(self) -> torch.device:
        """Where the tensor is; the communicator's device if there is none."""
        return self._tensor.device if self._tensor is not None else self._comm.device or torch.device("cpu")

    def __copy__(self) -> TorchCommWindow:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> TorchCommWindow:
        """A window of its own on a copy of the tensor. Collective."""
        window = memo[id(self)] = TorchCommWindow(self._impl)
        if self._tensor is not None:
            mine = self._tensor.detach()
            # Memory of the same kind; filled before the others can write there.
            window.tensor_register(
                memory.empty(mine.shape, dtype=mine.dtype).copy_(mine) if memory.is_shared(mine) else mine.clone()
            )
        return window

    def clone(self) -> TorchCommWindow:
        """The same as copy.deepcopy."""
        return self.__deepcopy__({})

    def get_device_window(self, signal_count: int = -1, counter_count: int = -1, barrier_count: int = 1) -> int:
        """Not there: :class:`chorus.UnsupportedError`."""
        raise self._unsupported("get_device_window")

    def register_local_buffer(self, tensor: torch.Tensor) -> int:
        """Not there: :class:`chorus.UnsupportedError`."""
        raise self._unsupported("register_local_buffer")

    def deregister_local_buffer(self, handle: int) -> None:
        """Not there: :class:`chorus.UnsupportedError`."""
        raise self._unsupported("deregister_local_buffer")

    # ---- helpers ----

    def _move(
        self,
        kind: int,
        op: str,
        tensor: torch.Tensor,
        rank: int,
        offset: int,
        async_op: bool,
        timeout: timedelta | None,
        reduction: int = 0,
    ) -> TorchWork:
        window, mine = self._registered(op)
        self._in_range(rank, op)
        tensor = self._plain(tensor, op)
        if tensor.device != mine.device or tensor.dtype != mine.dtype:
            raise self._comm.invalid(op, f"the tensor is {tensor.dtype} on {tensor.device}; the window is {mine.dtype} on {mine.device}")  # noqa: E501
        _, count = window.peer(rank)
        if offset < 0 or offset + tensor.numel() > count // self._width:
            size = mine.element_size()
            raise self._comm.invalid(
                op,
                f"Requested size ({(offset + tensor.numel()) * size} bytes) exceeds the window size "
                f"({count // self._width * size} bytes) of rank {rank}; the offset is {offset} elements",
            )
        n = tensor.numel() * self._width
        moved = _lib.WindowOp(kind=kind, rank=rank, offset=offset * self._width, data=tensor.data_ptr(), count=n,
            reduction=reduction, timeout_ns=timeout_ns(timeout))  # fmt: skip
        return TorchWork(window.run(moved, async_op, (tensor, self)))

    def _signal(
        self, kind: int, op: str, rank: int, async_op: bool, timeout: timedelta | None, slot: int
    ) -> TorchWork:
        window, _ = self._registered(op)
        self._in_range(rank, op)
        if not 0 <= slot < 2**31:  # the library's type; the library checks the number of slots
            raise self._comm.invalid(op, f"slot {slot} is out of range")
        signal = _lib.WindowOp(kind=kind, rank=rank, slot=slot, timeout_ns=timeout_ns(timeout))
        return TorchWork(window.run(signal, async_op, self))

    @property
    def _comm(self) -> Communicator:
        return self._impl.comm

    def _plain(self, tensor: torch.Tensor, op: str) -> torch.Tensor:
        self._impl.here([tensor], op)
        tensor = owner(tensor, op, self._comm.invalid)
        if not plain(tensor):  # the memory of a conjugated or negated view has other values
            raise self._comm.invalid(op, "the tensor must be contiguous, and no view that conjugates or negates")
        return tensor

    def _registered(self, op: str) -> tuple[Window, torch.Tensor]:
        if self._window is None or self._tensor is None:
            raise self._comm.invalid(op, "the window has no tensor; register one first")
        return self._window, self._tensor

    def _in_range(self, rank: int, op: str) -> None:
        if not 0 <= rank < self._comm.size:
            raise self._comm.invalid(op, f"the rank must be in range [0, {self._comm.size}), but got {rank}")

    def _unsupported(self, op: str) -> UnsupportedError:
        return UnsupportedError(f"chorus: {op}: windows have no device side", comm=self._comm.name, op=op)
