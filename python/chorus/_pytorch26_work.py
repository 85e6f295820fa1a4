"""Work handles in PyTorch 2.6 that only C++ holds.

That version drops the Python object of a Work from a process group written in Python, and then waits forever: in
functional collectives, and in DistributedDataParallel. So the tensors that an operation fills keep its Work alive until
it was waited for, once for each tensor, or its future was requested. Sends and receives need none of this: only Python
issues them.
Later versions hold the object themselves; there this module does nothing. They also take None for a synchronous
operation, where 2.6 wants a handle to wait for (``WANTED``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from chorus import _lib

WANTED = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 7)
_NAME = "_chorus_works"


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    else:
        for part in value:
            yield from _tensors(part)


def _keep(work: Any, value: Any) -> None:
    message = work._pending is not None and _lib.SEND <= work._pending.kind <= _lib.RECV
    work.kept_by = [] if message else list(_tensors(value))
    for tensor in work.kept_by:
        tensor.__dict__.setdefault(_NAME, []).append(work)


def _waited(work: Any) -> None:
    if work.kept_by:
        work.kept_by.pop(0).__dict__[_NAME].remove(work)


def _drop(work: Any) -> None:
    while work.kept_by:
        _waited(work)


def _nothing(*_: Any) -> None:
    pass


keep, waited, drop = (_keep, _waited, _drop) if WANTED else (_nothing, _nothing, _nothing)
