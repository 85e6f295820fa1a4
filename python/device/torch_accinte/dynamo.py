"""``torch.compile``: the device's interface for dynamo, and the backend of its name."""

from __future__ import annotations

import os
import types
from typing import Any, NamedTuple

import torch
from torch._dynamo.device_interface import DeviceInterface

from torch_accinte import accinte
from torch_accinte._device import c, handle_of, name


class Properties(NamedTuple):
    """The properties of a device that inductor reads: its parallelism."""

    multi_processor_count: int


class Interface(DeviceInterface):
    device = accinte.device
    Event = torch.Event
    Stream = torch.Stream
    current_device = staticmethod(accinte.current_device)
    set_device = staticmethod(accinte.set_device)
    device_count = staticmethod(accinte.device_count)
    is_available = staticmethod(accinte.is_available)
    stream = staticmethod(accinte.stream)
    current_stream = staticmethod(accinte.current_stream)
    set_stream = staticmethod(accinte.set_stream)
    synchronize = staticmethod(accinte.synchronize)

    class Worker(DeviceInterface.Worker):
        set_device = staticmethod(accinte.set_device)
        current_device = staticmethod(accinte.current_device)

        @staticmethod
        def get_device_properties(device: Any = None) -> Any:
            return Properties(os.cpu_count() or 1)

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
        return handle_of(accinte.current_stream(device_idx))

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        return True


def backend(graph: Any, inputs: Any, **options: Any) -> Any:
    """``torch.compile(backend="accinte")``, an entry point of this package: inductor, which is the default."""
    from torch._dynamo.backends.registry import lookup_backend

    inductor: Any = lookup_backend("inductor")
    return inductor(graph, inputs, **options)


def register(interfaces: types.ModuleType) -> None:
    """Register the device with dynamo; interfaces is dynamo's module of device interfaces."""
    interfaces.register_interface_for_device(name(), Interface)
