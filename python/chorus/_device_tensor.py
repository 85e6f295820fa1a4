"""Tensors in the memory of the library's devices."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.utils.dlpack

from chorus import _lib
from chorus._device import DeviceLike, Stream, check, current_stream, device, handle_of, resolve
from chorus._tensors import shape_of
from chorus.errors import InvalidArgumentError, UnsupportedError

_library = _lib.library

# Types of device in DLPack: DLDeviceType.
_DL_CPU, _DL_EXTENSION = 1, 12


class _Memory:
    """Memory of a device, which goes back to its allocator with the last tensor in it."""

    def __init__(self, d: device, nbytes: int, stream: Stream) -> None:
        memory = ctypes.c_void_p()
        check(_library.chorus_device_alloc(handle_of(d), max(nbytes, 1), stream.handle, ctypes.byref(memory)))
        assert memory.value is not None
        self.at: int = memory.value
        self.bytes = nbytes
        weakref.finalize(self, _library.chorus_device_free, memory.value).atexit = False

    def data_ptr(self) -> int:
        return self.at

    def nbytes(self) -> int:
        return self.bytes


class _Host:
    """Memory of a CPU tensor of somebody else's."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.at = tensor.data_ptr()

    def data_ptr(self) -> int:
        return self.at

    def nbytes(self) -> int:
        return self.tensor.nbytes


