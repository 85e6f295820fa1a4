"""Files that another program has put where Chorus looks for them, and that may be anything.

As in Go (package internal/sys): a FIFO, a socket, a device or a directory is an error, and isn't waited for.
"""

from __future__ import annotations

import os
import re
import stat

MOST = 64 << 20
_GIVEN = re.compile(r"/dev/stdin|(/dev|/proc/self)/fd/[0-9]+")  # the process's own descriptors
_KINDS = (
    (stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)  # fmt: skip


def regular(path: str | os.PathLike[str]) -> None:
    """Raises OSError if a path isn't that of a regular file."""
    _regular(path, os.stat(path).st_mode)


def _regular(path: str | os.PathLike[str], mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = next((words for is_it, words in _KINDS if is_it(mode)), "no regular file")
        raise OSError(f"{os.fspath(path)!r}: it's {kind}")


def read_text(path: str | os.PathLike[str], most: int = MOST, errors: str = "strict") -> str:
    """The text of a regular file of at most ``most`` bytes.

    A descriptor that the process was given, such as /dev/stdin, may be a pipe.

    Raises:
        OSError: it isn't one, it has more bytes, or it can't be read.
    """
    given = _GIVEN.fullmatch(os.fspath(path)) is not None
    if not given:
        regular(path)  # before it's opened, which does something to some devices
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK * (not given))) as file:
        if not given:
            _regular(path, os.fstat(file.fileno()).st_mode)
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(f"{os.fspath(path)!r}: it has more than {most} bytes")
    return data.decode(errors=errors)
