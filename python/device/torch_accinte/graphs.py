"""Graphs: work of streams that is captured once and replayed often."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from torch_accinte._device import c

__all__ = ["Graph", "graph", "graph_pool_handle", "is_current_stream_capturing"]

# Where PyTorch has graphs of accelerators; from 2.13 on.
Graph: Any = getattr(torch.accelerator, "Graph", None)

_capturing: dict[int, torch.Stream] = {}


def graph_pool_handle() -> tuple[int, int]:
    """The name of a memory pool for graphs that are to share one."""
    pool: tuple[int, int] = tuple(c().new_pool())
    return pool


def is_current_stream_capturing() -> bool:
    """Whether work of the current stream becomes a graph instead of running."""
    return bool(c().is_capturing(c().current_device()))


@contextlib.contextmanager
def graph(
    g: Any, pool: Any = None, stream: torch.Stream | None = None, capture_error_mode: str = "default"
) -> Iterator[None]:
    """Capture what is done within this into a :class:`Graph`, on a stream, or one that is there for captures."""
    device = c().current_device()
    if stream is None:
        stream = _capturing.setdefault(device, torch.Stream(torch.accelerator.current_stream().device))
    if pool is not None:
        g.graph_pool = pool.id if hasattr(pool, "id") else pool
    g.capture_error_mode = capture_error_mode
    with stream, g:
        yield
