"""Work that keeps a stream busy."""

import contextlib
import ctypes
import os
import threading

import torch
from chorus_device._device import handle_of

from chorus import _lib

# Whether every stream defers work like a busy one.
ALWAYS_BUSY = os.environ.get("CHORUS_DEVICE_INLINE", "true").lower() in ("false", "0", "no", "off")


@contextlib.contextmanager
def held(device):
    """Keep the device's current stream busy until the end of the ``with``."""
    with busy(device, 60) as over:
        yield
        over.set()


@contextlib.contextmanager
def busy(device, seconds):
    """Keep the device's current stream busy for ``seconds``; work that is enqueued within the ``with`` waits for that.
    Setting the event ends it earlier; its ``begun`` is set when the stream gets there."""
    over = threading.Event()
    over.begun = threading.Event()

    def wait(*_):
        over.begun.set()
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
        with contextlib.suppress(Exception):  # an error of the stream; its thread is in the kernel until then
            stream.synchronize()
        keep = ctypes.cast(kernel, ctypes.c_void_p)
        assert keep.value
