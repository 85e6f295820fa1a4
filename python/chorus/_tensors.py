"""Tensors as the library takes them: contiguous, by address, with the codes of their types."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from chorus import _lib
from chorus.errors import InvalidArgumentError

Refusal = Callable[[str, str], InvalidArgumentError]
"""A function that makes a group's or communicator's exception from an operation and what is wrong with it."""

Reduction = tuple[int, float, torch.Tensor | None]
"""The library's number of a reduction, and PREMUL_SUM's factor as a number or a tensor."""

# The element types. Tensors of others can be moved, not reduced; they are sent as bytes.
DTYPES: dict[torch.dtype, int] = {
    torch.bool: _lib.BOOL,
    torch.uint8: _lib.UINT8,
    torch.uint16: _lib.UINT16,
    torch.uint32: _lib.UINT32,
    torch.uint64: _lib.UINT64,
    torch.int8: _lib.INT8,
    torch.int16: _lib.INT16,
    torch.int32: _lib.INT32,
    torch.int64: _lib.INT64,
    torch.float16: _lib.FLOAT16,
    torch.bfloat16: _lib.BFLOAT16,
    torch.float8_e4m3fn: _lib.FLOAT8_E4M3FN,
    torch.float8_e5m2: _lib.FLOAT8_E5M2,
    torch.float32: _lib.FLOAT32,
    torch.float64: _lib.FLOAT64,
    torch.complex64: _lib.COMPLEX64,
    torch.complex128: _lib.COMPLEX128,
}


def plain(tensor: torch.Tensor) -> bool:
    """Whether a strided tensor's memory is just its elements, one after the other."""
    return tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()


def shape_of(size: tuple[Any, ...]) -> tuple[int, ...]:
    """The shape that ``size`` stands for: integers, or one sequence of them."""
    if len(size) == 1 and isinstance(size[0], Sequence):
        size = tuple(size[0])
    shape = tuple(operator.index(n) for n in size)
    if min(shape, default=0) < 0:
        raise InvalidArgumentError(f"chorus: shape {shape} has a negative dimension")
    return shape


def owner(tensor: torch.Tensor, op: str, refuse: Refusal) -> torch.Tensor:
    """The tensor that has this one's memory: itself, or what an asynchronous functional collective fills.

    Refuses a tensor without memory: a DTensor, a fake tensor, a tensor wrapped by torch.func, and a zero tensor made by
    autograd.
    """
    try:
        if tensor.data_ptr() or not tensor.numel():
            return tensor
    except RuntimeError:
        pass
    if wait := getattr(tensor, "trigger_wait", None):  # an AsyncCollectiveTensor
        return owner(wait(), op, refuse)
    kind, instead = type(tensor).__name__, ""
    if tensor._is_zerotensor():
        kind, instead = "zero tensor", "; pass its clone()"
    elif hasattr(tensor, "to_local"):
        instead = "; pass its to_local()"
    raise refuse(op, f"a {kind} has no memory of its own{instead}")


def _overlapping(tensor: torch.Tensor) -> bool:
    """Whether some of a tensor's elements lie in the same memory."""
    dims = sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.size(), strict=True) if size > 1)
    reach, within = 0, True  # the span of the dimensions before this one; that no stride is inside of it
    for stride, size in dims:
        within &= stride > reach
        reach += stride * (size - 1)
    if within or not tensor.numel():
        return False
    if not dims[0][0]:
        return True
    places = torch.zeros(1, dtype=torch.int64)  # few tensors come here
    for stride, size in dims:
        places = (places.unsqueeze(1) + torch.arange(size) * stride).flatten()
    return len(set(places.tolist())) < len(places)


