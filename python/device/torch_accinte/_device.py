"""What the parts of ``torch.accinte`` share: the extension, and which device a caller means."""

from __future__ import annotations

import importlib
from typing import Any

import torch


def c() -> Any:
    """The extension."""
    return importlib.import_module("torch_accinte._C")


def name() -> str:
    """The type of device that is PyTorch's in this process."""
    return str(torch._C._get_privateuse1_backend_name())


def index(where: Any) -> int:
    """The index of a device that a caller means: the current one by default."""
    if where is None:
        return int(c().current_device())
    if isinstance(where, int):
        return where
    d = torch.device(where)
    if d.type != name():
        raise ValueError(f"a device of {name()} is wanted, not {d}")
    return int(c().current_device()) if d.index is None else d.index


def settle(seconds: float = 10.0) -> None:
    """Let autograd's threads drop what backward passes have left them with, which else they do in a moment. It waits so
    long at most."""
    c().settle(seconds)


def handle_of(stream: Any) -> int:
    """A stream in the library. Its ``native_handle`` is what the driver calls it."""
    return int(c().stream_handle(stream.device_index, stream.stream_id))
