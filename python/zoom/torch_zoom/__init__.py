"""torch.device("zoom"): the GPUs of this machine, by HIP, CUDA or OpenCL; through OpenCL also its processors.

A program need not import this package: ``import torch`` is enough, and ``torch.zoom`` is this module. With
TORCH_DEVICE_BACKEND_AUTOLOAD=0 PyTorch doesn't look for devices, and importing this package plugs the device in.
"""

from __future__ import annotations

import os
import sys

import torch
from chorus_device import _device, plug
from chorus_device.namespace import *  # torch.zoom has the names of torch.cuda

from torch_zoom import backends as _backends
from torch_zoom import memory as memory  # type: ignore[no-redef]
from torch_zoom import repeated as _repeated
from torch_zoom import storages as _storages
from torch_zoom import tunable as tunable
from torch_zoom import version as version
from torch_zoom.lazy import DeferredZoomCallError as DeferredZoomCallError
from torch_zoom.lazy import _lazy_call as _lazy_call
from torch_zoom.lazy import _lazy_init as _lazy_init
from torch_zoom.lazy import init as init
from torch_zoom.memory import *

__version__ = "0.1.0"

DRIVERS = ("hip", "cuda", "opencl")  # the first that has a device is used
VARIABLE = "CHORUS_ZOOM_DRIVER"  # chooses one of them

init_zoom = init  # the original's older name
_storages.add(globals())


def _is_compiled() -> bool:
    """Whether there is support for the device: as far as this package is installed."""
    return True


def current_blas_handle() -> int:
    """The address of the cublasHandle_t or hipblasHandle_t with which the current stream multiplies matrices.

    Raises:
        NotImplementedError: the device has no such library; on OpenCL there is none with a handle.
    """
    try:
        return int(_device.c().blas_handle(current_device()))
    except NotImplementedError as error:
        raise NotImplementedError(f"torch.zoom has no handle of a BLAS library here: {error}") from None


def get_amp_supported_dtype() -> list[torch.dtype]:  # type: ignore[no-redef]
    """The types that ``torch.autocast`` takes. With float32 nothing is lowered."""
    return [torch.float16, torch.bfloat16, torch.float32]


def _drivers() -> tuple[str, ...]:
    """The drivers that may have the devices."""
    chosen = os.environ.get(VARIABLE)
    if not chosen:
        return DRIVERS
    if chosen not in DRIVERS:
        raise RuntimeError(f"{VARIABLE} is {chosen!r}, and can be {', '.join(DRIVERS)}")
    return (chosen,)


plug("zoom", title="Zoom", driver=_drivers(), module=sys.modules[__name__], philox=True)
_repeated.allow()
torch.backends.zoom = _backends  # type: ignore[attr-defined]
sys.modules["torch.backends.zoom"] = _backends
sys.modules["torch.zoom.tunable"] = tunable
