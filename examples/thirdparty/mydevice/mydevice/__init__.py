"""torch.device("mydevice"): the devices of the driver in examples/thirdparty/mydriver. It's there after ``import torch``."""

import pathlib
import sys

from chorus_device import plug
from chorus_device.namespace import *  # torch.mydevice has the names of torch.cuda

plug(
    "mydevice",
    driver="mine",  # the driver's name in Go
    module=sys.modules[__name__],
    library=pathlib.Path(__file__).with_name("libmydevice.so"),
)
