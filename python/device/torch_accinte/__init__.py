"""torch.device("accinte"): an emulated accelerator, and the reference for plugging one into PyTorch.

A program need not import it: PyTorch finds the installed package, and ``torch.accinte`` is this package's
:mod:`~torch_accinte.accinte`. With TORCH_DEVICE_BACKEND_AUTOLOAD=0 PyTorch doesn't look, and a program calls
:func:`load`. :func:`plug` registers another type of device, given its name, its driver and its module.
"""

from __future__ import annotations


def _autoload() -> None:
    """The entry point "torch.backends", which PyTorch calls at the end of its import."""
    from torch_accinte import _plug

    # A package that is loaded now may need these names before the end of this one's import.
    globals().update(plug=_plug.plug, load=_plug.load)
    _plug.autoload()


import torch  # noqa: E402, F401  (it calls _autoload if this package is imported first)

from torch_accinte._plug import load as load  # noqa: E402
from torch_accinte._plug import plug as plug  # noqa: E402

__version__ = "0.1.0"
__all__ = ["load", "plug"]
