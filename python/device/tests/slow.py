"""Work that takes its time."""

import contextlib
import ctypes
import os
import threading

import torch
from torch_accinte._device import handle_of

from chorus import _lib

# Every stream takes work as a busy one does.
ALWAYS_BUSY = os.environ.get("CHORUS_DEVICE_INLINE", "true").lower() in ("false", "0", "no", "off")


@contextlib.contextmanager
def held(device):
    """The device's current stream has something to do until this is over."""
    with busy(device, 60) as over:
        yield
        over.set()


@contextlib.contextmanager
def busy(device, seconds):
    """The device's current stream has something to do for so long, and what is enqueued within this is behind it.
    Setting the event ends that before."""
    over = threading.Event()

    def wait(*_):
        over.wait(seconds)
        return 0

    kernel = _lib.TASK_FN(wait)
    stream = torch.accelerator.current_stream(device)
    status = _lib.library.chorus_stream_task(handle_of(stream), b"slow", None, 0, kernel, _lib.OVER_FN(), None)
    assert status == 0
    try:
        yield over
        stream.synchronize()
    finally:
        over.set()
        with contextlib.suppress(Exception):  # of the stream; its thread is in the kernel until then
            stream.synchronize()
        keep = ctypes.cast(kernel, ctypes.c_void_p)
        assert keep.value
