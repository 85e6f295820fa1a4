"""Call sites: the lines of the program itself, not those of PyTorch or of this package in between; and the stacks of
its threads."""

from __future__ import annotations

import faulthandler
import os
import pathlib
import signal
import sys
from types import FrameType

import torch

from chorus import _lib

_FURTHER = -1  # not a call site: look at the caller
# The code between a program and the library: modules' directories, and, with a slash at the end, the directory of
# Python's own.
INNER = (os.path.dirname(torch.__file__), os.path.dirname(__file__), os.path.dirname(os.__file__) + "/")


def _inner(file: str) -> bool:
    if file.startswith("<frozen "):
        return True
    for directory in INNER:
        below = file.removeprefix(directory)
        if below != file and (directory.endswith("/") or below.startswith("/")):
            return not below.startswith(("site-packages/", "dist-packages/"))
    return False


def site_of(frame: FrameType) -> int:
    """The library's number of a frame's call site. The library asks for each instruction once."""
    code = frame.f_code
    if _inner(code.co_filename):
        return _FURTHER
    name: str = getattr(code, "co_qualname", code.co_name)
    number: int = _lib.library.chorus_site(_short(code.co_filename).encode(), frame.f_lineno, name.encode())
    return number


def _short(file: str) -> str:
    """A file's path from the working directory on, if it's there."""
    try:
        return file.removeprefix(os.getcwd() + "/")
    except OSError:
        return file


# How many bytes of an exception's text the other ranks get: together with the place, the library passes on 200.
_TEXT = 120


def tell_exception() -> str | None:
    """Report the exception that ends the program, if any, to the library: Python keeps it for debuggers. Returns the
    text for the other ranks."""
    error = getattr(sys, "last_value", None)
    if error is None or hasattr(sys, "ps1") or sys.flags.interactive:
        return None
    place = None
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if place is None or not _inner(code.co_filename):
            place = _short(code.co_filename), traceback.tb_lineno, code.co_name
        traceback = traceback.tb_next
    file, line, name = place or ("", 0, "")
    text = str(error).partition("\n")[0]
    what = type(error).__name__ + (f": {text}" if text else "")
    _lib.library.chorus_raised(what.encode(errors="replace"), file.encode(errors="replace"), line, name.encode())
    brief = what if len(what.encode(errors="replace")) <= _TEXT else _cut(what, _TEXT - 3) + "..."
    return f"it raised {brief}" + (f" ({file}:{line})" if file else "")


def _cut(text: str, most: int) -> str:
    """The beginning of a text, of ``most`` bytes at most."""
    return text.encode(errors="replace")[:most].decode(errors="ignore")


def _free_signal() -> int:
    """A signal that isn't handled, ignored or blocked; 0 if there's none. Real-time signals do nothing."""
    taken = 0
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        name, _, mask = line.partition(":")
        if name in ("SigBlk", "SigIgn", "SigCgt"):
            taken |= int(mask, 16)
    free = (n for n in range(signal.SIGRTMAX - 1, signal.SIGRTMIN, -1) if not taken >> (n - 1) & 1)
    return next(free, 0)


def register() -> tuple[int, int]:
    """Prepare faulthandler to write the stacks of all threads when the library calls its signal handler. Returns the
    signal, which is never sent, and the file; 0 and -1 if that's impossible."""
    try:
        number = _free_signal()
        file = os.memfd_create("chorus-stacks") if number else -1
        if number:
            faulthandler.register(number, file)
    except (OSError, RuntimeError, ValueError):
        return 0, -1
    return number, file
