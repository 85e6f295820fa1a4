"""Tensors in memory that peers on this host can map: the fastest that collectives can have."""

from __future__ import annotations

import contextlib
import ctypes
import math
import sys
import weakref
from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from chorus import _lib
from chorus._tensors import shape_of
from chorus.errors import check

__all__ = ["empty", "is_shared", "share", "shared_memory", "use_shared_allocator", "zeros"]

_T = TypeVar("_T", bound=torch.Tensor | torch.nn.Module)


class _Block:
    """Memory of the library, which goes back to it with the last tensor in it."""

    def __init__(self, nbytes: int, zero: bool) -> None:
        memory = ctypes.c_void_p()
        check(_lib.library.chorus_alloc(max(nbytes, 1), int(zero), ctypes.byref(memory)))
        assert memory.value is not None
        self.at: int = memory.value
        self.bytes = (ctypes.c_uint8 * nbytes).from_address(self.at)
        # PyTorch holds on to the array, which can't have a __del__ of its own.
        weakref.finalize(self.bytes, _lib.library.chorus_free, ctypes.c_void_p(self.at)).atexit = False


def _storage(nbytes: int, zero: bool) -> torch.Tensor:
    """A flat tensor of bytes."""
    if nbytes == 0:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(_Block(nbytes, zero).bytes, dtype=torch.uint8)


def _new(size: tuple[Any, ...], dtype: torch.dtype | None, requires_grad: bool, zero: bool) -> torch.Tensor:
    shape = shape_of(size)
    dtype = dtype or torch.get_default_dtype()
    with torch.utils._python_dispatch._disable_current_modes():
        tensor = _storage(math.prod(shape) * dtype.itemsize, zero).view(dtype).view(shape)
    return tensor.requires_grad_() if requires_grad else tensor


def empty(*size: Any, dtype: torch.dtype | None = None, requires_grad: bool = False) -> torch.Tensor:
    """A CPU tensor with undefined contents in memory that peers on this host can map.

    Like ``torch.empty``: ``size`` are integers or one sequence of them; ``dtype``
    defaults to PyTorch's default. The memory is freed with the last tensor that uses
    it. Raises :class:`chorus.Error` if there is no memory.
    """
    return _new(size, dtype, requires_grad, False)


def zeros(*size: Any, dtype: torch.dtype | None = None, requires_grad: bool = False) -> torch.Tensor:
    """:func:`empty`, filled with zeros."""
    return _new(size, dtype, requires_grad, True)


def is_shared(tensor: torch.Tensor) -> bool:
    """Whether a tensor's storage lies in memory that peers can map."""
    if not tensor.is_cpu or tensor.layout is not torch.strided:
        return False
    storage = tensor.untyped_storage()
    return storage.nbytes() > 0 and bool(_lib.library.chorus_is_shared(storage.data_ptr(), storage.nbytes()))


def _moved(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor's whole storage in shared memory, seen as the tensor sees it."""
    storage = tensor.untyped_storage()
    target = _storage(storage.nbytes(), False)
    target.copy_(torch.empty(0, dtype=torch.uint8).set_(storage))
    return torch.empty(0, dtype=tensor.dtype).set_(
        target.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride()
    )


class SharedMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Moves the results of operators that made new CPU memory."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        # A result that is an argument, or a view of one, is not new.
        # torch.tensor makes its tensor where modes don't see it, and passes it to lift_fresh.
        known = set() if func is torch.ops.aten.lift_fresh.default else {
            t.untyped_storage().data_ptr()
            for t in torch.utils._pytree.tree_leaves((args, kwargs))
            if isinstance(t, torch.Tensor) and t.layout is torch.strided
        }  # fmt: skip

        def move(x: Any) -> Any:
            if type(x) is not torch.Tensor or not x.is_cpu or x.layout is not torch.strided:
                return x
            if x.untyped_storage().data_ptr() in known or x.untyped_storage().nbytes() == 0 or is_shared(x):
                return x
            return self.move(x)

        return torch.utils._pytree.tree_map(move, result)

    def move(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor in shared memory."""
        return _moved(tensor)


@contextlib.contextmanager
def shared_memory() -> Iterator[None]:
    """Within this, new CPU tensors are in memory that peers on this host can map.

    Meant for building things, as every operator copies its result once more::

        with chorus.shared_memory():
            model = Transformer()

    It applies to the thread that enters it.
    """
    with SharedMemory():  # type: ignore[no-untyped-call]
        yield


def use_shared_allocator(enabled: bool = True) -> None:
    """Give CPU tensors that are made from now on, of 4 KiB and more, memory that peers on this host can map.

    Results of operators are there, too. It's as fast as PyTorch's own allocator, which still serves smaller tensors.
    Freed memory is kept for reuse. It applies to the whole process, until it's called with False; existing tensors
    keep their memory. Meant to be called before the model is built.

    **A child made by fork** (a DataLoader's worker, by default) shares such tensors with this process instead of having
    copies of them, like those of ``Tensor.share_memory_``. Its own new tensors use PyTorch's allocator.

    Raises:
        RuntimeError: no device of the package ``chorus-device``, whose extension replaces PyTorch's allocator, is
            plugged in, or this process is a child made by fork.
    """
    module = sys.modules.get("chorus_device._C")
    if module is None:
        why = getattr(sys.modules.get("chorus_device._plug"), "failure", None)
        raise RuntimeError(
            "use_shared_allocator needs a device of the package chorus-device, such as that of torch-accinte: "
            f"{why or 'none is plugged in'}"
        ) from why
    module.map_cpu_memory(enabled)


def _share_tensor(tensor: torch.Tensor, done: dict[int, torch.Tensor]) -> None:
    """Move a tensor's storage; tensors that shared a storage still do."""
    if not tensor.is_cpu or tensor.layout is not torch.strided or is_shared(tensor):
        return
    at = tensor.untyped_storage().data_ptr()
    if at == 0:
        return
    if at not in done:
        done[at] = _moved(tensor)
    moved = done[at].untyped_storage()
    with torch.no_grad():
        tensor.data = torch.empty(0, dtype=tensor.dtype).set_(
            moved, tensor.storage_offset(), tensor.size(), tensor.stride()
        )


def share(what: _T) -> _T:
    """Move a tensor, or all of a module, to memory that peers on this host can map.

    Of a module: parameters, gradients that exist, and buffers; tied ones stay tied. Values stay as they are.
    Optimizers keep working: they hold the parameters themselves, not their memory. The buckets of
    ``DistributedDataParallel`` are there already, and so are the gradients with ``gradient_as_bucket_view=True``; see
    :mod:`chorus._patches`.

    Returns what it was given.
    """
    done: dict[int, torch.Tensor] = {}
    if isinstance(what, torch.Tensor):
        _share_tensor(what, done)
        return what
    for tensor in (*what.parameters(), *what.buffers()):
        _share_tensor(tensor, done)
        if tensor.grad is not None:
            _share_tensor(tensor.grad, done)
    return what
