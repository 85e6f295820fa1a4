"""Devices of PyTorch whose drivers are written in Go: :func:`plug` registers one, given its name, its driver and its
module.

A program need not import this package: PyTorch calls it at the end of its own import, and it plugs in the device that
an installed package has. With TORCH_DEVICE_BACKEND_AUTOLOAD=0 PyTorch doesn't, and a program imports the device's
package, or calls :func:`load`.
"""

from __future__ import annotations


def _autoload() -> None:
    """The entry point "torch.backends", which PyTorch calls at the end of its import."""
    from chorus_device import _plug

    # A package that is loaded now may need these names before the end of this one's import.
    globals().update(plug=_plug.plug, load=_plug.load)
    _plug.autoload()


import torch  # noqa: E402, F401  (it calls _autoload if this package is imported first)

from chorus_device._operators import kernels as kernels  # noqa: E402
from chorus_device._operators import native_operators as native_operators  # noqa: E402
from chorus_device._operators import operators as operators  # noqa: E402
from chorus_device._plug import load as load  # noqa: E402
from chorus_device._plug import plug as plug  # noqa: E402

__version__ = "0.1.0"
__all__ = ["kernels", "load", "native_operators", "operators", "plug"]
