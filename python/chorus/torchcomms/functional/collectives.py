"""Collectives that return new tensors and leave their inputs alone.

Each has a gradient, which is a collective as well, so that all ranks must go backward through the
same ones in the same order. Under torch.compile they are operators of the graph. With
``async_op`` they return a :class:`TorchCommsAsyncTensor` and have no gradient.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from chorus.torchcomms._types import RedOpType, ReduceOp
from chorus.torchcomms.comm import TorchComm
from chorus.torchcomms.functional.async_tensor import TorchCommsAsyncTensor

__all__ = ["all_gather_single", "all_reduce", "all_to_all_single", "broadcast", "reduce_scatter_single"]

# Operators take communicators as numbers. A communicator gets its number at its first use.
_comms: weakref.WeakValueDictionary[int, TorchComm] = weakref.WeakValueDictionary()


def _number(comm: TorchComm) -> int:
    number = id(comm)
    _comms[number] = comm
    return number


def _result(output: torch.Tensor, work: Any, async_op: bool) -> torch.Tensor:
    # A compiled program has each operation done where it stands.
    return TorchCommsAsyncTensor(output, work) if async_op and not torch.compiler.is_compiling() else output


def _named(op: ReduceOp) -> tuple[str, float]:
    if isinstance(op.factor, torch.Tensor):
        return op.type.name, float(op.factor)
    return op.type.name, op.factor or 0.0


def _op(name: str, factor: float) -> ReduceOp:
    kind = RedOpType[name]
    return ReduceOp(kind, factor if kind is RedOpType.PREMUL_SUM else None)


def all_reduce(tensor: torch.Tensor, op: ReduceOp, comm: TorchComm, async_op: bool = False) -> torch.Tensor:
    """The combination of the ranks' tensors. Gradients: of SUM, AVG and PREMUL_SUM, summed, and scaled as the input."""
    if async_op:
        output = tensor.detach().clone(memory_format=torch.contiguous_format)
        return _result(output, comm.all_reduce(output, op, True), True)
    result: torch.Tensor = _all_reduce(tensor, *_named(op), _number(comm))
    return result


def broadcast(tensor: torch.Tensor, root: int, comm: TorchComm, async_op: bool = False) -> torch.Tensor:
    """The root's tensor. Gradients: the sum of all ranks' at the root, zero elsewhere."""
    if async_op:
        output = tensor.detach().clone(memory_format=torch.contiguous_format)
        return _result(output, comm.broadcast(output, root, True), True)
    result: torch.Tensor = _broadcast(tensor, root, _number(comm))
    return result


def all_gather_single(tensor: torch.Tensor, comm: TorchComm, async_op: bool = False) -> torch.Tensor:
    """The ranks' tensors, one after the other in dimension 0. Gradients: summed and scattered."""
    if async_op:
        output = _taller(tensor, comm.get_size())
        return _result(output, comm.all_gather_single(output, tensor.detach(), True), True)
    result: torch.Tensor = _all_gather(tensor, _number(comm))
    return result


