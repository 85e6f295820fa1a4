"""Facts that a test adds to its record, such as how the device ran an operator."""

from __future__ import annotations

from typing import Any

_notes: list[dict[str, Any]] = []


def note(**facts: Any) -> None:
    """Add facts, which JSON can hold, to the record of the running test."""
    _notes.append(facts)


def taken() -> list[dict[str, Any]]:
    """The facts since the last call."""
    taken = _notes.copy()
    _notes.clear()
    return taken
