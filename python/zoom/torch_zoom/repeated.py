"""PyTorch's functions that register a device. Programs for the original call them, as it couldn't do so by itself."""

from __future__ import annotations

import functools
import importlib
import types
from typing import Any

import torch


def allow() -> None:
    """Let ``generate_methods_for_privateuse1_backend`` and ``_register_device_module`` be called again, with the same
    module. PyTorch raises an error then, but not for ``rename_privateuse1_backend``."""
    register: Any = torch._register_device_module

    @functools.wraps(register)
    def _register_device_module(device_type: str, module: types.ModuleType) -> None:
        if module is not getattr(torch, "zoom", None) or torch.device(device_type).type != "zoom":
            register(device_type, module)

    torch._register_device_module = _register_device_module
    registration: Any = importlib.import_module("torch.utils.backend_registration")
    generate = registration.generate_methods_for_privateuse1_backend

    @functools.wraps(generate)
    def generate_methods_for_privateuse1_backend(*args: Any, **kwargs: Any) -> None:
        if not hasattr(torch.Tensor, "is_zoom"):
            generate(*args, **kwargs)

    utils: Any = torch.utils
    for module in (registration, utils):
        module.generate_methods_for_privateuse1_backend = generate_methods_for_privateuse1_backend
