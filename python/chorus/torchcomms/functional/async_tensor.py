"""Tensors that are waited for when they are used."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map

from chorus.torchcomms._work import TorchWork


class TorchCommsAsyncTensor(torch.Tensor):
    """The result of an operation under way. Any use of it waits for the operation, except for its shape and the like.

    Operators give plain tensors; :meth:`wait` gives the plain tensor itself.
    """

    _inner: torch.Tensor
    _work: TorchWork

    @staticmethod
    def __new__(cls, inner: torch.Tensor, work: TorchWork) -> TorchCommsAsyncTensor:
        tensor: TorchCommsAsyncTensor = torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), inner.stride(), inner.storage_offset(), dtype=inner.dtype, device=inner.device
        )
        tensor._inner, tensor._work = inner, work
        return tensor

    def __init__(self, inner: torch.Tensor, work: TorchWork) -> None:
        pass

    def wait(self) -> torch.Tensor:
        """The tensor, once the operation is done; raises the operation's error."""
        self._work.wait()
        return self._inner

    def tolist(self) -> Any:  # reads memory, and a wrapper has none
        return self.wait().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        return self.wait().numpy(force=force)

    def __repr__(self, *, tensor_contents: Any = None) -> Any:  # type: ignore[override]
        return f"TorchCommsAsyncTensor({self.wait()!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        def unwrap(x: Any) -> Any:
            return x.wait() if isinstance(x, TorchCommsAsyncTensor) else x

        return func(*tree_map(unwrap, args), **tree_map(unwrap, kwargs or {}))
