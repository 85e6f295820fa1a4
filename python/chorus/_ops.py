"""The operations on tensors, as the library takes them: a function for each collective and message.

Both PyTorch interfaces call these. A function finds the element type, stages what isn't contiguous, and returns the
:class:`Operation` for :meth:`Communicator.run`. The interface has checked devices, ranks and the lengths of lists. It
sets the operation's timeout and hints.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from chorus import _lib
from chorus._comm import Communicator, Operation
from chorus._tensors import Reduction, Staging, buffers, moved_as, reduced_as

_Tensor = torch.Tensor
_Tensors = Sequence[torch.Tensor]

# ---- one tensor ----


def broadcast(comm: Communicator, tensor: _Tensor, root: int) -> Operation:
    """Copy the root's tensor to every rank. Shapes: the same on every rank."""
    dtype, width = moved_as(tensor)
    staging = Staging("broadcast", comm.invalid)
    data = staging.input(tensor) if root == comm.rank else staging.output(tensor)
    return Operation(_lib.BROADCAST, dtype, out=data.data_ptr(), out_count=data.numel() * width, root=root,
        keep=data, after=staging.after(), device=staging.device)  # fmt: skip


def all_reduce(comm: Communicator, tensor: _Tensor, reduction: Reduction) -> Operation:
    """Combine the ranks' tensors, in place. Shapes: the same on every rank."""
    number, factor, factor_data = reduction
    dtype = reduced_as(tensor, "all_reduce", comm.invalid)
    staging = Staging("all_reduce", comm.invalid)
    data = staging.output(tensor, load=True)
    at, n = data.data_ptr(), data.numel()
    return Operation(_lib.ALL_REDUCE, dtype, number, at, n, at, n, factor=factor, factor_data=_address(factor_data),
        keep=(data, factor_data), after=staging.after(), device=staging.device)  # fmt: skip


def reduce(comm: Communicator, tensor: _Tensor, reduction: Reduction, root: int) -> Operation:
    """Combine the ranks' tensors into the root's; the others' stay as they are. Shapes: the same on every rank."""
    number, factor, factor_data = reduction
    dtype = reduced_as(tensor, "reduce", comm.invalid)
    staging = Staging("reduce", comm.invalid)
    if root == comm.rank:
        data = staging.output(tensor, load=True)
        out, out_count = data.data_ptr(), data.numel()
    else:
        data, out, out_count = staging.input(tensor), 0, 0
    return Operation(_lib.REDUCE, dtype, number, data.data_ptr(), data.numel(), out, out_count, root=root,
        factor=factor, factor_data=_address(factor_data), keep=(data, factor_data), after=staging.after(),
        device=staging.device)  # fmt: skip


# ---- two tensors: blocks, one for each rank, and one block ----


def all_gather_single(comm: Communicator, output: _Tensor, input: _Tensor) -> Operation:
    """Block r of ``output`` becomes rank r's ``input``. Shapes: world size times the elements."""
    return _blocks(comm, _lib.ALL_GATHER_SINGLE, output, input, comm.rank)


def gather_single(comm: Communicator, output: _Tensor, input: _Tensor, root: int) -> Operation:
    """Block r of the root's ``output`` becomes rank r's ``input``; the others' isn't used. Shapes: world size times the
    elements."""
    if root == comm.rank:
        return _blocks(comm, _lib.GATHER_SINGLE, output, input, comm.rank, root=root)
    return _gathered(comm, _lib.GATHER_SINGLE, None, input, root)


def reduce_scatter_single(comm: Communicator, output: _Tensor, input: _Tensor, reduction: Reduction) -> Operation:
    """``output`` becomes the combination of block rank of all ``input``. Shapes: world size times the elements."""
    op = "reduce_scatter_single"
    number, factor, factor_data = reduction
    _same_type(comm, output, input, op)
    dtype = reduced_as(input, op, comm.invalid)
    staging = Staging(op, comm.invalid)
    source = staging.input(input)
    target = staging.result(output, source, comm.rank)
    return Operation(_lib.REDUCE_SCATTER_SINGLE, dtype, number, source.data_ptr(), source.numel(), target.data_ptr(),
        target.numel(), factor=factor, factor_data=_address(factor_data), keep=(source, target, factor_data),
        after=staging.after(), device=staging.device)  # fmt: skip


