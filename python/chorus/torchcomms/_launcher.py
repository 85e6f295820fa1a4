"""This process's rank, world and store, from its environment."""

from __future__ import annotations

import os
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from chorus.errors import TimeoutError

_TIMEOUT, _ABORT = "TORCHCOMM_TIMEOUT_SECONDS", "TORCHCOMM_ABORT_ON_ERROR"
# The library's words for true and false in variables.
_TRUTHS = dict.fromkeys(("1", "t", "true", "y", "yes", "on"), True) | dict.fromkeys(
    ("0", "f", "false", "n", "no", "off"), False
)
_METHOD = "TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD"
_BY_HAND = (("TORCHCOMM_RANK",), ("TORCHCOMM_SIZE",))
# By the values of _METHOD, in the order of the attempts.
_LAUNCHERS: dict[str, list[tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "mpi": [
        (("OMPI_COMM_WORLD_RANK",), ("OMPI_COMM_WORLD_SIZE",)),
        (("PMI_RANK",), ("PMI_SIZE",)),
    ],
    "pals": [(("PALS_RANKID",), ("PALS_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "WORLD_SIZE"))],
    "torchrun": [(("RANK",), ("WORLD_SIZE",))],
}
# The stores of MASTER_ADDR and MASTER_PORT. Rank 0's is the server, and must stay open.
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

    (-1, 0) if none of these variables is set; the library recognizes some more launchers.
    Raises RuntimeError, which names the variable, for a value that can't be parsed.
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


def default_timeout() -> timedelta:
    """The default timeout of communicators: TORCHCOMM_TIMEOUT_SECONDS, or 600 s."""
    text = os.environ.get(_TIMEOUT) or "600"
    try:
        timeout = timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        timeout = timedelta(0)
    if timeout <= timedelta(0):
        raise RuntimeError(f"chorus: {_TIMEOUT}={text!r} is not a positive number of seconds")
    return timeout


def default_abort() -> bool:
    """Whether failures abort the process by default: TORCHCOMM_ABORT_ON_ERROR, or no."""
    return flag(_ABORT, "false")


def flag(name: str, default: str) -> bool:
    """A variable that is true or false. Raises RuntimeError, which names it, for anything else."""
    text = os.environ.get(name) or default
    if text.lower() not in _TRUTHS:
        raise RuntimeError(f"chorus: {name}={text!r} is neither true nor false")
    return _TRUTHS[text.lower()]


def store_of_environment(rank: int, size: int, timeout: timedelta, foreign: bool = False) -> Store | None:
    """The default store of ranks, at MASTER_ADDR and MASTER_PORT; None if these aren't set.

    ``foreign``: other ranks are PyTorch's. Rank 0 of those counts the ranks that connect, and the attempts of torchrun
    share its keys. Rank 0 serves the store, unless torchrun does. It doesn't wait here for the other ranks: the
    communicator names those that are missing. Raises :class:`chorus.TimeoutError` if no process serves the store.
    """
    names = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
    key = *(os.environ.get(name, "") for name in names), str(foreign)
    port = _number(("MASTER_PORT",))
    if not key[0] or port is None:
        return None
    if key not in _stores:
        agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        libuv = os.environ.get("USE_LIBUV", "1") == "1"  # as PyTorch's rendezvous has it
        try:
            served = TCPStore(key[0], port, size, rank == 0 and not agent, timeout,
                wait_for_workers=foreign and rank > 0, multi_tenant=not agent, use_libuv=libuv)  # fmt: skip
        except dist.DistError as error:
            if "timed out" not in str(error):
                raise
            seconds = timeout.total_seconds()
            raise TimeoutError(
                f"chorus: rank {rank}: new_comm: timed out after {seconds:g} s: there is no store at {key[0]}:{port} "
                f"(MASTER_ADDR, MASTER_PORT), which {'torchrun' if agent else 'rank 0'} serves",
                op="new_comm",
                reporter=rank,
                missing_ranks=() if agent else (0,),
                elapsed=seconds,
            ) from error
        # torchrun's store may outlive an attempt, and the next attempt must not find its keys.
        _stores[key] = PrefixStore(f"/worker/attempt_{key[2]}", served) if agent and not foreign else served
    return _stores[key]
