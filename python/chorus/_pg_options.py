"""The values of ``pg_options`` that programs give."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from chorus import _nccl


def split_options(options: Any, kinds: Iterable[str]) -> tuple[Any, dict[str, dict[str, str]]]:
    """The part of ``pg_options`` that is for the group, and those for its tensors on the devices of each type.

    Each of the latter is a dict of its own: ``{"fabric": "tcp", "cuda": {"minCTAs": 4}}``.
    """
    if not isinstance(options, dict):
        theirs = _nccl.hints_of(options)
        return (options, {}) if theirs is None else (None, {kind: dict(theirs) for kind in kinds})
    of = {kind: options[kind] for kind in kinds if isinstance(options.get(kind), dict)}
    rest = {name: value for name, value in options.items() if name not in of}
    return rest or (None if of else rest), {kind: {k: text(v) for k, v in own.items()} for kind, own in of.items()}


def text(value: Any) -> str:
    """A hint's value as text, which is what the library takes."""
    return str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else str(value)