def all_to_all_single(comm: Communicator, output: _Tensor, input: _Tensor) -> Operation:
    """Block r of ``output`` becomes block rank of rank r's ``input``. Shapes: the same on every rank."""
    return _blocks(comm, _lib.ALL_TO_ALL_SINGLE, output, input, -1)


def all_to_all_v_single(
    comm: Communicator, output: _Tensor, input: _Tensor, out_rows: Sequence[int], in_rows: Sequence[int]
) -> Operation:
    """:func:`all_to_all_single` with blocks of so many rows. Rows of ``output`` beyond the blocks stay as they are."""
    width = moved_as(input)[1]
    splits = _elements(output, out_rows, width), _elements(input, in_rows, width)
    return _blocks(comm, _lib.ALL_TO_ALL_V_SINGLE, output, input, -1, splits=splits)


def _blocks(
    comm: Communicator,
    kind: int,
    output: _Tensor,
    input: _Tensor,
    own: int,
    *,
    root: int = 0,
    splits: tuple[list[int], list[int]] | None = None,
) -> Operation:
    """An operation on two tensors. The smaller one may be block ``own`` of the larger, if that isn't negative.

    ``splits`` are those of the output and of the input, in elements.
    """
    op = _lib.OPERATIONS[kind]
    _same_type(comm, output, input, op)
    dtype, width = moved_as(input)
    staging = Staging(op, comm.invalid)
    source = staging.input(input)
    out_splits, in_splits = splits or (None, None)
    rest = out_splits is not None and sum(out_splits) < output.numel() * width
    target = staging.result(output, source, own, load=rest)
    return Operation(kind, dtype, in_=source.data_ptr(), in_count=source.numel() * width, out=target.data_ptr(),
        out_count=target.numel() * width, root=root, in_splits=in_splits, out_splits=out_splits,
        keep=(source, target), after=staging.after(), device=staging.device)  # fmt: skip


# ---- lists: one tensor for each rank ----


def all_gather(comm: Communicator, outputs: _Tensors, input: _Tensor) -> Operation:
    """``outputs[r]`` becomes rank r's ``input``. Shapes: all of one number of elements."""
    return _gathered(comm, _lib.ALL_GATHER, outputs, input)


def all_gather_v(comm: Communicator, outputs: _Tensors, input: _Tensor) -> Operation:
    """``outputs[r]`` becomes rank r's ``input``, of any size."""
    return _gathered(comm, _lib.ALL_GATHER_V, outputs, input)


def gather(comm: Communicator, outputs: _Tensors | None, input: _Tensor, root: int) -> Operation:
    """The root's ``outputs[r]`` becomes rank r's ``input``; the other ranks have none."""
    return _gathered(comm, _lib.GATHER, outputs, input, root)


def _gathered(comm: Communicator, kind: int, outputs: _Tensors | None, input: _Tensor, root: int = 0) -> Operation:
    op = _lib.OPERATIONS[kind]
    dtype, width = moved_as(input)
    staging = Staging(op, comm.invalid)
    source = staging.input(input)
    targets = outs = None
    if outputs is not None:
        targets = staging.outputs(outputs, [source], comm.rank)
        outs = buffers(targets, input.dtype, width, op, comm.invalid)
    return Operation(kind, dtype, in_=source.data_ptr(), in_count=source.numel() * width, outs=outs, root=root,
        keep=(source, targets), after=staging.after(), device=staging.device)  # fmt: skip


def reduce_scatter(comm: Communicator, output: _Tensor, inputs: _Tensors, reduction: Reduction) -> Operation:
    """``output`` becomes the combination of all ``inputs[rank]``. Shapes: all of one number of elements."""
    return _scattered(comm, _lib.REDUCE_SCATTER, output, inputs, reduction)


def reduce_scatter_v(comm: Communicator, output: _Tensor, inputs: _Tensors, reduction: Reduction) -> Operation:
    """``output`` becomes the combination of all ``inputs[rank]``, of any size."""
    return _scattered(comm, _lib.REDUCE_SCATTER_V, output, inputs, reduction)


