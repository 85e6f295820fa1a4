"""Running generated kernels: what a compiled program imports."""

from __future__ import annotations

from chorus_device._device import c

_run = c().run_source


class Source:
    """A generated kernel. ``checked``: it looks whether indexes are in range."""

    __slots__ = ("checked", "number", "rows", "text", "title")

    def __init__(self, title: str, rows: bool, checked: bool, text: str) -> None:
        self.title, self.rows, self.checked, self.text = title, rows, checked, text
        self.number: int = c().add_source(text)

    def run(self, units: int, *arguments: object) -> None:
        """Enqueue it on the current stream of its tensors' device, for so many elements, or rows."""
        _run(self.number, self.title, units, self.rows, self.checked, *arguments)
