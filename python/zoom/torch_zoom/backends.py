"""``torch.backends.zoom``, as ``torch.backends.cuda``. PyTorch has one set of these flags in a process, for all
devices: the choice of attention's kernel, and which precisions products of matrices may use."""

from __future__ import annotations

from torch.backends.cuda import SDPAParams as SDPAParams
from torch.backends.cuda import enable_flash_sdp as enable_flash_sdp
from torch.backends.cuda import enable_math_sdp as enable_math_sdp
from torch.backends.cuda import enable_mem_efficient_sdp as enable_mem_efficient_sdp
from torch.backends.cuda import flash_sdp_enabled as flash_sdp_enabled
from torch.backends.cuda import math_sdp_enabled as math_sdp_enabled
from torch.backends.cuda import matmul as matmul
from torch.backends.cuda import mem_efficient_sdp_enabled as mem_efficient_sdp_enabled
from torch.backends.cuda import sdp_kernel as sdp_kernel


def is_built() -> bool:
    """Whether there is support for the device: as far as this package is installed."""
    return True
