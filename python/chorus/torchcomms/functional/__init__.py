"""Collectives that return new tensors, with gradients, and as operators that torch.compile keeps in its graph."""

from __future__ import annotations

import os

import torch

from chorus.torchcomms.functional import async_tensor, collectives

__all__ = ["async_tensor", "collectives", "is_torch_compile_supported", "is_torch_compile_supported_and_enabled"]

_LEAST = (2, 12)


def is_torch_compile_supported(_current_version: str | None = None) -> bool:
    """Whether this PyTorch can trace the methods of communicators: from 2.12 on.

    TORCHCOMMS_COMPILE_IGNORE_PYTORCH_VERSION_REQUIREMENT=1 makes it true for any version.
    """
    if os.environ.get("TORCHCOMMS_COMPILE_IGNORE_PYTORCH_VERSION_REQUIREMENT") == "1":
        return True
    numbers = (_current_version or torch.__version__).split("+")[0].split(".")[:2]
    return tuple(int("".join(filter(str.isdigit, n)) or 0) for n in numbers) >= _LEAST


def is_torch_compile_supported_and_enabled(_current_version: str | None = None) -> bool:
    """Whether torch.compile traces the methods of communicators themselves: if it can, and
    TORCHCOMMS_PATCH_FOR_COMPILE=1 was set when torchcomms was imported. It always traces :mod:`collectives`."""
    return is_torch_compile_supported(_current_version) and os.environ.get("TORCHCOMMS_PATCH_FOR_COMPILE") == "1"
