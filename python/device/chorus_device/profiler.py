"""The devices' own profile, like ``torch.cuda.profiler``: the driver's records, and ranges of the host."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch
from torch._C._profiler import ProfilerConfig, ProfilerState, _ExperimentalConfig

from chorus_device._device import c

__all__ = ["emit_ranges", "profile"]


@contextlib.contextmanager
def profile(path: str | os.PathLike[str]) -> Iterator[None]:
    """Write the work of all devices within this, and the ranges of the host, to a file in Chrome's format."""
    c().start_profile()
    try:
        yield
        for i in range(c().device_count()):
            torch.accelerator.synchronize(i)
    finally:
        c().write_profile(os.fspath(path))


@contextlib.contextmanager
def emit_ranges(enabled: bool = True, record_shapes: bool = False) -> Iterator[None]:
    """Within this each operator of the thread, backward passes included, is a range in :func:`profile`, as with
    ``torch.autograd.profiler.emit_nvtx``. It uses ``ProfilerState.PRIVATEUSE1``, and can't be entered twice."""
    if not enabled:
        yield
        return
    config = ProfilerConfig(ProfilerState.PRIVATEUSE1, record_shapes, False, False, False, False, _ExperimentalConfig())
    autograd: Any = torch.autograd
    autograd._enable_profiler(config, set())
    try:
        yield
    finally:
        autograd._disable_profiler()
