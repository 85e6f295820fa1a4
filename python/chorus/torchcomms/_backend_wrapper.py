"""A communicator as the backend of PyTorch's own process groups: ``_BackendWrapper``.

It's written in C++, in chorus_device, which is compiled against the installed PyTorch. It passes calls on to
:class:`~chorus.torchcomms._wrapper.CommGroup`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from chorus.errors import UnsupportedError
from chorus.torchcomms.comm import TorchComm


def _missing() -> str:
    """Why there is no ``_BackendWrapper``; "" if there is one."""
    try:
        _C: Any = importlib.import_module("chorus_device._C")
    except ImportError as error:
        why = f"chorus_device, which has it, can't be imported ({error})"
    else:
        if hasattr(_C, "backend_wrapper"):
            return ""
        why = "chorus_device, which has it, is older than this package"
    return (
        f"a backend of PyTorch's own process groups is written in C++, and {why}: pip install chorus-device "
        '(in a clone: make python); init_process_group("chorus") needs none'
    )


class _NoBackendWrapper:
    """The placeholder for a missing ``_BackendWrapper``."""

    def __init__(self, comm: TorchComm) -> None:
        raise UnsupportedError(f"chorus: _BackendWrapper: {MISSING}", op="_BackendWrapper")


MISSING = _missing()
if TYPE_CHECKING:
    _BackendWrapper: Any
elif MISSING:
    _BackendWrapper = _NoBackendWrapper
else:
    _BackendWrapper = importlib.import_module("chorus_device._C").backend_wrapper()
