"""Versions of the libraries that drive the devices: ``torch.zoom.version.hip``, ``cuda`` and ``opencl``. One of them
is a text, such as "3.0", and the others are None; without a device all are. The first look at one loads the driver."""

from __future__ import annotations

from chorus_device import namespace
from chorus_device._device import c

__all__ = ["cuda", "hip", "opencl"]  # noqa: F822


def __getattr__(name: str) -> str | None:
    if name not in __all__:
        raise AttributeError(f"module 'torch.zoom.version' has no attribute {name!r}")
    if namespace.device_count() == 0 or c().driver() != name:
        return None
    return namespace.get_device_properties(0).library.partition(" ")[2]
