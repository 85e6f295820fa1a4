"""Tensors that are waited for when they are used."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch.utils._pytree import tree_map

from chorus.torchcomms._work import TorchWork

_T = torch.Tensor
# Functions that read or set properties that are known before the operation is done.
_PROPERTIES = {
    *(getattr(_T, name).__get__ for name in ("device", "dtype", "grad", "grad_fn", "is_leaf", "itemsize", "layout",
        "nbytes", "ndim", "output_nr", "requires_grad", "shape")),
    *(getattr(_T, name).__set__ for name in ("grad", "requires_grad")),
    _T.dim, _T.element_size, _T.is_complex, _T.is_contiguous, _T.is_floating_point, _T.nelement, _T.numel,
    _T.requires_grad_, _T.size, _T.storage_offset, _T.stride,
}  # fmt: skip


class TorchCommsAsyncTensor(torch.Tensor):
    """The result of an operation under way. Any use of it waits for the operation, except for its shape and the like.

    It stands for the plain tensor, also in autograd. Operators give plain tensors; :meth:`wait` gives the plain tensor
    itself. ``work`` may be None, of an operation that is done.
    """

    elem: torch.Tensor
    work: TorchWork | None

    @staticmethod
    def __new__(cls, elem: torch.Tensor, work: TorchWork | None) -> TorchCommsAsyncTensor:
        tensor: TorchCommsAsyncTensor = torch.Tensor._make_wrapper_subclass(
            cls, elem.size(), elem.stride(), elem.storage_offset(), dtype=elem.dtype, device=elem.device,
            layout=elem.layout, requires_grad=elem.requires_grad,
        )  # fmt: skip
        tensor.elem, tensor.work = elem, work
        return tensor

    def __init__(self, elem: torch.Tensor, work: TorchWork | None) -> None:
        pass

    def wait(self, timeout: timedelta | None = None) -> torch.Tensor:
        """The tensor, once the operation is done; raises the operation's error. ``timeout``: see :class:`TorchWork`."""
        if self.work is not None:
            self.work.wait(timeout)
        return self.elem

    def __repr__(self, *, tensor_contents: Any = None) -> Any:  # type: ignore[override]
        return f"TorchCommsAsyncTensor({self.wait()!r})"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def plain(x: Any) -> Any:
            if not isinstance(x, TorchCommsAsyncTensor):
                return x
            return x.elem if func in _PROPERTIES else x.wait()

        return func(*tree_map(plain, args), **tree_map(plain, kwargs or {}))

    __torch_dispatch__ = __torch_function__  # type: ignore[assignment]  # calls from C++ come here instead
