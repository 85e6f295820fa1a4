"""Compiles a kernel for OpenCL in a process of its own, so that a compiler that crashes takes nothing along::

    CHORUS_OPENCL_COMPILER="python3 -m chorus.opencl_compiler" python3 train.py

The library does the work, and ends the process, when it's loaded with a request in the environment."""

from __future__ import annotations

import ctypes
import sys

from chorus import _libpath

if __name__ == "__main__":
    library = ctypes.CDLL(_libpath.library())
    library.chorus_version.restype = ctypes.c_char_p
    library.chorus_version()  # waits for the library to be ready, before which a request has been served
    sys.exit("chorus.opencl_compiler is what CHORUS_OPENCL_COMPILER names: there's no request in the environment")
