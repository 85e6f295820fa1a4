"""A check, and its result."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

# The value of a check's function: whether the result is as expected, and the result as text.
Came = tuple[bool, str]


@dataclasses.dataclass(frozen=True)
class Check:
    """A check that all ranks run together on their GPUs.

    With fewer ranks than ``ranks`` it runs as well, but proves less. ``environment`` has variables for its ranks. If
    the check ``ends`` its ranks, they exit after it. The check, and the exit, may each take ``seconds``."""

    name: str
    title: str
    expected: str
    run: Callable[[Any], Came]
    ranks: int = 1
    seconds: float = 60
    ends: bool = False
    environment: dict[str, str] = dataclasses.field(default_factory=dict)


OK, FEW_RANKS, FAILED, HANGS, LEFT_OUT = "ok", "ok, with one rank", "FAILED", "HANGS", "left out"


@dataclasses.dataclass(frozen=True)
class Result:
    """A check with its result, and the verdict, which is one of the above."""

    check: Check
    came: str
    verdict: str

    @property
    def bad(self) -> bool:
        """Whether the result is a failure."""
        return self.verdict in (FAILED, HANGS)


def check(name: str, title: str, expected: str, into: list[Check], **options: Any) -> Callable[[Any], Any]:
    """Decorates a function: makes it a check, appended to a list."""

    def made(run: Callable[[Any], Came]) -> Callable[[Any], Came]:
        into.append(Check(name, title, expected, run, **options))
        return run

    return made
