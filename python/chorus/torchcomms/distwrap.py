"""torch.distributed's functions, over communicators of the torchcomms interface.

A program that imports this instead of ``torch.distributed`` chooses by one argument::

    import chorus.torchcomms.distwrap as dist

    dist.init_process_group("gloo", use_torchcomms=True)

Groups of Chorus are process groups like any other, so the functions are torch.distributed's own,
all of them. Without ``use_torchcomms`` they work on whatever backend is named.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

import chorus.backend
from chorus.backend import LIBRARIES
from chorus.errors import UnsupportedError
from chorus.torchcomms._backend import native_name, registered_class
from chorus.torchcomms._window import TorchCommWindow
from chorus.torchcomms.comm import MemAllocator, TorchComm, of_group

__all__ = ["get_comm", "get_mem_allocator", "init_process_group", "new_window", "split_group"]


def __getattr__(name: str) -> Any:
    return getattr(dist, name)


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: torch.device | int | None = None,
    use_torchcomms: bool = False,
) -> None:
    """Make the world. With ``use_torchcomms`` its backend is a communicator of this package.

    The names of backends are then those of :func:`chorus.torchcomms.new_comm`, also for a device as in
    "cpu:gloo"; "nccl", "ncclx" and "rccl" need a ``device_id`` that they work on. Raises what that raises for names
    that it doesn't take.
    """
    if use_torchcomms:
        name = (backend or "native").removeprefix("cpu:")
        kind = device_id.type if isinstance(device_id, torch.device) else "cpu"
        if name in LIBRARIES and native_name(name, kind) is not None:
            pg_options = {"backend": name, **(pg_options or {})}
        elif native_name(name) != "native":
            if native_name(name) is None:
                registered_class(name)  # raises for those that aren't there
            raise UnsupportedError(f"chorus: {name!r} can't be the backend of process groups")
        chorus.backend.register()
        backend = "chorus"
    dist.init_process_group(
        backend, init_method, timeout, world_size, rank, store, group_name, pg_options, device_id
    )


def get_comm(group: Any = None) -> TorchComm:
    """The communicator of a group (default: the world). The group keeps it; destroying the group finalizes it."""
    return of_group(group)


def split_group(
    parent_pg: Any = None,
    split_ranks: list[list[int]] | None = None,
    timeout: timedelta | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> Any:
    """The group of this rank's list among ``split_ranks``; None if it is in none. Every rank of the parent calls it.

    Ranks are those of the parent (default: the world), and their order gives the new ones.
    """
    parent = chorus.backend.ours(parent_pg)
    mine = [ranks for ranks in split_ranks or [] if parent.comm.rank in ranks]
    if len(mine) > 1:
        raise ValueError(f"split_group: rank {parent.comm.rank} is in several lists: {mine}")
    return chorus.backend.split_group(mine[0] if mine else [], parent, timeout=timeout, group_desc=group_desc)


def new_window(tensor: torch.Tensor | None = None, group: Any = None) -> TorchCommWindow:
    """A window of a group's communicator."""
    return get_comm(group).new_window(tensor)


def get_mem_allocator(group: Any = None) -> MemAllocator:
    """The allocator of the memory that a group is fastest with."""
    return get_comm(group).get_mem_allocator()
