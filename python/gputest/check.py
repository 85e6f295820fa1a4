"""A check, and its result."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

# The value of a check's function: whether it is as expected, and what came.
Came = tuple[bool, str]


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing that ranks do on their GPUs, all of them together.

    With fewer ranks than ``ranks`` it runs as well, but settles less. ``environment`` are variables that its ranks
    start with. Ranks whose check ``ends`` them leave when they have done it, and that must take no longer than
    ``seconds``, as the check itself."""

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
    """A check with what came, and the verdict, which is one of the above."""

    check: Check
    came: str
    verdict: str

    @property
    def bad(self) -> bool:
        """Whether something is to be mended."""
        return self.verdict in (FAILED, HANGS)


def check(name: str, title: str, expected: str, into: list[Check], **options: Any) -> Callable[[Any], Any]:
    """Make a function a check, the last of a list."""

    def made(run: Callable[[Any], Came]) -> Callable[[Any], Came]:
        into.append(Check(name, title, expected, run, **options))
        return run

    return made
