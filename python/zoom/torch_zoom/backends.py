"""``torch.backends.zoom``, as ``torch.backends.cuda``. PyTorch has one set of these flags in a process, for all
devices: the choice of attention's kernel, and which precisions products of matrices may use. Each device has a cache of
plans for Fourier transforms of its own."""

from __future__ import annotations

from typing import Any

import torch
from chorus_device import namespace
from chorus_device._device import c
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


class FFTPlanCache:
    """The plans for Fourier transforms that a device keeps: those that were used last. ``torch.fft`` makes one for each
    size, layout and type, and cuFFT, hipFFT or clFFT uses it again."""

    def __init__(self, index: int) -> None:
        self.device_index = index

    @property
    def size(self) -> int:
        """How many plans are kept now."""
        return int(c().fft_plans(self.device_index)[0])

    @size.setter
    def size(self, _: int) -> None:
        raise RuntimeError(
            ".size is a read-only property showing the number of plans currently in the cache. To change the cache "
            "capacity, set cufft_plan_cache.max_size."
        )

    @property
    def max_size(self) -> int:
        """How many are kept at most; 0: none."""
        return int(c().fft_plans(self.device_index)[1])

    @max_size.setter
    def max_size(self, n: int) -> None:
        if n < 0:
            raise RuntimeError(f"cuFFT plan cache size must be non-negative, but got {n}")
        c().keep_fft_plans(self.device_index, n)

    def clear(self) -> None:
        """Give all plans back."""
        c().keep_fft_plans(self.device_index, -1)


class FFTPlanCaches:
    """The caches of all devices, by index; the attributes are those of the current device's."""

    def __getitem__(self, device: Any) -> FFTPlanCache:
        index = torch.device(device).index if isinstance(device, str | torch.device) else device
        index = namespace.current_device() if index is None else index
        n = namespace.device_count()
        if index < 0 or index >= n:
            raise RuntimeError(f"cufft_plan_cache: expected 0 <= device index < {n}, but got device with index {index}")
        return FFTPlanCache(index)

    def __getattr__(self, name: str) -> Any:
        return getattr(self[namespace.current_device()], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self[namespace.current_device()], name, value)


fft_plan_cache = FFTPlanCaches()
cufft_plan_cache = fft_plan_cache