class DeviceTensor:
    """A contiguous tensor in the memory of a device, for communicators, copies and kernels; it has no operators.

    :func:`chorus.accelerator.empty` and its kin make them; ``x.cpu()`` is a torch tensor of the elements, and
    ``x.copy_(tensor)`` the way back. Views share memory. The memory may be dropped while work that was enqueued uses it.

    Attributes:
        shape, dtype: as torch tensors have them. device: where the memory is.
    """

    __slots__ = ("_memory", "_offset", "shape", "dtype", "device", "__weakref__")

    layout = torch.strided

    def __init__(self, memory: _Memory | _Host, offset: int, shape: tuple[int, ...], dtype: torch.dtype, d: device) -> None:
        self._memory = memory
        self._offset = offset
        self.shape = shape
        self.dtype = dtype
        self.device = d

    # ---- what it is ----

    @property
    def is_cpu(self) -> bool:
        return self.device.type == "cpu"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel() * self.dtype.itemsize

    def dim(self) -> int:
        return len(self.shape)

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        return math.prod(self.shape)

    def element_size(self) -> int:
        return self.dtype.itemsize

    def data_ptr(self) -> int:
        """The address, which the host can't follow unless the device is the CPU."""
        return self._memory.at + self._offset

    def is_contiguous(self) -> bool:
        return True

    def is_neg(self) -> bool:
        return False

    def is_conj(self) -> bool:
        return False

    def detach(self) -> DeviceTensor:
        return self

    def untyped_storage(self) -> _Memory | _Host:
        """The memory, of which there is ``data_ptr()`` and ``nbytes()``."""
        return self._memory

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"chorus.DeviceTensor(shape={self.shape}, dtype={self.dtype}, device={str(self.device)!r})"

    # ---- views ----

    def view(self, *shape: Any) -> DeviceTensor:
        """The same elements in another shape; one dimension may be -1."""
        asked = shape_of(shape, least=-1)
        to = list(asked)
        if -1 in to:
            rest = -math.prod(to)
            to[to.index(-1)] = self.numel() // rest if rest > 0 else 0
        if -1 in to or math.prod(to) != self.numel():
            raise InvalidArgumentError(f"chorus: shape {list(asked)} is invalid for {self.numel()} elements")
        return DeviceTensor(self._memory, self._offset, tuple(to), self.dtype, self.device)

    reshape = view

    def flatten(self) -> DeviceTensor:
        return self.view(-1)

    def narrow(self, dim: int, start: int, length: int) -> DeviceTensor:
        """Rows of the first dimension, which alone leave it contiguous."""
        if dim != 0 or not self.shape:
            raise UnsupportedError(f"chorus: narrow along dimension {dim} of {self.dim()}: only the first leaves the tensor contiguous")  # fmt: skip
        if not 0 <= start <= start + length <= self.shape[0]:
            raise InvalidArgumentError(f"chorus: rows {start} to {start + length} of {self.shape[0]}")
        row = self.dtype.itemsize * math.prod(self.shape[1:])
        return DeviceTensor(self._memory, self._offset + start * row, (length, *self.shape[1:]), self.dtype, self.device)

    def __getitem__(self, at: int | slice) -> DeviceTensor:
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            if step != 1:
                raise UnsupportedError("chorus: a slice with a step is not contiguous")
            return self.narrow(0, start, max(0, stop - start))
        n = len(self)
        if not -n <= at < n:
            raise IndexError(f"index {at} is out of range for {n} rows")
        return self.narrow(0, at % n, 1).view(self.shape[1:])

    def __iter__(self) -> Iterator[DeviceTensor]:
        return (self[i] for i in range(len(self)))

    def chunk(self, chunks: int) -> list[DeviceTensor]:
        """Like ``torch.chunk`` along the first dimension."""
        if chunks < 1:
            raise InvalidArgumentError(f"chorus: chunk into {chunks}; it must be 1 at least")
        if not len(self):
            return [self] * chunks
        rows = -(-len(self) // chunks)
        return [self[i : i + rows] for i in range(0, len(self), rows)]

    # ---- copies ----

    def copy_(self, src: torch.Tensor | DeviceTensor, non_blocking: bool = False) -> DeviceTensor:
        """Copy the elements of another tensor of this shape, in the order of the current stream.

        From a CPU tensor it returns when that may be changed again, unless it's pinned memory
        (:func:`chorus.accelerator.empty_pinned`) and ``non_blocking`` is set. Types are converted on the host.
        """
        _at_hand(src, "copy_")
        if tuple(src.shape) != self.shape:
            raise InvalidArgumentError(f"chorus: copy_ of shape {tuple(src.shape)} to {self.shape}")
        if isinstance(src, torch.Tensor):
            if src.dtype != self.dtype or not src.is_contiguous() or src.is_neg() or src.is_conj():
                src, non_blocking = src.detach().to(self.dtype).resolve_conj().resolve_neg().contiguous(), False
            self._copy(self, src, non_blocking and _is_pinned(src))
        elif src.dtype != self.dtype:
            self.copy_(src.cpu())
        elif src.device == self.device or src.is_cpu or self.is_cpu:
            self._copy(self, src, not (src.is_cpu or self.is_cpu))
        else:  # between devices both streams take part
            here, there = current_stream(self.device), current_stream(src.device)
            there.wait_stream(here)
            check(_library.chorus_stream_uses(here.handle, self.data_ptr()))
            check(_library.chorus_stream_copy(there.handle, self.data_ptr(), src.data_ptr(), self.nbytes))
            here.wait_stream(there)
        return self

    def _copy(self, to: Any, source: Any, non_blocking: bool) -> None:
        stream = current_stream(source.device if self.is_cpu and isinstance(source, DeviceTensor) else self.device)
        check(_library.chorus_stream_copy(stream.handle, to.data_ptr(), source.data_ptr(), self.nbytes))
        if not non_blocking:
            try:
                stream.synchronize()
            except BaseException:
                # Interrupted, or out of time: the copy may be under way yet.
                stream.hold((to, source))
                raise

    def copy_to(self, dst: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        """Copy the elements into a CPU tensor of this shape; see :meth:`copy_`."""
        _at_hand(dst, "copy_to")
        if tuple(dst.shape) != self.shape:
            raise InvalidArgumentError(f"chorus: copy_to of {self.shape} to shape {tuple(dst.shape)}")
        if dst.dtype == self.dtype and dst.is_contiguous() and not dst.is_neg() and not dst.is_conj():
            self._copy(dst, self, non_blocking and _is_pinned(dst))
        else:
            dst.copy_(self.cpu())
        return dst

    def cpu(self) -> torch.Tensor:
        """A torch tensor with the elements: a copy, when the current stream's work so far is done."""
        if self.is_cpu:
            return self._host().clone()
        return self.copy_to(torch.empty(self.shape, dtype=self.dtype))

    def to(self, where: DeviceLike, non_blocking: bool = False) -> Any:
        """A copy on another device, or a torch tensor for ``"cpu"``; itself if it's there."""
        if str(where) == "cpu":
            return self.cpu()
        d = resolve(where)
        return self if d == self.device else empty(self.shape, dtype=self.dtype, device=d).copy_(self, non_blocking)

    def clone(self) -> DeviceTensor:
        return empty(self.shape, dtype=self.dtype, device=self.device).copy_(self)

    def fill_(self, value: Any) -> DeviceTensor:
        """Set all elements, in the order of the current stream."""
        one = torch.full((), value, dtype=self.dtype)
        stream = current_stream(self.device)
        if self.is_cpu:
            self._host().fill_(value)
        else:
            check(_library.chorus_stream_fill(stream.handle, self.data_ptr(), self.nbytes, one.data_ptr(), one.element_size()))
        return self

    def zero_(self) -> DeviceTensor:
        return self.fill_(0)

    def item(self) -> Any:
        return self.cpu().item()

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def record_stream(self, stream: Stream) -> None:
        """Keep the memory from others until the work that the stream has is done: for work that Chorus doesn't know of."""
        check(_library.chorus_stream_uses(stream.handle, self.data_ptr()))

    def _host(self) -> torch.Tensor:
        """The elements of a tensor of the CPU, without a copy."""
        if self.numel() == 0:
            return torch.empty(self.shape, dtype=self.dtype)
        keep = _Exported(self)
        return torch.frombuffer(keep.bytes, dtype=torch.uint8).view(self.dtype).view(self.shape)

    # ---- exchange with others ----

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"can't convert {self.device} device type tensor to numpy. Use .cpu() to copy the tensor to host memory first.")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_DL_CPU, 0) if self.is_cpu else (_DL_EXTENSION, self.device.index or 0)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule: of the memory if the host may touch it, of a copy if one on the CPU is asked for.

        Otherwise BufferError: who got the address of this memory would fault.
        """
        if self.is_cpu:
            return (self.cpu() if copy else self._host()).__dlpack__()
        if dl_device is not None and tuple(dl_device) == (_DL_CPU, 0) and copy is not False:
            return self.cpu().__dlpack__()
        raise BufferError(
            f"chorus: the memory of {self.device} can't be exported by DLPack: host code that touches it faults, and no other "
            "library knows the device. Copy it: x.cpu(), or __dlpack__(dl_device=(1, 0))"
        )


def _at_hand(tensor: torch.Tensor | DeviceTensor, op: str) -> None:
    """Refuse what no copy of the library can reach."""
    if isinstance(tensor, DeviceTensor):
        return
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{op}: expected a tensor, not {type(tensor).__name__}")
    if not tensor.is_cpu or tensor.layout is not torch.strided:
        raise InvalidArgumentError(
            f"chorus: {op}: the tensor is on {tensor.device}, of layout {tensor.layout}; it must be a dense one on the CPU", op=op
        )


class _Exported:
    """The memory of a tensor of the CPU as PyTorch can hold on to it."""

    def __init__(self, tensor: DeviceTensor) -> None:
        self.bytes = (ctypes.c_uint8 * tensor.nbytes).from_address(tensor.data_ptr())
        # The array is what PyTorch keeps; it keeps the memory in turn.
        weakref.finalize(self.bytes, _forget, tensor._memory).atexit = False


def _forget(_: Any) -> None:
    """Nothing: to be called with what was held until then."""


def empty(*size: Any, dtype: torch.dtype | None = None, device: DeviceLike = None) -> DeviceTensor:
    """A tensor with undefined contents on a device, by default the current one, for its current stream."""
    shape = shape_of(size)
    dtype = dtype or torch.get_default_dtype()
    d = resolve(device)
    memory = _Memory(d, math.prod(shape) * dtype.itemsize, current_stream(d))
    return DeviceTensor(memory, 0, shape, dtype, d)


def zeros(*size: Any, dtype: torch.dtype | None = None, device: DeviceLike = None) -> DeviceTensor:
    """:func:`empty`, filled with zeros in the order of the current stream."""
    return empty(*size, dtype=dtype, device=device).zero_()


def full(size: Sequence[int], value: Any, *, dtype: torch.dtype | None = None, device: DeviceLike = None) -> DeviceTensor:
    """:func:`empty`, filled with a value."""
    return empty(size, dtype=dtype, device=device).fill_(value)


def from_torch(tensor: torch.Tensor, device: DeviceLike = None, non_blocking: bool = False) -> DeviceTensor:
    """A copy of a CPU tensor on a device."""
    return empty(tuple(tensor.shape), dtype=tensor.dtype, device=device).copy_(tensor, non_blocking)


def from_dlpack(x: Any) -> DeviceTensor:
    """A tensor over the memory of another library's: of the host, without a copy. A DeviceTensor is itself.

    Raises BufferError for memory that isn't the host's.
    """
    if isinstance(x, DeviceTensor):
        return x
    if (kind := x.__dlpack_device__()[0]) != _DL_CPU:
        raise BufferError(f"chorus: from_dlpack of memory of DLPack's device type {int(kind)}; only the host's can be shared")
    host = torch.utils.dlpack.from_dlpack(x)
    if not host.is_contiguous():
        raise BufferError("chorus: from_dlpack of a tensor that isn't contiguous")
    return DeviceTensor(_Host(host), 0, tuple(host.shape), host.dtype, resolve("cpu"))


# ---- pinned memory ----

_pinned: dict[int, int] = {}  # what there is, by address: its size


def empty_pinned(*size: Any, dtype: torch.dtype | None = None, device: DeviceLike = None) -> torch.Tensor:
    """A CPU tensor in pinned memory, with which copies of a device need not wait."""
    shape = shape_of(size)
    dtype = dtype or torch.get_default_dtype()
    nbytes = max(1, math.prod(shape) * dtype.itemsize)
    memory = ctypes.c_void_p()
    check(_library.chorus_pin(handle_of(resolve(device)), nbytes, ctypes.byref(memory)))
    assert memory.value is not None
    array = (ctypes.c_uint8 * nbytes).from_address(memory.value)
    _pinned[memory.value] = nbytes
    weakref.finalize(array, _unpin, memory.value).atexit = False
    return torch.frombuffer(array, dtype=torch.uint8)[: math.prod(shape) * dtype.itemsize].view(dtype).view(shape)


def _unpin(at: int) -> None:
    _pinned.pop(at, None)
    _library.chorus_unpin(at)


def _is_pinned(tensor: torch.Tensor) -> bool:
    return tensor.untyped_storage().data_ptr() in _pinned


