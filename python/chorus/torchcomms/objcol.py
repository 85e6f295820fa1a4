"""Collectives of Python objects. They are blocking, and meant for setting up, not for inner loops.

Objects are sent in the format of ``torch.save``. They are read with ``weights_only=True``, which
accepts tensors, numbers, strings and containers of these. With False any object that can be pickled is
accepted. Use that on trusted networks only: unpickling can run code.
"""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any

import torch

from chorus._devices import LIBRARIES
from chorus.torchcomms._types import BatchP2POptions
from chorus.torchcomms.comm import BatchSendRecv, TorchComm


def _place(comm: TorchComm) -> torch.device:
    """The device of the tensors that carry objects."""
    return comm.get_device() if comm.get_backend() in LIBRARIES else torch.device("cpu")


def _bytes_of(comm: TorchComm, thing: object) -> torch.Tensor:
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    return torch.frombuffer(buffer.getbuffer(), dtype=torch.uint8).to(_place(comm))


def _object_of(data: torch.Tensor, weights_only: bool) -> Any:
    return torch.load(io.BytesIO(data.cpu().numpy().tobytes()), weights_only=weights_only)


def _room(comm: TorchComm, size: int | torch.Tensor) -> torch.Tensor:
    return torch.empty(int(size), dtype=torch.uint8, device=_place(comm))


def _counts(comm: TorchComm, counts: list[int]) -> torch.Tensor:
    return torch.tensor(counts, dtype=torch.int64, device=_place(comm))


def _sizes(comm: TorchComm, data: torch.Tensor, timeout: timedelta | None) -> list[int]:
    """The number of bytes of every rank."""
    sizes = _counts(comm, [0] * comm.get_size())
    comm.all_gather_single(sizes, _counts(comm, [data.numel()]), False, timeout=timeout)
    return sizes.tolist()


def all_gather_object(
    comm: TorchComm,
    object_list: list[Any],
    obj: object,
    timeout: timedelta | None = None,
    weights_only: bool = True,
) -> None:
    """``object_list[r]`` becomes rank r's ``obj``. Raises ValueError if the list is too short."""
    _long_enough(object_list, comm.get_size(), "object_list")
    data = _bytes_of(comm, obj)
    every = [_room(comm, n) for n in _sizes(comm, data, timeout)]
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
    data = _bytes_of(comm, obj)
    sizes = _sizes(comm, data, timeout)
    # A gather's inputs have one size; messages may differ.
    batch = comm.batch_op_create()
    every = [_room(comm, n) for n in sizes] if at_root else []
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
    """The entries of ``object_list`` become the root's. Every rank's list has the same length."""
    at_root = comm.get_rank() == root
    data = _bytes_of(comm, list(object_list)) if at_root else _room(comm, 0)
    size = _counts(comm, [data.numel()])
    comm.broadcast(size, root, False, timeout=timeout)
    if not at_root:
        data = _room(comm, size)
    comm.broadcast(data, root, False, timeout=timeout)
    if not at_root:
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
        parts = [_bytes_of(comm, x) for x in scatter_object_input_list]
    sizes = _counts(comm, [x.numel() for x in parts] if at_root else [0] * comm.get_size())
    comm.broadcast(sizes, root, False, timeout=timeout)
    data = _room(comm, sizes[comm.get_rank()])
    batch = comm.batch_op_create()
    for rank, part in enumerate(parts):
        batch.send(part, rank)
    batch.recv(data, root)
    _issue(batch, timeout)
    scatter_object_output_list[0] = _object_of(data, weights_only)


def send_object_list(comm: TorchComm, object_list: list[Any], dst: int, timeout: timedelta | None = None) -> None:
    """Send the entries of a list to rank ``dst``, which calls :func:`recv_object_list`."""
    data = _bytes_of(comm, list(object_list))
    comm.send(_counts(comm, [data.numel()]), dst, False, timeout=timeout)
    comm.send(data, dst, False, timeout=timeout)


def recv_object_list(
    comm: TorchComm,
    object_list: list[Any],
    src: int,
    timeout: timedelta | None = None,
    weights_only: bool = True,
) -> None:
    """The entries of ``object_list`` become those that rank ``src`` sends. Both lists have the same length."""
    size = _counts(comm, [0])
    comm.recv(size, src, False, timeout=timeout)
    data = _room(comm, size)
    comm.recv(data, src, False, timeout=timeout)
    _fill(object_list, _object_of(data, weights_only), "recv_object_list")


def _issue(batch: BatchSendRecv, timeout: timedelta | None) -> None:
    """Run a batch with the timeout of its collective."""
    batch.issue(False, BatchP2POptions(timeout=timeout or timedelta(0)))


def _long_enough(target: list[Any], n: int, name: str) -> None:
    if len(target) < n:
        raise ValueError(f"{name} has {len(target)} entries; it must have {n}")


def _fill(target: list[Any], values: list[Any], op: str) -> None:
    if len(target) != len(values):
        raise ValueError(f"{op}: the list has {len(target)} entries here and {len(values)} at its source")
    target[:] = values
