"""``torch.compile``: the device's interface for dynamo, and the backend of its name."""

from __future__ import annotations

import os
import types
from typing import Any

import torch
from torch._dynamo.device_interface import DeviceInterface

from chorus_device import namespace
from chorus_device._device import c, handle_of, name

# Multiprocessors that inductor reckons with at least for generated kernels. It then divides long columns, so that a
# processor goes down some hundred elements, which lie apart, before it goes to the next columns.
_LEAST = 32


def processors(device: Any = None) -> int:
    """The number of multiprocessors by which inductor divides a reduction."""
    from chorus_device.inductor import generated

    if not generated():
        return os.cpu_count() or 1
    return max(namespace.get_device_properties(device).multi_processor_count, _LEAST)


class Interface(DeviceInterface):
    device = namespace.device
    Event = torch.Event
    Stream = torch.Stream
    current_device = staticmethod(namespace.current_device)
    set_device = staticmethod(namespace.set_device)
    device_count = staticmethod(namespace.device_count)
    is_available = staticmethod(namespace.is_available)
    stream = staticmethod(namespace.stream)
    current_stream = staticmethod(namespace.current_stream)
    set_stream = staticmethod(namespace.set_stream)
    synchronize = staticmethod(namespace.synchronize)

    class Worker(DeviceInterface.Worker):
        set_device = staticmethod(namespace.set_device)
        current_device = staticmethod(namespace.current_device)

        @staticmethod
        def get_device_properties(device: Any = None) -> Any:
            return namespace.get_device_properties(device)._replace(multi_processor_count=processors(device))

    @staticmethod
    def get_compute_capability(device: Any = None) -> str:
        return ""

    @staticmethod
    def is_triton_capable(device: Any = None) -> bool:
        return False

    @staticmethod
    def raise_if_triton_unavailable(device: Any = None) -> None:
        raise RuntimeError(f"{name()}: there is no Triton, inductor's kernels are in C++")

    @staticmethod
    def exchange_device(device: int) -> int:
        return int(c().exchange_device(device))

    @staticmethod
    def maybe_exchange_device(device: int) -> int:
        return int(c().exchange_device(device)) if device >= 0 else -1

    @staticmethod
    def get_raw_stream(device_idx: int) -> int:
        return handle_of(namespace.current_stream(device_idx))

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        return True


def backend(graph: Any, inputs: Any, **options: Any) -> Any:
    """``torch.compile(backend=name)``, if a package has this as an entry point: inductor, which is the default."""
    from torch._dynamo.backends.registry import lookup_backend

    inductor: Any = lookup_backend("inductor")
    return inductor(graph, inputs, **options)


def register(interfaces: types.ModuleType) -> None:
    """Register the device with dynamo; interfaces is dynamo's module of device interfaces."""
    interfaces.register_interface_for_device(name(), Interface)
