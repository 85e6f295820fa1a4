"""torch.distributed's functions, over communicators of the torchcomms interface.

A program that imports this instead of ``torch.distributed`` chooses by one argument::

    import chorus.torchcomms.distwrap as dist

    dist.init_process_group("gloo", use_torchcomms=True)

Groups of Chorus are process groups like any other, so all functions are torch.distributed's own.
Without ``use_torchcomms`` they work on any backend.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

import chorus.backend
from chorus._devices import LIBRARIES
from chorus.errors import InvalidArgumentError, UnsupportedError
from chorus.process_group import ProcessGroup as _Ours
from chorus.process_group import ours as _ours
from chorus.torchcomms._backend import native_name, registered_class
from chorus.torchcomms._types import ReduceOp as _ReduceOp
from chorus.torchcomms._window import TorchCommWindow
from chorus.torchcomms._work import DONE, TorchWork
from chorus.torchcomms.comm import MemAllocator, TorchComm, of_group

__all__ = [
    "get_comm",
    "get_group",
    "get_mem_allocator",
    "init_process_group",
    "new_window",
    "reduce_scatter_quantized",
    "register_mem_pool",
    "split_group",
]


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
    "cpu:gloo". "nccl", "ncclx" and "rccl" need a ``device_id`` of a device that they support. ``pg_options`` is then a
    dict of hints, or options of PyTorch's Gloo, of which only the timeout is used. Unknown names raise the same errors
    as in new_comm.
    """
    if use_torchcomms:
        pg_options, timeout = _hints_of(pg_options, timeout)
        name = (backend or "native").removeprefix("cpu:")
        kind = device_id.type if isinstance(device_id, torch.device) else "cpu"
        if name in LIBRARIES and native_name(name, kind) is not None:
            pg_options = {"backend": name, **(pg_options or {})}
        elif native_name(name) != "native":
            if native_name(name) is None:
                registered_class(name)  # raises for missing backends
            raise UnsupportedError(f"chorus: {name!r} can't be the backend of process groups")
        chorus.backend.register()
        backend = "chorus"
    dist.init_process_group(
        backend, init_method, timeout, world_size, rank, store, group_name, pg_options, device_id
    )


def get_comm(group: Any = None) -> TorchComm:
    """The communicator of a group (default: the world). The group keeps it; destroying the group finalizes it."""
    return of_group(group)


def get_group(group: Any = None) -> Any:
    """A group itself, or the world for None. Raises AssertionError if there is no world yet."""
    if group is None and dist.group.WORLD is None:
        raise AssertionError("chorus: there is no world yet: call init_process_group first")
    return group if group is not None else dist.group.WORLD


def _hints_of(pg_options: Any, timeout: timedelta | None) -> tuple[dict[str, Any] | None, timedelta | None]:
    """A group's hints and timeout from PyTorch's options; a timeout of the call takes precedence."""
    theirs = getattr(getattr(dist, "ProcessGroupGloo", None), "_Options", None)
    if theirs is not None and isinstance(pg_options, theirs):
        return None, timeout or pg_options._timeout
    if pg_options is not None and not isinstance(pg_options, dict):
        raise InvalidArgumentError(
            f"chorus: pg_options is a dict of hints or a ProcessGroupGloo._Options, not {type(pg_options).__name__}"
        )
    return pg_options, timeout


def split_group(
    parent_pg: Any = None,
    split_ranks: list[list[int]] | None = None,
    timeout: timedelta | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
    backend: str | None = None,
) -> Any:
    """The group of this rank's list among ``split_ranks``; None if it is in none. Every rank of the parent calls it.

    Ranks are those of the parent (default: the world), and their order gives the new ones; without lists all ranks are
    in one. ``pg_options`` is as :func:`init_process_group` takes it. The backend is the parent's: ``backend`` may name
    it, for one device or several, and any other is a :class:`chorus.UnsupportedError`.
    """
    parent = _ours(parent_pg)
    for name in (backend or "").split(",") if backend else ():
        name = name.split(":")[-1].strip()
        if (native_name(name) or name) not in ("native", parent.comm.backend):
            raise UnsupportedError(
                f"chorus: split_group: backend {backend!r}: a part has the parent's backend, {parent.comm.backend!r}",
                op="split_group",
            )
    hints, timeout = _hints_of(pg_options, timeout)
    lists = [list(range(parent.comm.size))] if split_ranks is None else split_ranks
    mine = [ranks for ranks in lists if parent.comm.rank in ranks]
    if len(mine) > 1:
        raise ValueError(f"split_group: rank {parent.comm.rank} is in several lists: {mine}")
    return chorus.backend.split_group(
        mine[0] if mine else [], parent, timeout=timeout, opts=hints, group_desc=group_desc
    )


def reduce_scatter_quantized(
    output: torch.Tensor,
    input: torch.Tensor,
    op: Any,
    seed: torch.Tensor,
    group: Any = None,
    async_op: bool = False,
) -> TorchWork:
    """A reduce-scatter of float32 that sends values as bfloat16, rounded up or down at random, and adds them up in
    float32. Shapes: input get_world_size() times output.

    ``seed`` is a tensor of one integer; the same seed on a rank gives the same bits. ``op`` is SUM or AVG. It's done,
    or enqueued on a device's current stream, when it returns, also with ``async_op``. Raises
    :class:`chorus.InvalidArgumentError`, before anything moves, for other types, sizes or reductions.
    """
    comm = get_comm(group)
    n = comm.get_size()
    if output.dtype != torch.float32 or input.dtype != torch.float32:
        raise comm._invalid("reduce_scatter_quantized", f"tensors are {output.dtype} and {input.dtype}, not float32")
    if input.numel() != n * output.numel():
        raise comm._invalid("reduce_scatter_quantized",
            f"the input has {input.numel()} elements; it must have {n * output.numel()}")  # fmt: skip
    if op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, _ReduceOp.SUM, _ReduceOp.AVG):
        raise comm._invalid("reduce_scatter_quantized", f"the reduction is {op}; it must be SUM or AVG")
    sent = _rounded(input.detach().reshape(n, output.numel()), int(seed))
    received = torch.empty_like(sent)
    comm.all_to_all_single(received, sent, False)
    sums = received.float()
    output.copy_((sums.mean(0) if op in (dist.ReduceOp.AVG, _ReduceOp.AVG) else sums.sum(0)).view_as(output))
    return DONE


def _rounded(x: torch.Tensor, seed: int) -> torch.Tensor:
    """float32 as bfloat16: the neighbour further from zero with the probability that makes the mean right."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randint(0, 1 << 16, x.shape, dtype=torch.int32, generator=generator).to(x.device)
    bits = (x.contiguous().view(torch.int32) + noise) & -(1 << 16)
    return torch.where(x.isfinite(), bits.view(torch.float32), x).bfloat16()


def register_mem_pool(group: Any, device: torch.device | str, pool: Any) -> None:
    """Register a pool of a device's memory with a group. It does nothing for groups of Chorus, which register their own
    pools; other groups' backends register it."""
    owner = get_group(group)
    if not isinstance(owner, _Ours):
        owner._get_backend(torch.device(device)).register_mem_pool(pool)


def new_window(tensor: torch.Tensor | None = None, group: Any = None) -> TorchCommWindow:
    """A window of a group's communicator."""
    return get_comm(group).new_window(tensor)


def get_mem_allocator(group: Any = None, device: torch.device | None = None) -> MemAllocator:
    """The allocator of the memory with which a group is fastest. ``device`` is ignored: it's the communicator's."""
    return get_comm(group).get_mem_allocator()
