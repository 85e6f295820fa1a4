"""Collectives of Python objects. They are blocking, and meant for setting up, not for inner loops.

Objects travel as ``torch.save`` writes them. What arrives is read with ``weights_only=True``, which
takes tensors, numbers, strings and containers of these; pass False, on trusted
networks only, for any object that can be pickled: reading these can run code.
"""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any

import torch

from chorus.torchcomms._types import BatchP2POptions
from chorus.torchcomms.comm import BatchSendRecv, TorchComm

_NONE = torch.empty(0, dtype=torch.uint8)


def _bytes_of(thing: object) -> torch.Tensor:
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    return torch.frombuffer(buffer.getbuffer(), dtype=torch.uint8)


def _object_of(data: torch.Tensor, weights_only: bool) -> Any:
    return torch.load(io.BytesIO(data.numpy().tobytes()), weights_only=weights_only)


def _sizes(comm: TorchComm, data: torch.Tensor, timeout: timedelta | None) -> list[int]:
    """The number of bytes of every rank."""
    sizes = torch.empty(comm.get_size(), dtype=torch.int64)
    comm.all_gather_single(sizes, torch.tensor([data.numel()]), False, timeout=timeout)
    return [int(n) for n in sizes]


def all_gather_object(
    comm: TorchComm,
    object_list: list[Any],
    obj: object,
    timeout: timedelta | None = None,
    weights_only: bool = True,
) -> None:
    """``object_list[r]`` becomes rank r's ``obj``. Raises ValueError if the list is too short."""
    _long_enough(object_list, comm.get_size(), "object_list")
    data = _bytes_of(obj)
    every = [torch.empty(n, dtype=torch.uint8) for n in _sizes(comm, data, timeout)]
    comm.all_gather_v(every, data, False, timeout=timeout)
    object_list[: len(every)] = [_object_of(x, weights_only) for x in every]


def gather_object(
    comm: TorchComm,
    obj: object,
    root: int,
    object_gather_list: list[Any] | None = None,
    timeout: timedelta | None = None,
    weights_only: bool = True,
) -> None:
    """The root's ``object_gather_list[r]`` becomes rank r's ``obj``; a list of another rank stays as it is."""
    at_root = comm.get_rank() == root
    if not at_root:
        object_gather_list = None
    elif object_gather_list is None:
        raise ValueError("gather_object: the root must pass object_gather_list")
    if object_gather_list is not None:
        _long_enough(object_gather_list, comm.get_size(), "object_gather_list")
    data = _bytes_of(obj)
    sizes = _sizes(comm, data, timeout)
    # A gather is of one size; messages need not be.
    batch = comm.batch_op_create()
    every = [torch.empty(n, dtype=torch.uint8) for n in sizes] if at_root else []
    batch.send(data, root)
    for rank, target in enumerate(every):
        batch.recv(target, rank)
    _issue(batch, timeout)
    if object_gather_list is not None:
        object_gather_list[: len(every)] = [_object_of(x, weights_only) for x in every]


def broadcast_object_list(
    comm: TorchComm,
    object_list: list[Any],
    root: int,
    timeout: timedelta | None = None,
    weights_only: bool = True,
) -> None:
    """The entries of ``object_list``, as many on every rank, become the root's."""
    size = torch.zeros(1, dtype=torch.int64)
    data = _NONE
    if comm.get_rank() == root:
        data = _bytes_of(list(object_list))
        size[0] = data.numel()
    comm.broadcast(size, root, False, timeout=timeout)
    if comm.get_rank() != root:
        data = torch.empty(int(size), dtype=torch.uint8)
    comm.broadcast(data, root, False, timeout=timeout)
    if comm.get_rank() != root:
        _fill(object_list, _object_of(data, weights_only), "broadcast_object_list")


def scatter_object_list(
    comm: TorchComm,
    root: int,
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    timeout: timedelta | None = None,
    weights_only: bool = True,
) -> None:
    """``scatter_object_output_list[0]`` becomes the root's ``scatter_object_input_list[rank]``."""
    _long_enough(scatter_object_output_list, 1, "scatter_object_output_list")
    at_root = comm.get_rank() == root
    parts: list[torch.Tensor] = []
    if at_root:
        if scatter_object_input_list is None or len(scatter_object_input_list) != comm.get_size():
            raise ValueError(f"scatter_object_list: the root passes a list of {comm.get_size()} objects, one per rank")
        parts = [_bytes_of(x) for x in scatter_object_input_list]
    sizes = torch.tensor([x.numel() for x in parts]) if at_root else torch.empty(comm.get_size(), dtype=torch.int64)
    comm.broadcast(sizes, root, False, timeout=timeout)
    data = torch.empty(int(sizes[comm.get_rank()]), dtype=torch.uint8)
    batch = comm.batch_op_create()
    for rank, part in enumerate(parts):
        batch.send(part, rank)
    batch.recv(data, root)
    _issue(batch, timeout)
    scatter_object_output_list[0] = _object_of(data, weights_only)


def send_object_list(comm: TorchComm, object_list: list[Any], dst: int, timeout: timedelta | None = None) -> None:
    """Send the entries of a list to rank ``dst``, which calls :func:`recv_object_list`."""
    data = _bytes_of(list(object_list))
    comm.send(torch.tensor([data.numel()]), dst, False, timeout=timeout)
    comm.send(data, dst, False, timeout=timeout)


def recv_object_list(
    comm: TorchComm,
    object_list: list[Any],
    src: int,
    timeout: timedelta | None = None,
    weights_only: bool = True,
) -> None:
    """The entries of ``object_list`` become those that rank ``src`` sends, which are as many."""
    size = torch.zeros(1, dtype=torch.int64)
    comm.recv(size, src, False, timeout=timeout)
    data = torch.empty(int(size), dtype=torch.uint8)
    comm.recv(data, src, False, timeout=timeout)
    _fill(object_list, _object_of(data, weights_only), "recv_object_list")


def _issue(batch: BatchSendRecv, timeout: timedelta | None) -> None:
    """Run a batch within the time of its collective."""
    batch.issue(False, BatchP2POptions(timeout=timeout or timedelta(0)))


def _long_enough(target: list[Any], n: int, name: str) -> None:
    if len(target) < n:
        raise ValueError(f"{name} has {len(target)} entries; it must have {n}")


def _fill(target: list[Any], values: list[Any], op: str) -> None:
    if len(target) != len(values):
        raise ValueError(f"{op}: the list has {len(target)} entries here and {len(values)} at its source")
    target[:] = values
