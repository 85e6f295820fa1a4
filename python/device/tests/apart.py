"""torch.device("apart"): devices whose memory no process can touch, of examples/thirdparty/mydriver."""

import os
import sys

from torch_accinte import plug
from torch_accinte.accinte import *
from torch_accinte.accinte import _is_in_bad_fork, _lazy_init  # noqa: F401

plug("apart", driver="apart", module=sys.modules[__name__], library=os.environ["APART_LIBRARY"])
