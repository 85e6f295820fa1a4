"""Docstrings of the package chorus, which have Python's own markup, as Markdown for its reference."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|exc):`~?([^`]+)`")
_LITERAL = re.compile(r"^(.*)::$", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Makes roles into code, and paragraphs that end in two colons into the openings of code that they are."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        _rewrite(pkg)


def _rewrite(obj: griffe.Object) -> None:
    if obj.docstring is not None:
        text = _ROLE.sub(r"`\1`", obj.docstring.value)
        obj.docstring.value = _LITERAL.sub(lambda m: m[1] + ":" if m[1] else "", text)
    for member in obj.members.values():
        if not member.is_alias:
            _rewrite(member)
