"""torch.device("accinte"): an emulated accelerator, and the reference for plugging one into PyTorch.

A program need not import it: ``import torch`` is enough, and ``torch.accinte`` is this module. With
TORCH_DEVICE_BACKEND_AUTOLOAD=0 PyTorch doesn't look for devices, and importing this package plugs the device in.
"""

from __future__ import annotations

import os
import sys

from chorus_device import examples, plug
from chorus_device.namespace import *  # torch.accinte has the names of torch.cuda

__version__ = "0.1.0"

# Another driver's devices take the place of the emulated ones in tests.
_driver = os.environ.get("CHORUS_ACCINTE_DRIVER") or "accinte"
plug("accinte", title="AccInte", driver=_driver, module=sys.modules[__name__])
examples.register("accinte")  # torch.ops.accinte
