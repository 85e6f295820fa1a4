"""torch.device("apart"): devices of examples/thirdparty/mydriver, whose memory no process can access."""

import os
import sys

from chorus_device import plug
from chorus_device.namespace import *

plug("apart", driver="apart", module=sys.modules[__name__], library=os.environ["APART_LIBRARY"])
