"""The shared library and its C ABI, as capi/chorus.h describes it and :mod:`chorus._abi` declares it in Python.

Importing this module loads libchorus.so. It's loaded with PyDLL, so that calls keep
the GIL. The library releases the GIL itself while it waits, and takes it back now and
then to let signal handlers run. So Ctrl-C ends a wait, with the exception that the
handler raised.

Errors are raised by :func:`chorus.errors.last_error`; nothing here allocates or
copies tensors.
"""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import c_int32, c_uint64, c_void_p
from typing import Any

from chorus import _libpath
from chorus._abi import *
from chorus._abi import ABI_MAJOR, ABI_MINOR, FUNCTIONS, Hint, Host, Status

PATH = _libpath.library()


def _load() -> ctypes.PyDLL:
    if os.name != "posix":
        raise ImportError("chorus: only Linux is supported")
    if not os.path.exists(PATH):
        raise ImportError(f"chorus: {PATH} is missing; `pip install ./python` builds it, with Go and a C compiler")
    library = ctypes.PyDLL(PATH)
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, "chorus_" + name)
        function.restype, function.argtypes = result, arguments
    version: int = library.chorus_abi_version()
    if version >> 16 != ABI_MAJOR or version & 0xFFFF < ABI_MINOR:
        raise ImportError(
            f"chorus: {PATH} has ABI {version >> 16}.{version & 0xFFFF}; this package needs {ABI_MAJOR}.{ABI_MINOR}"
        )
    api = ctypes.pythonapi
    host = Host(
        size=ctypes.sizeof(Host),
        leave=ctypes.cast(api.PyEval_SaveThread, c_void_p).value,
        enter=ctypes.cast(api.PyEval_RestoreThread, c_void_p).value,
        check=ctypes.cast(api.PyErr_CheckSignals, c_void_p).value,
        thread=threading.main_thread().ident,  # signal handlers run nowhere else
    )
    if status := library.chorus_set_host(ctypes.byref(host)):
        raise ImportError(f"chorus: the library refused its host ({Status(status).name})")
    return library


library = _load()

# chorus_submit for arguments that :data:`ARGUMENT` and ctypes.byref have converted to C's before: converting three of
# them takes as long as the call.
submit = library["chorus_submit"]
submit.restype = c_int32
ARGUMENT = c_uint64.from_param


def version() -> str:
    """The library's version."""
    text: bytes = library.chorus_version()
    return text.decode()


def hints(values: dict[str, str] | None) -> tuple[Any, int]:
    """An array of chorus_hint and its length; keep the array until the call is over."""
    if not values:
        return None, 0
    array = (Hint * len(values))()
    for i, (name, value) in enumerate(values.items()):
        if not isinstance(value, str):
            raise TypeError(
                f"chorus: hint {name}={value!r}: the values of hints are strings, not {type(value).__name__}"
            )
        array[i].name, array[i].value = name.encode(), value.encode()
    return array, len(values)
