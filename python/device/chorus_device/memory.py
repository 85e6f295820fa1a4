"""Memory of devices: statistics, limits, pools, and history."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch

from chorus_device._device import c, index

__all__ = [
    "MemPool",
    "empty_cache",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "staged_bytes",
    "use_mem_pool",
]


def memory_stats(device: Any = None) -> OrderedDict[str, Any]:
    """The statistics of a device's allocator under the names of ``torch.cuda.memory_stats``."""
    return OrderedDict(c().memory_stats(index(device)))


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors occupy."""
    return int(memory_stats(device)["allocated_bytes.all.current"])


def max_memory_allocated(device: Any = None) -> int:
    """Their peak."""
    return int(memory_stats(device)["allocated_bytes.all.peak"])


def memory_reserved(device: Any = None) -> int:
    """Bytes that the allocator has from the driver."""
    return int(memory_stats(device)["reserved_bytes.all.current"])


def max_memory_reserved(device: Any = None) -> int:
    """Their peak."""
    return int(memory_stats(device)["reserved_bytes.all.peak"])


def empty_cache() -> None:
    """Return the allocators' cached memory that isn't in use to the driver."""
    torch.accelerator.empty_cache()


def reset_peak_memory_stats(device: Any = None) -> None:
    """Reset the peaks to the current use."""
    torch.accelerator.reset_peak_memory_stats(index(device))


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Reset sums and counts to 0."""
    torch.accelerator.reset_accumulated_memory_stats(index(device))


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total memory of a device, in bytes."""
    free, total = c().memory_info(index(device))
    return free, total


def staged_bytes(device: Any = None) -> int:
    """Bytes that operators without a kernel of the device have copied to the host and back: none, if the process can
    access the device's memory."""
    return int(c().staged_bytes(index(device)))


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """:func:`memory_stats`, with nested dictionaries for the parts of names."""
    return _nested(memory_stats(device))


def host_memory_stats() -> OrderedDict[str, Any]:
    """The statistics of pinned memory, of all devices together, under the names of ``torch.cuda.host_memory_stats``:
    bytes of blocks, and microseconds; empty before a device was used."""
    return OrderedDict(c().host_memory_stats())


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """:func:`host_memory_stats`, with nested dictionaries for the parts of names."""
    return _nested(host_memory_stats())


def reset_peak_host_memory_stats() -> None:
    """Reset the peaks of pinned memory to the current use."""
    c().reset_host_memory_stats(True)


def reset_accumulated_host_memory_stats() -> None:
    """Reset sums and counts of pinned memory to 0."""
    c().reset_host_memory_stats(False)


def _nested(figures: dict[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in figures.items():
        *path, last = key.split(".")
        at = nested
        for part in path:
            at = at.setdefault(part, {})
        at[last] = value
    return nested


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A human-readable table of the statistics."""
    stats = memory_stats(device)
    rows = [
        ("allocated_bytes", 1 << 20),
        ("reserved_bytes", 1 << 20),
        ("active_bytes", 1 << 20),
        ("allocation", 1),
        ("segment", 1),
    ]
    lines = [f"{'':24}{'now':>12}{'peak':>12}{'in all':>12}{'freed':>12}"]
    for row, unit in rows:
        for pool in ("all",) if abbreviated else ("all", "large_pool", "small_pool"):
            figures = (stats[f"{row}.{pool}.{what}"] for what in ("current", "peak", "allocated", "freed"))
            name = (row if pool == "all" else "  " + pool) + (", MiB" if unit > 1 else "")
            lines.append(f"{name:24}" + "".join(f"{n / unit:12.1f}" if unit > 1 else f"{n:12}" for n in figures))
    lines.append(f"{'out of memory':24}{stats['num_ooms']:12}")
    return "\n".join(lines)


_fractions: dict[int, float] = {}


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Limit the allocator to a fraction of a device's memory, from 0 to 1."""
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    c().set_memory_fraction(index(device), fraction)
    _fractions[index(device)] = fraction


def get_per_process_memory_fraction(device: Any = None) -> float:
    """The fraction of a device's memory that the allocator may take."""
    return _fractions.get(index(device), 1.0)


# ---- history ----


def _snapshot(device: Any = None) -> dict[str, Any]:
    """The state of the allocators, and their history, in the form of ``torch.cuda.memory._snapshot``."""
    devices = range(c().device_count()) if device is None else [index(device)]
    merged: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as where:
        path = os.path.join(where, "snapshot")
        for i in devices:
            c().memory_snapshot(i, path)
            with open(path) as f:
                one = json.load(f)
            merged["segments"] = merged.get("segments", []) + one["segments"]
            traces = merged.setdefault("device_traces", [[] for _ in range(c().device_count())])
            traces[i] = one["device_traces"][i]
            merged["allocator_settings"] = one["allocator_settings"]
    return merged


def memory_snapshot(mempool_id: tuple[int, int] | None = None) -> list[dict[str, Any]]:
    """The segments that the allocators have, or those of one pool, and the blocks in them."""
    segments: list[dict[str, Any]] = _snapshot()["segments"]
    return [s for s in segments if mempool_id is None or tuple(s["segment_pool_id"]) == tuple(mempool_id)]


_MOST_ENTRIES = 1 << 16  # the default limit of the history


def _record_memory_history(
    enabled: str | None = "all", context: str | None = "all", stacks: str = "all", max_entries: int = sys.maxsize,
    device: Any = None, **_: Any,
) -> None:  # fmt: skip
    """Record the allocators' events for :func:`_snapshot`, as ``torch.cuda.memory._record_memory_history`` does;
    ``enabled=None`` ends that. Allocations have Python stacks, at some microseconds each, unless ``context`` is None.
    There are no stacks of C++. The event of a free has the stack of its allocation."""
    for what, given, known in (
        ("enabled", enabled or None, (None, "state", "all", True)),
        ("context", context, (None, "state", "alloc", "all")),
        ("stacks", stacks, ("python", "all")),
    ):
        if given not in known:
            raise ValueError(f"{what} is {given!r}, and can be {', '.join(map(repr, known))}")
    if enabled or device is None:
        c().record_alloc_sites(bool(enabled and context))
    entries = _MOST_ENTRIES if max_entries == sys.maxsize else max_entries
    for i in range(c().device_count()) if device is None else [index(device)]:
        c().record_memory_history(i, entries if enabled else 0)


def _dump_snapshot(filename: str = "dump_snapshot.pickle") -> None:
    """Write :func:`_snapshot` to a file for https://pytorch.org/memory_viz."""
    with open(filename, "wb") as f:
        pickle.dump(_snapshot(), f)


# ---- pools ----


class MemPool:
    """A separate pool of memory. Allocations within :func:`use_mem_pool` come from it and return to it."""

    def __init__(self) -> None:
        self.id: tuple[int, int] = tuple(c().new_pool())
        self._begun: list[int] = []  # the devices on which it was begun, once for each time

    def use_count(self) -> int:
        """The number of uses that keep the pool alive."""
        return len(self._begun)

    def snapshot(self) -> list[dict[str, Any]]:
        """The pool's segments."""
        return memory_snapshot(self.id)

    def __del__(self) -> None:
        for i in getattr(self, "_begun", ()):
            c().release_pool(i, self.id)


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: Any = None) -> Iterator[None]:
    """Within this the thread's allocations on a device come from a pool."""
    i = index(device)
    c().begin_pool(i, pool.id)
    pool._begun.append(i)
    try:
        yield
    finally:
        c().end_pool(i, pool.id)
