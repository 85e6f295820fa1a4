"""The Python API of ACCL's plug-in for torch.distributed, on Chorus.

A program says what its engines are like, and makes its group with PyTorch's function::

    import accl_process_group as accl

    ranks = [accl.Rank("127.0.0.1", 5500 + i, i, 4096) for i in range(size)]
    accl.create_simulate_process_group(ranks, bufsize=4096)
    torch.distributed.init_process_group("ACCL", rank=rank, world_size=size)

The engines are Chorus's, in the ranks' processes: they stand in for cards and for emulators alike. So a program needs
only what it calls; of what it passes, ``ranks`` counts the engines and limits their segments, and what belongs to a
card (``xclbin``, ``device_index``, ``rsfec``) is of no concern. Groups are those of the backend ``accl`` of the package
:mod:`chorus`, with all that it can do, and as many of them as the program makes.
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
    """What elements are, by the numbers that engines know them by."""

    float16 = 2
    float32 = 3
    float64 = 4
    int32 = 5
    int64 = 6


class ACCLDesign(enum.Enum):
    """What cards are built with. Here it's the packets that engines exchange."""

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
    """Where a rank's engine is. ``max_segment_size`` is how many bytes a packet of it has at most."""

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
    """Say how the engines of ``init_process_group("ACCL")`` are set up.

    What comes after ``ranks`` is ``xclbin, device_index, design``, or ``design`` alone, as the plug-in had it in its
    first and in its second version. Each of ``nbufs`` buffers that messages land in has ``bufsize`` bytes, and larger
    messages go in parts, or by rendezvous if the design has that. ``compression`` is that of :func:`set_compression`.
    Engines work in the tensors' memory, unless ``p2p_enabled`` is False: then it's copied to theirs and back. The ranks
    in ``profiling_ranks`` sleep for ``profiling_timeout`` seconds before they join, for a profiler or a debugger to
    find them.
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
    """:func:`create_process_group` without cards. No emulator need run; with ``emulators``, which the plug-in doesn't
    have, the engines are those at the ranks' ports on this host, each one above the one before."""
    _create(ranks, ACCLDesign.udp if udp else ACCLDesign.tcp, nbufs, bufsize, compression, emulators=emulators)


def create_process_group_coyote(
    ranks: Sequence[Rank], design: ACCLDesign, *, initialize: bool = False, **options: Any
) -> None:
    """:func:`create_process_group` of a design for Coyote."""
    if design not in _COYOTE:
        raise RuntimeError(f"{design} is no design for Coyote")
    create_process_group(ranks, design, initialize=initialize, **options)


def _depth() -> int:
    """How many frames of this module lie over the program's."""
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
    """The world's group, which the functions below are about."""
    group = dist.group.WORLD if dist.is_initialized() else None
    if not isinstance(group, ProcessGroupACCL) or group.name() != backend.ACCL:
        raise RuntimeError('there is no group of ACCL yet: init_process_group("ACCL") makes it')
    return group


def initialize() -> None:
    """Nothing is left to do when the group is there; before, RuntimeError."""
    _group()


def set_compression(compression: Compression) -> None:
    """Have the group, from now on, and groups that are made later send elements as those of another type:
    ``{DataType.float32: DataType.float16}``. All ranks call it before the same operation."""
    global _compression
    group = _group()
    hints = _hints_of(compression)
    group.comm.set_hints(hints)
    group._hints = {**{k: v for k, v in group._hints.items() if k != "accl.compress"}, **hints}
    _compression = dict(compression)


def get_compression() -> Compression:
    """What was set last."""
    _group()
    return dict(_compression)


def get_local_qp(rank: int) -> list[int]:
    """What a rank gives another one on Coyote, so that both have a pair of queues. Engines here find each other by the
    store: it's no more than this rank's number."""
    group = _group()
    if not 0 <= rank < group.size():
        raise InvalidArgumentError(f"accl_process_group: rank {rank} of {group.size()}")
    return list(group.rank().to_bytes(4, "little"))


def set_remote_qp(rank: int, qp: Sequence[int]) -> None:
    """Take what another rank's :func:`get_local_qp` has returned; ValueError if it's another one's."""
    _group()
    if int.from_bytes(bytes(qp), "little") != rank:
        raise ValueError(f"accl_process_group: the queue pair isn't rank {rank}'s")
