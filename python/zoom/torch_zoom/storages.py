"""``torch.zoom.FloatStorage`` and the like: the storages of one element type that ``torch.cuda`` has, too."""

from __future__ import annotations

from typing import Any

import torch
import torch._utils
from torch.storage import _LegacyStorage

_warn: Any = torch.storage._warn_typed_storage_removal
_classproperty: Any = torch._utils.classproperty
_DTYPES = {
    "BFloat16Storage": torch.bfloat16,
    "BoolStorage": torch.bool,
    "ByteStorage": torch.uint8,
    "CharStorage": torch.int8,
    "ComplexDoubleStorage": torch.complex128,
    "ComplexFloatStorage": torch.complex64,
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "IntStorage": torch.int32,
    "LongStorage": torch.int64,
    "ShortStorage": torch.int16,
}


class _ZoomLegacyStorage(_LegacyStorage):
    _type: torch.dtype

    @classmethod
    def from_buffer(cls, *args: Any, **kwargs: Any) -> Any:
        _warn()
        raise RuntimeError("from_buffer: Not available for Zoom storage")

    @classmethod
    def _new_with_weak_ptr(cls, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("_new_with_weak_ptr: Not available for Zoom storage")

    @classmethod
    def _new_shared_filename(cls, manager: Any, obj: Any, size: Any, *, device: Any = None, dtype: Any = None) -> Any:
        raise RuntimeError("_new_shared_filename: Not available for Zoom storage")

    dtype: Any = _classproperty(lambda cls: _warn() or cls._type)
    _dtype: Any = _classproperty(lambda cls: cls._type)


def add(names: dict[str, Any]) -> None:
    """Add the classes to a module's names, and tell PyTorch of them."""
    for name, dtype in _DTYPES.items():
        made = type(name, (_ZoomLegacyStorage,), {"_type": dtype, "__module__": "torch.zoom"})
        names[name] = made
        torch._storage_classes.add(made)
