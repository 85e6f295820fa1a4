"""Collectives that return new tensors, with gradients, and as operators that torch.compile keeps in its graph."""

from chorus.torchcomms.functional import async_tensor, collectives

__all__ = ["async_tensor", "collectives", "is_torch_compile_supported_and_enabled"]


def is_torch_compile_supported_and_enabled(_current_version: str | None = None) -> bool:
    """Whether torch.compile traces the methods of communicators themselves: no. It traces :mod:`collectives`."""
    return False
