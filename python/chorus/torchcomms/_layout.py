"""Which ranks of a communicator are on which hosts."""

from __future__ import annotations

import collections
import hashlib
import os
import socket
from typing import Any

import torch

from chorus.torchcomms._types import NodeRankLayout


def _host(hints: dict[str, str]) -> int:
    """A number of this host, the same in all of its processes."""
    told = hints.get("host_id", "")
    if not told:
        with open("/proc/sys/kernel/random/boot_id") as file:
            told = f"{socket.gethostname()} {file.read()}"
    return int.from_bytes(hashlib.sha256(told.encode()).digest()[:7], "big")


def _number(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else -1


def of(comm: Any) -> NodeRankLayout:
    """The layout of a TorchComm. Collective."""
    rank = _number("RANK")
    mine = [_host(comm.get_options().hints), rank if rank >= 0 else comm.get_ranks()[comm.get_rank()]]
    told = torch.tensor([*mine, _number("LOCAL_RANK")], device=comm.get_device())
    everybody = torch.empty(comm.get_size(), 3, dtype=torch.int64, device=comm.get_device())
    comm._impl.all_gather_single(everybody, told, False)
    rows = everybody.tolist()
    counts = collections.Counter(host for host, _, _ in rows)
    here = [row for row in rows if row[0] == mine[0]]
    return NodeRankLayout(
        len(counts),
        len(here),
        [rank for _, rank, _ in here],
        [i if local < 0 else local for i, (_, _, local) in enumerate(here)],
        len(set(counts.values())) == 1,
    )
