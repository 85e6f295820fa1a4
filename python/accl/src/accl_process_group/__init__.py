"""The Python API of ACCL's plug-in for torch.distributed, on Chorus.

A program describes its engines, and makes its group with PyTorch's function::

    import accl_process_group as accl

    ranks = [accl.Rank("127.0.0.1", 5500 + i, i, 4096) for i in range(size)]
    accl.create_simulate_process_group(ranks, bufsize=4096)
    torch.distributed.init_process_group("ACCL", rank=rank, world_size=size)

The engines are Chorus's, in the ranks' processes, instead of cards or emulators. ``ranks`` gives the number of engines
and the limits of their segments. Arguments for cards (``xclbin``, ``device_index``, ``rsfec``) are ignored. Groups are
those of the backend ``accl`` of the package :mod:`chorus`, with all its features. A program may make several.
"""

from __future__ import annotations

import enum
import os
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from chorus import backend
from chorus.errors import InvalidArgumentError
from chorus.process_group import ProcessGroup as ProcessGroupACCL

__all__ = [
    "ACCLDesign", "DataType", "ProcessGroupACCL", "Rank", "create_process_group", "create_process_group_coyote",
    "create_simulate_process_group", "get_compression", "get_local_qp", "initialize", "set_compression",
    "set_remote_qp",
]  # fmt: skip


class DataType(enum.Enum):
    """Element types, with the engines' numbers."""

    float16 = 2
    float32 = 3
    float64 = 4
    int32 = 5
    int64 = 6


class ACCLDesign(enum.Enum):
    """Designs of cards. Here the design chooses the packets that engines exchange."""

    axis3x = 0
    tcp = 1
    udp = 2
    roce = 3
    cyt_tcp = 4
    cyt_rdma = 5


_PROTOCOLS = {
    ACCLDesign.axis3x: "udp",
    ACCLDesign.tcp: "tcp",
    ACCLDesign.udp: "udp",
    ACCLDesign.roce: "cyt_rdma",
    ACCLDesign.cyt_tcp: "tcp",
    ACCLDesign.cyt_rdma: "cyt_rdma",
}
_COYOTE = (ACCLDesign.cyt_tcp, ACCLDesign.cyt_rdma)


@dataclass(frozen=True)
class Rank:
    """The address of a rank's engine. ``max_segment_size`` is the limit of a packet's bytes."""

    ip: str
    port: int
    session_id: int
    max_segment_size: int


Compression = dict[DataType, DataType]
_compression: Compression = {}


def create_process_group(
    ranks: Sequence[Rank],
    *card: Any,
    design: ACCLDesign | None = None,
    xclbin: str | None = None,
    device_index: int | None = None,
    nbufs: int = 16,
    bufsize: int = 1024,
    compression: Compression | None = None,
    p2p_enabled: bool | None = None,
    profiling_ranks: Sequence[int] | None = None,
    profiling_timeout: float = 0.0,
    rsfec: bool = False,
    simulation: bool = False,
    initialize: bool = True,
) -> None:
    """Configure the engines of ``init_process_group("ACCL")``.

    ``ranks`` is followed by ``xclbin, device_index, design``, or by ``design`` alone, as in the plug-in's first and
    second version. Each of the ``nbufs`` receive buffers has ``bufsize`` bytes. Larger messages are sent in parts, or
    by rendezvous if the design has that. ``compression`` is that of :func:`set_compression`. Engines work in the
    tensors' memory. With ``p2p_enabled=False`` tensors are copied to the engines' memory and back. The ranks in
    ``profiling_ranks`` sleep for ``profiling_timeout`` seconds before they join, so that a profiler or a debugger can
    attach.
    """
    if len(card) == 1:
        (design,) = card
    elif len(card) == 3:
        xclbin, device_index, design = card
    elif card:
        raise TypeError(f"after ranks come xclbin, device_index and design, or design alone, not {len(card)} arguments")
    if not isinstance(design, ACCLDesign):
        raise TypeError(f"design is an ACCLDesign, not {design!r}")
    if xclbin is not None and design in _COYOTE:
        raise RuntimeError(f"{design} has no xclbin: create_process_group_coyote is for it")
    if not simulation:
        warnings.warn("the engines are Chorus's, in this process: no card is used", stacklevel=1 + _depth())
    _create(ranks, design, nbufs, bufsize, compression, profiling_ranks, profiling_timeout, p2p_enabled)


