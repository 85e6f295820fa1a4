"""torch.device("compiled"): the devices of device/opencl, whose driver compiles kernels."""

import sys

from chorus_device import plug
from chorus_device.namespace import *

plug("compiled", driver="opencl", module=sys.modules[__name__])
