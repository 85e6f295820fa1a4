"""The path of the libchorus.so that this process uses: the package's own, or one with more in it, such as a vendor's
driver."""

from __future__ import annotations

import os
import pathlib

_chosen: str | None = None


def library() -> str:
    """The path: the one that was chosen, else CHORUS_LIBRARY, else that of the package.

    Raises:
        ImportError: the one that was chosen, or CHORUS_LIBRARY, isn't a regular file.
    """
    path = _chosen or os.environ.get("CHORUS_LIBRARY")
    if not path:
        return str(pathlib.Path(__file__).with_name("libchorus.so"))
    from chorus import _files

    try:
        _files.regular(path)
    except FileNotFoundError:
        pass  # the loader says so, or searches for it
    except OSError as error:
        raise ImportError(f"chorus: the library {error}") from None
    return path


def use(path: str | os.PathLike[str]) -> None:
    """Choose the library. A process has one, so it must be chosen before the first use.

    Raises:
        ImportError: another one was loaded.
    """
    global _chosen
    import sys

    path = os.path.abspath(path)
    loaded = sys.modules.get("chorus._lib")
    if loaded is not None and os.path.realpath(loaded.PATH) != os.path.realpath(path):
        raise ImportError(
            f"chorus: {loaded.PATH} is loaded in this process, and {path} can't be as well: choose it before the first "
            "use of chorus, or by CHORUS_LIBRARY"
        )
    _chosen = path
