"""Shared by the parts of ``torch.<name>``: the extension, and the index of a caller's device."""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import Any

import torch

title = ""  # the device's name in sentences


def c() -> Any:
    """The extension."""
    return sys.modules.get("chorus_device._C") or importlib.import_module("chorus_device._C")


def name() -> str:
    """The name of the type of device that is registered in this process."""
    return str(torch._C._get_privateuse1_backend_name())


def index(where: Any) -> int:
    """The index of a device that a caller means: the current one by default."""
    if where is None:
        return int(c().current_device())
    if isinstance(where, int):
        return where
    d = torch.device(where)
    if d.type != name():
        raise ValueError(f"expected a device of {name()}, not {d}")
    return int(c().current_device()) if d.index is None else d.index


def drain_autograd(seconds: float = 10.0) -> None:
    """Make autograd's threads drop the objects of finished backward passes now; otherwise they do so a moment later.
    It waits ``seconds`` at most."""
    c().drain_autograd(seconds)


def make_kept_memory() -> None:
    """Make the memory that a device keeps once it's used: the word in which kernels say that an index is out of range.
    A later comparison of allocated bytes then doesn't count it."""
    for i in range(torch.accelerator.device_count()):
        with contextlib.suppress(Exception):
            x = torch.arange(2, device=torch.device(name(), i))
            x[x].tolist()


def handle_of(stream: Any) -> int:
    """The library's handle of a stream. Its ``native_handle`` is the driver's."""
    return int(c().stream_handle(stream.device_index, stream.stream_id))
