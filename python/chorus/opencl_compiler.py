"""Compiles kernels for OpenCL in a process of its own, so that a compiler that crashes takes nothing along. The devices
of PyTorch do so by themselves, with the library's path as argument. Other programs name it::

    CHORUS_OPENCL_COMPILER="python3 -m chorus.opencl_compiler" ./program

The library does the work, and ends the process, when it's loaded with the pipes of requests and answers."""

from __future__ import annotations

import ctypes
import sys


def _library() -> str:
    if len(sys.argv) > 1:
        return sys.argv[1]
    from chorus import _libpath

    return _libpath.library()


if __name__ == "__main__":
    library = ctypes.CDLL(_library())
    library.chorus_version.restype = ctypes.c_char_p
    library.chorus_version()  # waits for the library to be ready, before which it has answered all requests
    sys.exit("chorus.opencl_compiler is what CHORUS_OPENCL_COMPILER names: nobody asks for kernels here")
