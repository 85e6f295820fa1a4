"""Calls that a program makes before the first use of a device, and that happen then."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Any

from chorus_device import namespace

_lock = threading.RLock()
_queued: list[tuple[Callable[[], Any], list[str]]] = []  # with the stacks of their callers


class DeferredZoomCallError(Exception):
    """A deferred call has failed. The message has the stack of the program's call."""


def _lazy_call(callable: Callable[[], Any], **_: Any) -> None:
    """Call a function when a device is first used: now if one was. The original's options, of seeds, are ignored, since
    seeds wait by themselves."""
    with _lock:
        _queued.append((callable, traceback.format_stack()))
        if namespace.is_initialized():
            _replay()


def _lazy_init() -> None:
    """Open the current device, and make the deferred calls. PyTorch calls it before it makes a tensor of the device."""
    namespace._lazy_init()
    with _lock:
        _replay()


def init() -> None:
    """Open the current device now instead of at its first use."""
    _lazy_init()


def _replay() -> None:
    while _queued:
        callable, stack = _queued.pop(0)
        try:
            callable()
        except Exception as error:
            raise DeferredZoomCallError(
                f"Zoom call failed lazily at initialization with error: {error}\n\n"
                f"Zoom call was originally invoked at:\n\n{''.join(stack)}"
            ) from error