def _scattered(comm: Communicator, kind: int, output: _Tensor, inputs: _Tensors, reduction: Reduction) -> Operation:
    op = _lib.OPERATIONS[kind]
    number, factor, factor_data = reduction
    dtype = reduced_as(output, op, comm.invalid)
    staging = Staging(op, comm.invalid)
    sources = [staging.input(t) for t in inputs]
    (target,) = staging.outputs([output], sources)
    ins = buffers(sources, output.dtype, 1, op, comm.invalid)
    return Operation(kind, dtype, number, out=target.data_ptr(), out_count=target.numel(), ins=ins, factor=factor,
        factor_data=_address(factor_data), keep=(sources, target, factor_data), after=staging.after(),
        device=staging.device)  # fmt: skip


def all_to_all(comm: Communicator, outputs: _Tensors, inputs: _Tensors) -> Operation:
    """``outputs[r]`` becomes rank r's ``inputs[rank]``, of any size. The lists aren't empty."""
    dtype, width = moved_as(inputs[0])
    staging = Staging("all_to_all", comm.invalid)
    sources = [staging.input(t) for t in inputs]
    targets = staging.outputs(outputs, sources)
    ins = buffers(sources, inputs[0].dtype, width, "all_to_all", comm.invalid)
    outs = buffers(targets, inputs[0].dtype, width, "all_to_all", comm.invalid)
    return Operation(_lib.ALL_TO_ALL, dtype, ins=ins, outs=outs, keep=(sources, targets), after=staging.after(),
        device=staging.device)  # fmt: skip


def scatter(comm: Communicator, output: _Tensor, inputs: _Tensors | None, root: int) -> Operation:
    """``output`` becomes the root's ``inputs[rank]``; the other ranks have none."""
    dtype, width = moved_as(output)
    staging = Staging("scatter", comm.invalid)
    sources = [staging.input(t) for t in inputs or ()]
    (target,) = staging.outputs([output], sources, comm.rank)
    ins = None if inputs is None else buffers(sources, output.dtype, width, "scatter", comm.invalid)
    return Operation(_lib.SCATTER, dtype, out=target.data_ptr(), out_count=target.numel() * width, ins=ins, root=root,
        keep=(sources, target), after=staging.after(), device=staging.device)  # fmt: skip


# ---- messages, and a barrier ----


def send(comm: Communicator, tensor: _Tensor, peer: int, tag: int = 0) -> Operation:
    """Send a tensor to a rank."""
    dtype, width = moved_as(tensor)
    staging = Staging("send", comm.invalid)
    data = staging.input(tensor)
    return Operation(_lib.SEND, dtype, in_=data.data_ptr(), in_count=data.numel() * width, peer=peer, tag=tag,
        keep=data, after=staging.after(), device=staging.device)  # fmt: skip


def recv(comm: Communicator, tensor: _Tensor, peer: int, tag: int = 0) -> Operation:
    """Receive a tensor from a rank, or from any. Shapes: dtype and number of elements must be the message's."""
    dtype, width = moved_as(tensor)
    staging = Staging("recv", comm.invalid)
    data = staging.output(tensor)
    return Operation(_lib.RECV, dtype, out=data.data_ptr(), out_count=data.numel() * width, peer=peer, tag=tag,
        keep=data, after=staging.after(), device=staging.device)  # fmt: skip


def barrier(device: torch.device | None) -> Operation:
    """Wait until every rank has called it; on a ``device``, after the work on its current stream."""
    return Operation(_lib.BARRIER, device=device)


# ---- helpers ----


def _address(tensor: _Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _same_type(comm: Communicator, output: _Tensor, input: _Tensor, op: str) -> None:
    if output.dtype != input.dtype:
        raise comm.invalid(op, f"the output is {output.dtype} and the input {input.dtype}")


def _elements(tensor: _Tensor, rows: Sequence[int], width: int) -> list[int]:
    """Splits in elements of the type that is moved, from splits in rows."""
    height = tensor.size(0) if tensor.dim() else 1
    size = tensor.numel() // height * width if height else 0
    return [r * size for r in rows]
