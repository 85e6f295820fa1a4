"""Who this process is, as its environment says."""

from __future__ import annotations

import os
from datetime import timedelta

from torch._C._distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

_METHOD = "TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD"
_BY_HAND = (("TORCHCOMM_RANK",), ("TORCHCOMM_SIZE",))
# By the values of _METHOD, in the order in which they are tried.
_LAUNCHERS: dict[str, list[tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "mpi": [
        (("OMPI_COMM_WORLD_RANK",), ("OMPI_COMM_WORLD_SIZE",)),
        (("PMI_RANK",), ("PMI_SIZE",)),
    ],
    "pals": [(("PALS_RANKID",), ("PALS_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "WORLD_SIZE"))],
    "torchrun": [(("RANK",), ("WORLD_SIZE",))],
}
# The stores of MASTER_ADDR and MASTER_PORT; that of rank 0 is their server, and must stay.
_stores: dict[tuple[str, ...], Store] = {}


def _number(names: tuple[str, ...]) -> int | None:
    for name in names:
        if text := os.environ.get(name, "").strip():
            try:
                return int(text)
            except ValueError:
                raise RuntimeError(f"chorus: {name}={text!r} is not a number") from None
    return None


def query_ranksize() -> tuple[int, int]:
    """Rank and number of ranks, from the environment at the time of the call.

    (-1, 0) if none of these variables is there; the library knows some more launchers.
    Raises RuntimeError, which names the variable, for what can't be read.
    """
    method = os.environ.get(_METHOD) or "auto"
    if method != "auto" and method not in _LAUNCHERS:
        raise RuntimeError(f"chorus: {_METHOD}={method!r}; it must be auto or one of {', '.join(_LAUNCHERS)}")
    chosen = [pair for name, pairs in _LAUNCHERS.items() if method in ("auto", name) for pair in pairs]
    for ranks, sizes in (_BY_HAND, *chosen):
        rank, size = _number(ranks), _number(sizes)
        if rank is not None and size is not None:
            if not 0 <= rank < size:
                raise RuntimeError(f"chorus: {ranks[0]}={rank} is not a rank of a world of {size}")
            return rank, size
    return -1, 0


def store_of_environment(rank: int, size: int, timeout: timedelta) -> Store | None:
    """The store at MASTER_ADDR and MASTER_PORT, where ranks meet if they are given none; None without them."""
    names = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
    key = tuple(os.environ.get(name, "") for name in names)
    if not key[0] or not key[1]:
        return None
    if key not in _stores:
        _stores[key], _, _ = next(rendezvous("env://", rank, size, timeout=timeout))
    return _stores[key]