def reduce_scatter_single(tensor: torch.Tensor, op: ReduceOp, comm: TorchComm, async_op: bool = False) -> torch.Tensor:
    """This rank's block, in dimension 0, of the combination. Gradients: of SUM, AVG and PREMUL_SUM, gathered, and
    scaled as the input.

    Raises RuntimeError if dimension 0 isn't divisible by the number of ranks.
    """
    _divisible(tensor, comm)
    if async_op:
        output = tensor.new_empty(tensor.size(0) // comm.get_size(), *tensor.shape[1:])
        return _result(output, comm.reduce_scatter_single(output, tensor.detach(), op, True), True)
    result: torch.Tensor = _reduce_scatter(tensor, *_named(op), _number(comm))
    return result


def all_to_all_single(tensor: torch.Tensor, comm: TorchComm, async_op: bool = False) -> torch.Tensor:
    """Block r, in dimension 0, is the block that rank r has for this one. Gradients: exchanged in the same way."""
    _divisible(tensor, comm)
    if async_op:
        output = torch.empty_like(tensor, memory_format=torch.contiguous_format)
        return _result(output, comm.all_to_all_single(output, tensor.detach(), True), True)
    result: torch.Tensor = _all_to_all(tensor, _number(comm))
    return result


def _divisible(tensor: torch.Tensor, comm: TorchComm) -> None:
    if tensor.dim() == 0 or tensor.size(0) % comm.get_size():
        raise RuntimeError(
            f"shape {list(tensor.shape)}: dimension 0 must be divisible by comm_size ({comm.get_size()})"
        )


def _taller(tensor: torch.Tensor, n: int) -> torch.Tensor:
    return tensor.new_empty(n * tensor.size(0), *tensor.shape[1:]) if tensor.dim() else tensor.new_empty(n)


# ---- operators ----


@torch.library.custom_op("chorus_torchcomms::all_reduce", mutates_args=())
def _all_reduce(tensor: torch.Tensor, op: str, factor: float, comm: int) -> torch.Tensor:
    output = tensor.clone(memory_format=torch.contiguous_format)
    _comms[comm].all_reduce(output, _op(op, factor), False)
    return output


@torch.library.custom_op("chorus_torchcomms::broadcast", mutates_args=())
def _broadcast(tensor: torch.Tensor, root: int, comm: int) -> torch.Tensor:
    output = tensor.clone(memory_format=torch.contiguous_format)
    _comms[comm].broadcast(output, root, False)
    return output


@torch.library.custom_op("chorus_torchcomms::all_gather_single", mutates_args=())
def _all_gather(tensor: torch.Tensor, comm: int) -> torch.Tensor:
    output = _taller(tensor, _comms[comm].get_size())
    _comms[comm].all_gather_single(output, tensor, False)
    return output


@torch.library.custom_op("chorus_torchcomms::reduce_scatter_single", mutates_args=())
def _reduce_scatter(tensor: torch.Tensor, op: str, factor: float, comm: int) -> torch.Tensor:
    output = tensor.new_empty(tensor.size(0) // _comms[comm].get_size(), *tensor.shape[1:])
    _comms[comm].reduce_scatter_single(output, tensor, _op(op, factor), False)
    return output


@torch.library.custom_op("chorus_torchcomms::all_to_all_single", mutates_args=())
def _all_to_all(tensor: torch.Tensor, comm: int) -> torch.Tensor:
    output = torch.empty_like(tensor, memory_format=torch.contiguous_format)
    _comms[comm].all_to_all_single(output, tensor, False)
    return output


@_all_reduce.register_fake
def _(tensor: torch.Tensor, op: str, factor: float, comm: int) -> torch.Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


@_broadcast.register_fake
def _(tensor: torch.Tensor, root: int, comm: int) -> torch.Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


@_all_gather.register_fake
def _(tensor: torch.Tensor, comm: int) -> torch.Tensor:
    return _taller(tensor, _comms[comm].get_size())


@_reduce_scatter.register_fake
def _(tensor: torch.Tensor, op: str, factor: float, comm: int) -> torch.Tensor:
    return tensor.new_empty(tensor.size(0) // _comms[comm].get_size(), *tensor.shape[1:])


@_all_to_all.register_fake
def _(tensor: torch.Tensor, comm: int) -> torch.Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


# ---- gradients ----


def _keep_reduction(ctx: Any, inputs: Any, output: Any) -> None:
    _, ctx.op, ctx.factor, ctx.comm = inputs
    if ctx.op not in ("SUM", "AVG", "PREMUL_SUM") and inputs[0].requires_grad:
        raise RuntimeError(f"the reduction {ctx.op} has no gradient")


def _keep_comm(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.comm = inputs[-1]


def _keep_root(ctx: Any, inputs: Any, output: Any) -> None:
    _, ctx.root, ctx.comm = inputs


def _all_reduce_back(ctx: Any, grad: torch.Tensor) -> Any:
    if ctx.op == "PREMUL_SUM":  # by this rank's factor, which may differ from the others'
        return _all_reduce(grad.contiguous(), "SUM", 0.0, ctx.comm) * ctx.factor, None, None, None
    return _all_reduce(grad.contiguous(), ctx.op, 0.0, ctx.comm), None, None, None


def _broadcast_back(ctx: Any, grad: torch.Tensor) -> Any:
    grad = _all_reduce(grad.contiguous(), "SUM", 0.0, ctx.comm)
    return grad if _comms[ctx.comm].get_rank() == ctx.root else torch.zeros_like(grad), None, None


def _all_gather_back(ctx: Any, grad: torch.Tensor) -> Any:
    return _reduce_scatter(grad.contiguous(), "SUM", 0.0, ctx.comm), None


def _reduce_scatter_back(ctx: Any, grad: torch.Tensor) -> Any:
    scale = {"SUM": 1.0, "AVG": 1.0 / _comms[ctx.comm].get_size(), "PREMUL_SUM": ctx.factor}[ctx.op]
    return _all_gather(grad.contiguous(), ctx.comm) * scale, None, None, None


def _all_to_all_back(ctx: Any, grad: torch.Tensor) -> Any:
    return _all_to_all(grad.contiguous(), ctx.comm), None


_all_reduce.register_autograd(_all_reduce_back, setup_context=_keep_reduction)
_broadcast.register_autograd(_broadcast_back, setup_context=_keep_root)
_all_gather.register_autograd(_all_gather_back, setup_context=_keep_comm)
_reduce_scatter.register_autograd(_reduce_scatter_back, setup_context=_keep_reduction)
_all_to_all.register_autograd(_all_to_all_back, setup_context=_keep_comm)
