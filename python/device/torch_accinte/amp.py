"""Mixed precision on devices: ``torch.accinte.amp``. The rest is PyTorch's own ``torch.amp``."""

from __future__ import annotations

import torch

__all__ = ["get_amp_supported_dtype", "is_bf16_supported"]


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The types that ``torch.autocast`` may be asked for."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported() -> bool:
    """Whether there is bfloat16 on these devices."""
    return True