def create_simulate_process_group(
    ranks: Sequence[Rank],
    *,
    nbufs: int = 16,
    udp: bool = False,
    compression: Compression | None = None,
    bufsize: int = 1024,
    initialize: bool = True,
    emulators: bool = False,
) -> None:
    """:func:`create_process_group` without cards. No emulator need run. With ``emulators``, which the original plug-in
    doesn't have, the engines are emulators at the ranks' ports on this host, which are consecutive."""
    _create(ranks, ACCLDesign.udp if udp else ACCLDesign.tcp, nbufs, bufsize, compression, emulators=emulators)


def create_process_group_coyote(
    ranks: Sequence[Rank], design: ACCLDesign, *, initialize: bool = False, **options: Any
) -> None:
    """:func:`create_process_group` of a design for Coyote."""
    if design not in _COYOTE:
        raise RuntimeError(f"{design} is no design for Coyote")
    create_process_group(ranks, design, initialize=initialize, **options)


def _depth() -> int:
    """The number of this module's frames above the program's on the stack."""
    frame, n = sys._getframe(1), 0
    while frame is not None and frame.f_globals is globals():
        frame, n = frame.f_back, n + 1  # type: ignore[assignment]
    return n


def _create(
    ranks: Sequence[Rank],
    design: ACCLDesign,
    nbufs: int,
    bufsize: int,
    compression: Compression | None,
    profiling_ranks: Sequence[int] | None = None,
    profiling_timeout: float = 0.0,
    p2p_enabled: bool | None = None,
    emulators: bool = False,
) -> None:
    global _compression
    _compression = dict(compression or {})
    ranks = list(ranks)
    hints = {
        "protocol": _PROTOCOLS[design],
        "rx_buffers": nbufs,
        "rx_buffer_size": bufsize,
        "max_eager_size": bufsize,
        **_hints_of(_compression),
    }
    if p2p_enabled is not None:
        hints["p2p"] = "on" if p2p_enabled else "off"
    if emulators:
        hints["emulator"] = ranks[0].port
    if segment := max((r.max_segment_size for r in ranks), default=0):
        hints["max_segment_size"] = segment

    def options(rank: int, size: int) -> dict[str, Any]:
        if size != len(ranks):
            raise InvalidArgumentError(f"accl_process_group: {len(ranks)} ranks for a world of {size}")
        if rank in (profiling_ranks or ()):
            print(f"accl_process_group: rank {rank} is process {os.getpid()}, and sleeps for {profiling_timeout:g} s")
            time.sleep(profiling_timeout)
        return hints

    backend.register()
    backend.defaults[backend.ACCL] = options


def _hints_of(compression: Compression) -> dict[str, str]:
    for wide, narrow in compression.items():
        if wide is not narrow and (wide, narrow) != (DataType.float32, DataType.float16):
            raise InvalidArgumentError(f"accl_process_group: engines have no way from {wide} to {narrow}")
    if compression.get(DataType.float32) is DataType.float16:
        return {"accl.compress": "float16"}
    return {}


def _group() -> ProcessGroupACCL:
    """The world's group, on which the functions below work."""
    group = dist.group.WORLD if dist.is_initialized() else None
    if not isinstance(group, ProcessGroupACCL) or group.name() != backend.ACCL:
        raise RuntimeError('there is no group of ACCL yet: init_process_group("ACCL") makes it')
    return group


def initialize() -> None:
    """Do nothing, as the group is initialized when it exists; RuntimeError if it doesn't exist yet."""
    _group()


def set_compression(compression: Compression) -> None:
    """Make the group, and groups made later, send elements as another type from now on:
    ``{DataType.float32: DataType.float16}``. All ranks call it before the same operation."""
    global _compression
    group = _group()
    hints = _hints_of(compression)
    group.comm.set_hints(hints)
    group._hints = {**{k: v for k, v in group._hints.items() if k != "accl.compress"}, **hints}
    _compression = dict(compression)


def get_compression() -> Compression:
    """The compression that was set last."""
    _group()
    return dict(_compression)


def get_local_qp(rank: int) -> list[int]:
    """The queue pair that a rank passes to a peer on Coyote. Engines here find each other through the store, so it
    holds only this rank's number."""
    group = _group()
    if not 0 <= rank < group.size():
        raise InvalidArgumentError(f"accl_process_group: rank {rank} of {group.size()}")
    return list(group.rank().to_bytes(4, "little"))


def set_remote_qp(rank: int, qp: Sequence[int]) -> None:
    """Accept the result of :func:`get_local_qp` on rank ``rank``; ValueError if it's another rank's."""
    _group()
    if int.from_bytes(bytes(qp), "little") != rank:
        raise ValueError(f"accl_process_group: the queue pair isn't rank {rank}'s")
