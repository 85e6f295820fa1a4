"""Memory of every rank with one-sided access for the others: chorus_window.

Like :mod:`chorus._comm` this knows addresses and counts, not tensors.
"""

from __future__ import annotations

import ctypes

import torch
from torch.autograd import profiler

from chorus import _lib, _profiled
from chorus._comm import Communicator, Pending, _failure
from chorus.errors import check


class Window:
    """One rank's part in a window. Making and closing it is collective.

    All methods may be called from any thread. Operations of one thread run in order, except WAIT_SIGNAL, which doesn't
    delay those issued after it.
    """

    def __init__(
        self, comm: Communicator, data: int, count: int, dtype: int, keep: object, device: torch.device | None
    ) -> None:
        """Expose memory, which ``keep`` holds until the window is closed, or ends with its communicator.

        On a ``device`` operations are enqueued, on the current stream, or behind it if they are asynchronous.
        """
        comm.place(device)
        handle = ctypes.c_uint64()
        with comm._on(device):
            check(_lib.library.chorus_window_create(comm.handle, data, count, dtype, ctypes.byref(handle)))
        self.comm = comm
        self.device = device if count else None
        self.handle = handle.value
        comm.exposed[self.handle] = keep

    def __copy__(self) -> Window:
        """The window itself: a handle has only one Window."""
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Window:
        memo[id(self)] = self
        return self

    def run(self, op: _lib.WindowOp, asynchronous: bool, keep: object) -> Pending | None:
        """Run an operation, or issue it and return its Pending; ``keep`` must live until it's done."""
        op.size = ctypes.sizeof(op)
        kind: int = op.kind
        event = _profiled.nothing
        if profiler._is_profiler_enabled:
            event = _profiled.on_window(kind, keep, asynchronous, self.comm.name, self.comm.rank, op.rank)
        if not asynchronous:
            with event, self.comm._on(self.device):
                status = _lib.library.chorus_window_submit(self.handle, ctypes.byref(op), None)
            if status:
                raise _failure(status)
            return None
        work = ctypes.c_uint64()
        with event, self.comm._on(self.device):
            check(_lib.library.chorus_window_submit(self.handle, ctypes.byref(op), ctypes.byref(work)))
        # A wait for a signal may complete out of order, as a message may.
        return self.comm._issued(
            work.value, _lib.SEND if kind == _lib.WAIT_SIGNAL else 0, keep, None, event, self.device
        )

    def map(self, rank: int) -> int:
        """The address of a rank's memory in this process, valid until the window is closed."""
        data = ctypes.c_void_p()
        check(_lib.library.chorus_window_map(self.handle, rank, ctypes.byref(data)))
        return data.value or 0

    def peer(self, rank: int) -> tuple[bool, int]:
        """Whether a rank's memory can be mapped, and how many elements it exposes."""
        peer = _lib.WindowPeer(size=ctypes.sizeof(_lib.WindowPeer))
        check(_lib.library.chorus_window_get(self.handle, rank, ctypes.byref(peer)))
        return bool(peer.mapped), peer.count

    def close(self) -> None:
        """End the window, on all ranks."""
        check(_lib.library.chorus_window_close(self.handle))
        self.comm.exposed.pop(self.handle, None)
