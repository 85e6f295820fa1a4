"""All-reduces that a backward pass issues, and that wait for its end.

DistributedDataParallel issues the all-reduce of a bucket of gradients as soon as the bucket is full, so that it goes on while
the rest of the gradients is computed. Where the ranks of one host keep all of its cores busy there is nothing to
hide behind: what is reduced takes turns with what is computed, and the ranks, which are never at the same place, wait for
each other at every bucket. There the all-reduces wait until the pass has computed everything, and the thread that
would wait for them runs them.

Nobody can tell: an operation that is held is issued as soon as anybody asks for it, or asks anything else of its
communicator; see :class:`chorus._comm.Held`. What waits for one within the pass without being seen from here, as for the future
of a future, would wait for ever. Hooks do that, so that what they issue is held only if a program wants it; and a thread looks
whether the pass stands still: then everything is issued, and the third time these communicators hold nothing any more.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import FrameType
from typing import Any

import torch

from chorus import _comm
from chorus._comm import Communicator, Held

_LOOK = 0.25  # seconds between two looks
_STILL = 0.001  # seconds of a processor's time, fewer than which between two looks are none
_IDLE = 40  # looks at nothing held, after which there are no more

_PASS = torch.autograd.graph._engine_run_backward.__code__
_engine: Any = torch.autograd.Variable._execution_engine
_here = threading.local()  # last: the pass of this thread whose end runs what is held
_lock = threading.Lock()
_holders: set[Communicator] = set()  # those that may hold something
_looking = False
_clock = 0  # of the processor's time of the thread whose pass held something last


def _cores() -> int:
    """The cores of the host, or of the container: this process may be bound to fewer, the first one isn't."""
    try:
        return len(os.sched_getaffinity(1))
    except OSError:
        return os.cpu_count() or 1


def crowded(comm: Communicator) -> bool:
    """Whether all of a communicator's ranks are on one host, and with their threads leave no core free."""
    if comm.local_size < comm.size or comm.size == 1:
        return False
    threads = torch.get_num_threads()
    ranks = max(comm.size, int(os.environ.get("LOCAL_WORLD_SIZE", 0)))
    return ranks * threads >= _cores() or threads >= len(os.sched_getaffinity(0))


def from_engine() -> bool:
    """Whether the caller of this package, by C++, is a whole pass: then it's PyTorch's reducer, and no hook."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__package__") == __package__:
        frame = frame.f_back
    return frame is None or frame.f_code is _PASS


def in_pass() -> bool:
    """Whether the caller is part of a backward pass whose end is still to come."""
    return torch._C._current_autograd_node() is not None  # None also for what is called at the end


def hold(comm: Communicator, *args: Any, **fields: Any) -> Held:
    """:meth:`Communicator.hold` until the end of the backward pass that the caller is part of."""
    global _clock
    this = torch._C._current_graph_task_id()
    if getattr(_here, "last", None) != this:  # each pass within a pass has an end of its own
        _here.last = this
        _engine.queue_callback(_end)
    _clock = time.pthread_getcpuclockid(threading.get_ident())
    held = comm.hold(*args, **fields)
    with _lock:
        _holders.add(comm)
    _look()
    return held


def _holding() -> list[Communicator]:
    with _lock:
        _holders.difference_update([comm for comm in _holders if not comm.holding])
        return list(_holders)


def _end() -> None:
    """Run what is held, on this thread: it has nothing to do but wait for it, which C++ does without looking for Ctrl-C."""
    holding = _holding()
    if len(holding) == 1:
        holding[0].run_held()
        return
    for comm in holding:  # at once, since the other ranks may come to them in another order
        comm.release()


def _look() -> None:
    """Have a thread look for passes that stand still."""
    global _looking
    if _looking:
        return
    with _lock:
        if not _looking:
            _looking = True
            _comm.start(_release_what_stands_still, "chorus-held")


def _release_what_stands_still() -> None:
    global _looking
    before, idle = -1.0, 0
    while idle < _IDLE and not _comm.exiting.wait(_LOOK):
        holding = _holding()
        if not holding:
            before, idle = -1.0, idle + 1
            continue
        idle = 0
        try:
            used = time.clock_gettime(_clock)
        except OSError:  # the thread has ended
            used = before = 0.0
        if 0 <= used - before < _STILL:
            for comm in holding:
                comm.patience -= 1
                comm.release()
        before = used
    with _lock:
        _looking = False
