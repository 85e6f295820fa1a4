"""torch.device("apart"): devices whose memory no process can touch, of examples/thirdparty/mydriver."""

import os
import sys

from torch_accinte import plug
from torch_accinte.accinte import *

plug("apart", driver="apart", module=sys.modules[__name__], library=os.environ["APART_LIBRARY"])