class Staging:
    """The contiguous copies of the tensors of one operation, ``op``, and where they go at the end; ``refuse`` makes the
    exception for a tensor that it doesn't take."""

    __slots__ = ("op", "refuse", "back", "device")

    def __init__(self, op: str, refuse: Refusal) -> None:
        self.op = op
        self.refuse = refuse
        self.back: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.device: torch.device | None = None  # that the tensors are on; None: the host

    def input(self, tensor: torch.Tensor) -> torch.Tensor:
        tensor = owner(tensor, self.op, self.refuse)
        if not tensor.is_cpu:
            self.device = tensor.device
        if plain(tensor):
            return tensor
        return tensor.resolve_conj().resolve_neg().contiguous()

    def output(self, tensor: torch.Tensor, load: bool = False, apart: bool = False) -> torch.Tensor:
        """A tensor to fill in place of this one; ``load`` if its elements are read as well, ``apart`` if it must not be
        this one."""
        tensor = owner(tensor, self.op, self.refuse)
        if not tensor.is_cpu:
            self.device = tensor.device
        if plain(tensor) and not apart:
            return tensor
        if _overlapping(tensor):
            sizes, strides = tuple(tensor.size()), tensor.stride()
            raise self.refuse(
                self.op, f"elements of a tensor to be written, of size {sizes} and strides {strides}, share memory"
            )
        if load:
            copy = tensor.detach().resolve_conj().resolve_neg().contiguous()
            copy = copy.clone() if copy.data_ptr() == tensor.data_ptr() else copy
        else:
            copy = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        self.back.append((tensor.detach(), copy))
        return copy

    def outputs(
        self, tensors: Sequence[torch.Tensor], sources: Sequence[torch.Tensor], own: int = -1
    ) -> list[torch.Tensor]:
        """Tensors to fill in place of these.

        PyTorch's programs pass outputs that overlap each other, or inputs: these are filled at the end, in their order.
        If one of the lists has only one tensor, that may be entry ``own`` of the other.
        """
        tensors = [owner(t, self.op, self.refuse) for t in tensors]
        written, read = [_span(t) for t in tensors], [_span(t) for t in sources]
        ordered = sorted(span for span in written if span[0] < span[1])
        apart = any(end > at for (_, end), (at, _) in zip(ordered, ordered[1:], strict=False))
        for i, (at, end) in enumerate(written):
            for j, (begin, stop) in enumerate(read):
                if max(at, begin) < min(end, stop):
                    apart |= (at, end) != (begin, stop) or own != (i if len(read) == 1 else j)
        return [self.output(t, apart=apart) for t in tensors]

    def result(self, tensor: torch.Tensor, source: torch.Tensor, block: int = -1, load: bool = False) -> torch.Tensor:
        """A tensor to fill in place of this one, which is filled at the end if it overlaps the input.

        The smaller of both may be ``block`` of the larger, if that isn't negative.
        """
        tensor = owner(tensor, self.op, self.refuse)
        (at, end), (begin, stop) = _span(tensor), _span(source)
        apart = at < stop and begin < end
        if apart and block >= 0:
            small = min(end - at, stop - begin)
            apart = (begin - at if small == stop - begin else at - begin) != block * small
        return self.output(tensor, load, apart)

    def after(self) -> Callable[[], None] | None:
        if not self.back:
            return None

        def copy_back() -> None:
            for tensor, copy in self.back:
                with torch.inference_mode(tensor.is_inference()):  # as where it was made; this may be another thread
                    tensor.copy_(copy)

        return copy_back


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Where a contiguous tensor's memory begins and ends."""
    at = tensor.data_ptr()
    return at, at + tensor.nbytes


def single(tensors: Sequence[torch.Tensor], op: str, refuse: Refusal) -> torch.Tensor:
    """The tensor of a list that PyTorch passes where there is only one."""
    if len(tensors) != 1:
        raise refuse(op, f"takes a list of one tensor, not of {len(tensors)}")
    return tensors[0]


def dense(tensor: torch.Tensor, op: str, refuse: Refusal) -> None:
    """Refuse a sparse tensor, and a quantized one, whose elements mean nothing without its scales."""
    if tensor.layout is not torch.strided:
        raise refuse(op, f"the tensor's layout is {tensor.layout}; it must be dense")
    if tensor.is_quantized:
        raise refuse(op, f"the tensor is quantized, as {tensor.dtype}; pass its int_repr(), and the scales separately")


def check_devices(tensors: Sequence[torch.Tensor], op: str, refuse: Refusal) -> None:
    """Refuse tensors that aren't all on one device, or not dense."""
    first = tensors[0].device
    for tensor in tensors:
        if tensor.device != first:
            raise refuse(
                op, f"a tensor is on {tensor.device}, and another on {'the CPU' if first.type == 'cpu' else first}"
            )
        dense(tensor, op, refuse)


def moved_as(tensor: torch.Tensor) -> tuple[int, int]:
    """The type under which a tensor's elements are moved, and how many of it make one."""
    code = DTYPES.get(tensor.dtype)
    return (code, 1) if code else (_lib.UINT8, tensor.element_size())


def reduced_as(tensor: torch.Tensor, op: str, refuse: Refusal) -> int:
    """The type under which a tensor's elements are reduced."""
    code = DTYPES.get(tensor.dtype)
    if code is None:
        raise refuse(op, f"{tensor.dtype} can't be reduced")
    return code


def premultiplied(factor: float | torch.Tensor, dtype: torch.dtype, op: str, refuse: Refusal) -> Reduction:
    """PREMUL_SUM with a factor; a tensor must be of the data's ``dtype``."""
    if not isinstance(factor, torch.Tensor):
        return _lib.PREMUL_SUM, float(factor), None
    if factor.dtype != dtype:
        raise refuse(op, f"PREMUL_SUM's factor is {factor.dtype}; it must have the data's type, {dtype}")
    return _lib.PREMUL_SUM, 0.0, Staging(op, refuse).input(factor.detach().cpu())


def buffers(tensors: Sequence[torch.Tensor], dtype: torch.dtype, width: int, op: str, refuse: Refusal) -> list[int]:
    """A list of contiguous tensors of one type as addresses and counts: address, count, address, count, and so on."""
    values: list[int] = []
    for i, tensor in enumerate(tensors):
        dense(tensor, op, refuse)
        if tensor.dtype != dtype:
            raise refuse(op, f"tensor {i} of a list is {tensor.dtype}, another {dtype}")
        values += (tensor.data_ptr(), tensor.numel() * width)
    return values


def same_sizes(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether all tensors have the same number of elements."""
    return all(t.numel() == tensors[0].numel() for t in tensors)
