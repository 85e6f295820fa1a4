"""torch.device("apart"): devices of examples/thirdparty/mydriver, whose memory no process can access."""

import os
import sys

from torch_accinte import plug
from torch_accinte.accinte import *

plug("apart", driver="apart", module=sys.modules[__name__], library=os.environ["APART_LIBRARY"])
