"""Mixed precision on devices: ``torch.<name>.amp``, like ``torch.cuda.amp``. It's PyTorch's own ``torch.amp`` with the
device's name."""

from __future__ import annotations

from typing import Any

import torch

from chorus_device._device import name

__all__ = ["get_amp_supported_dtype", "is_bf16_supported"]  # in torch.<name> itself


class autocast(torch.amp.autocast_mode.autocast):
    """``torch.autocast(name)``."""

    def __init__(
        self, enabled: bool = True, dtype: torch.dtype | None = None, cache_enabled: bool | None = None
    ) -> None:
        super().__init__(name(), dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(torch.amp.grad_scaler.GradScaler):
    """``torch.amp.GradScaler(name)``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(name(), *args, **kwargs)


def custom_fwd(fwd: Any = None, *, cast_inputs: torch.dtype | None = None) -> Any:
    """``torch.amp.custom_fwd(device_type=name)``, for the forward of an autograd function under autocast."""
    return torch.amp.custom_fwd(fwd, device_type=name(), cast_inputs=cast_inputs)


def custom_bwd(bwd: Any = None) -> Any:
    """``torch.amp.custom_bwd(device_type=name)``: the backward runs with the autocast state of the forward."""
    return torch.amp.custom_bwd(bwd, device_type=name())


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The types that ``torch.autocast`` takes."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported() -> bool:
    """Whether these devices support bfloat16."""
    return True
