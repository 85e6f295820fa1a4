"""torch.device("accinte"): an emulated accelerator, and the reference for plugging one into PyTorch.

There is nothing to import: PyTorch finds it when it's installed, and ``torch.accinte`` is this package's
:mod:`~torch_accinte.accinte`. With TORCH_DEVICE_BACKEND_AUTOLOAD=0 it doesn't, and :func:`load` does.
:func:`plug` does the same for another type of device, which gives its name, its driver and its module.
"""

from __future__ import annotations


def _autoload() -> None:
    """What PyTorch calls at the end of its import: the entry point "torch.backends"."""
    from torch_accinte import _plug

    # For a package that is loaded now, which may be before the end of this one's import.
    globals().update(plug=_plug.plug, load=_plug.load)
    _plug.autoload()


import torch  # noqa: E402, F401  (it calls _autoload if this package is imported first)

from torch_accinte._plug import load as load  # noqa: E402
from torch_accinte._plug import plug as plug  # noqa: E402

__version__ = "0.1.0"
__all__ = ["load", "plug"]
