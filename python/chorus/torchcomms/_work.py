"""Handles of operations."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from chorus._comm import DevicePending, Pending
from chorus.errors import TimeoutError
from chorus.process_group import timeout_ns
from chorus.torchcomms._types import WorkStatus


class TorchWork:
    """An operation under way. It may be dropped; the operation goes on.

    Backends written in Python make them without arguments, or subclass this.
    """

    __slots__ = ("_on_wait", "_pending", "_status", "__weakref__")

    def __init__(self, pending: Pending | None = None, status: WorkStatus = WorkStatus.COMPLETED) -> None:
        self._pending = pending
        self._status = status
        self._on_wait: Callable[[], None] | None = None  # called once, at the first wait

    def _waited(self) -> None:
        if (call := self._on_wait) is not None:
            self._on_wait = None
            call()

    def wait(self, timeout: timedelta | None = None) -> None:
        """Wait until the operation is done; raise its error.

        ``timeout``, if it isn't zero, bounds this wait, after which the operation goes on; without one the
        operation's own timeout ends it. Raises :class:`chorus.Error`, a RuntimeError.

        For tensors of a device the later work of the device's current stream waits, not the host, unless the process
        can't touch their memory. Then ``timeout`` has no meaning, and a later failure of the operation is the stream's
        error.
        """
        if isinstance(self._pending, DevicePending):
            self._waited()
            self._pending.join()
        else:
            self.wait_blocking(timeout)

    def wait_blocking(self, timeout: timedelta | None = None) -> None:
        """:meth:`wait`, with the host, also for tensors of a device."""
        self._waited()
        if self._pending is not None:
            self._pending.wait(timeout_ns(timeout) or -1)

    def is_completed(self) -> bool:
        """Whether the operation is over, successful or failed. It becomes true without a wait."""
        if self._pending is not None:
            return self._pending.test()
        return self._status not in (WorkStatus.NOT_STARTED, WorkStatus.INPROGRESS)

    def exception(self) -> BaseException | None:
        """The operation's error; None if it didn't fail, or isn't over."""
        return self._pending.error if self._pending is not None and self._pending.test() else None

    def status(self) -> WorkStatus:
        """The state of the operation."""
        if self._pending is None:
            return self._status
        if not self._pending.test():
            return WorkStatus.INPROGRESS
        return _outcome(self._pending.error)

    def _set_status(self, status: WorkStatus) -> None:
        """For backends written in Python."""
        self._status = status

    def __copy__(self) -> TorchWork:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> TorchWork:
        memo[id(self)] = self
        return self


def _outcome(error: BaseException | None) -> WorkStatus:
    """The status of an operation that is over."""
    if error is None:
        return WorkStatus.COMPLETED
    return WorkStatus.TIMEDOUT if isinstance(error, TimeoutError) else WorkStatus.ERROR


# The handle of operations that were done when they returned. All share one: with cold caches, making one takes as long
# as a small operation.
DONE = TorchWork()


class WorkWrapper(TorchWork):
    """The handle of an operation of a backend written in Python: anything with a ``wait``."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Any) -> None:
        super().__init__(status=WorkStatus.INPROGRESS)
        self._inner = inner

    def wait(self, timeout: timedelta | None = None) -> None:
        self._waited()
        if self._status is WorkStatus.INPROGRESS:
            if timeout is None:
                self._inner.wait()
            else:
                self._inner.wait(timeout)
            self._status = WorkStatus.COMPLETED

    def is_completed(self) -> bool:
        if self._status is WorkStatus.INPROGRESS and hasattr(self._inner, "is_completed"):
            return bool(self._inner.is_completed())
        return super().is_completed()

    def exception(self) -> BaseException | None:
        """The operation's error, if its backend reports one."""
        ask = getattr(self._inner, "exception", None)
        error: BaseException | None = ask() if ask is not None and self.is_completed() else None
        return error

    def status(self) -> WorkStatus:
        if self._status is not WorkStatus.INPROGRESS or not self.is_completed():
            return self._status
        return _outcome(self.exception())
