"""The exceptions of Chorus.

Every exception is a :class:`chorus.Error`, hence a
``torch.distributed.DistBackendError`` and a ``RuntimeError``. It names the
communicator, operation and ranks that it is about.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from chorus import _lib


class Error(dist.DistBackendError):
    """A failure of Chorus.

    Attributes:
        comm: the communicator's name, ``""`` outside of one.
        op: the operation, such as ``"all_reduce"``, or ``""``.
        seq: the operation's number on its communicator, 0 if it had none yet.
        reporter: the rank that reports the failure, -1 if unknown.
        peer: the rank that is lost (:class:`PeerLostError`), otherwise -1.
        by: the rank that aborted (:class:`AbortedError`), otherwise -1.
        missing_ranks: ranks known not to have entered the operation; for a lost peer, that peer.
        arrived_ranks: ranks known to have entered it.
        unknown_ranks: ranks whose state is unknown.
        elapsed: seconds that a wait took until it timed out.
        detail: why, without the facts above.

    Ranks are those of the communicator (``torch.distributed.get_global_rank`` translates).
    """

    def __init__(
        self,
        message: str = "",
        *,
        comm: str = "",
        op: str = "",
        seq: int = 0,
        reporter: int = -1,
        peer: int = -1,
        by: int = -1,
        missing_ranks: tuple[int, ...] = (),
        arrived_ranks: tuple[int, ...] = (),
        unknown_ranks: tuple[int, ...] = (),
        elapsed: float = 0.0,
        detail: str = "",
    ) -> None:
        super().__init__(message)
        self.comm = comm
        self.op = op
        self.seq = seq
        self.reporter = reporter
        self.peer = peer
        self.by = by
        self.missing_ranks = missing_ranks
        self.arrived_ranks = arrived_ranks
        self.unknown_ranks = unknown_ranks
        self.elapsed = elapsed
        self.detail = detail or message


class InvalidArgumentError(Error):
    """Arguments that were refused before any byte moved; nothing has changed."""


class MismatchError(Error):
    """Ranks call different operations.

    Attributes:
        ranks: two of them.
        calls: the call of each of the two, in full.
    """

    ranks: tuple[int, int] = (-1, -1)
    calls: tuple[str, str] = ("", "")


class TimeoutError(Error):
    """An operation timed out. ``missing_ranks`` are the ranks that didn't enter it."""


class PeerLostError(Error):
    """A rank died or its link broke; ``peer`` says which."""


class AbortedError(Error):
    """Rank ``by`` called abort, or was interrupted in the middle of a collective."""


class UnsupportedError(Error):
    """The backend, the device or this machine doesn't support the call."""


class InternalError(Error):
    """A bug, or an unexpected failure of the system."""


class FinalizedError(Error):
    """The communicator is finalized."""


class CanceledError(Error):
    """A message was canceled; the communicator stays usable."""


class OutOfMemoryError(Error, torch.OutOfMemoryError):
    """A device has no memory left."""


class WorkFailedError(Error):
    """Earlier work of a stream failed; a kernel's exception is the ``__cause__``."""


class PanickedError(InternalError):
    """A bug of the library was caught. It can't be used any more in this process."""


class ForkedError(Error):
    """Chorus does not work in a child made by fork; start processes by spawn or forkserver."""


_TYPES: dict[int, type[Error]] = {
    _lib.Status.INVALID_ARGUMENT: InvalidArgumentError,
    _lib.Status.MISMATCH: MismatchError,
    _lib.Status.TIMEOUT: TimeoutError,
    _lib.Status.PEER_LOST: PeerLostError,
    _lib.Status.ABORTED: AbortedError,
    _lib.Status.UNSUPPORTED: UnsupportedError,
    _lib.Status.INTERNAL: InternalError,
    _lib.Status.FINALIZED: FinalizedError,
    _lib.Status.CANCELED: CanceledError,
    _lib.Status.OUT_OF_MEMORY: OutOfMemoryError,
    _lib.Status.WORK_FAILED: WorkFailedError,
    _lib.Status.PANICKED: PanickedError,
    _lib.Status.FORKED: ForkedError,
}


def last_error(status: int) -> Error:
    """The exception for a status that a call on this thread has just returned."""
    facts = _lib.library.chorus_last_error().contents
    kind = _TYPES.get(status, InternalError)
    missing = tuple(facts.missing[: facts.n_missing])
    if kind is PeerLostError and not missing and facts.peer >= 0:
        missing = (facts.peer,)
    error = kind(
        facts.message.decode(errors="replace"),
        comm=facts.comm.decode(errors="replace"),
        op=facts.op.decode(),
        seq=facts.seq,
        reporter=facts.reporter,
        peer=facts.peer,
        by=facts.by,
        missing_ranks=missing,
        arrived_ranks=tuple(facts.arrived[: facts.n_arrived]),
        unknown_ranks=tuple(facts.unknown[: facts.n_unknown]),
        elapsed=facts.elapsed_ns / 1e9,
        detail=facts.detail.decode(errors="replace"),
    )
    if isinstance(error, MismatchError):
        error.ranks = (facts.rank_a, facts.rank_b)
        error.calls = (facts.op_a.decode(), facts.op_b.decode())
    return error


def invalid(comm: str, rank: int, op: str, detail: str) -> InvalidArgumentError:
    """The exception for arguments that a rank's operation refuses."""
    message = f"chorus: rank {rank} of {comm!r}: {op}: {detail}"
    return InvalidArgumentError(message, comm=comm, op=op, reporter=rank, detail=detail)


def check(status: int) -> None:
    """Raise unless the status is OK."""
    if status:
        raise last_error(status)
