"""Backends, which carry out the operations of a communicator, and their registry."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

from chorus import _lib
from chorus._devices import LIBRARIES, served
from chorus.errors import UnsupportedError
from chorus.torchcomms._types import CommOptions, Options, P2POp, ReduceOp

if TYPE_CHECKING:
    from typing_extensions import Unpack

_Tensor = torch.Tensor
_Tensors = list[torch.Tensor]


class TorchCommBackend:
    """A backend: a subclass of this, registered with :func:`register_backend`.

    An operation that isn't overridden raises :class:`chorus.UnsupportedError`. Operations return None if
    they are done, a :class:`TorchWork`, or any object with a ``wait()``. Hints and a timeout, if the
    caller gives them, are keyword arguments of these names; a backend that takes none need not have them.
    """

    def init(self, device: torch.device, name: str, options: CommOptions) -> None:
        """Join the communicator; called once, before anything else."""

    def finalize(self) -> None:
        """End this rank's part."""

    def get_rank(self) -> int:
        raise self._lacks("get_rank")

    def get_size(self) -> int:
        raise self._lacks("get_size")

    def get_backend_name(self) -> str:
        return type(self).__name__

    def get_comm_name(self) -> str:
        return ""

    def send(self, tensor: _Tensor, dst: int, async_op: bool, **options: Unpack[Options]) -> Any:
        raise self._lacks("send")

    def recv(self, tensor: _Tensor, src: int, async_op: bool, **options: Unpack[Options]) -> Any:
        raise self._lacks("recv")

    def batch_op_issue(self, ops: list[P2POp], async_op: bool, **options: Unpack[Options]) -> Any:
        raise self._lacks("batch_op_issue")

    def broadcast(self, tensor: _Tensor, root: int, async_op: bool, **options: Unpack[Options]) -> Any:
        raise self._lacks("broadcast")

    def all_reduce(self, tensor: _Tensor, op: ReduceOp, async_op: bool, **options: Unpack[Options]) -> Any:
        raise self._lacks("all_reduce")

    def reduce(self, tensor: _Tensor, root: int, op: ReduceOp, async_op: bool, **options: Unpack[Options]) -> Any:
        raise self._lacks("reduce")

    def all_gather(self, tensor_list: _Tensors, tensor: _Tensor, async_op: bool, **options: Unpack[Options]) -> Any:
        raise self._lacks("all_gather")

    def all_gather_v(self, tensor_list: _Tensors, tensor: _Tensor, async_op: bool, **options: Unpack[Options]) -> Any:
        raise self._lacks("all_gather_v")

    def all_gather_single(self, output: _Tensor, input: _Tensor, async_op: bool, **options: Unpack[Options]) -> Any:
        raise self._lacks("all_gather_single")

    def reduce_scatter(
        self, output: _Tensor, input_list: _Tensors, op: ReduceOp, async_op: bool, **options: Unpack[Options]
    ) -> Any:
        raise self._lacks("reduce_scatter")

    def reduce_scatter_v(
        self, output: _Tensor, input_list: _Tensors, op: ReduceOp, async_op: bool, **options: Unpack[Options]
    ) -> Any:
        raise self._lacks("reduce_scatter_v")

    def reduce_scatter_single(
        self, output: _Tensor, input: _Tensor, op: ReduceOp, async_op: bool, **options: Unpack[Options]
    ) -> Any:
        raise self._lacks("reduce_scatter_single")

    def all_to_all(
        self, output_tensor_list: _Tensors, input_tensor_list: _Tensors, async_op: bool, **options: Unpack[Options]
    ) -> Any:
        raise self._lacks("all_to_all")

    def all_to_all_single(self, output: _Tensor, input: _Tensor, async_op: bool, **options: Unpack[Options]) -> Any:
        raise self._lacks("all_to_all_single")

    def all_to_all_v_single(
        self,
        output: _Tensor,
        input: _Tensor,
        output_split_sizes: list[int],
        input_split_sizes: list[int],
        async_op: bool,
        **options: Unpack[Options],
    ) -> Any:
        raise self._lacks("all_to_all_v_single")

    def barrier(self, async_op: bool, **options: Unpack[Options]) -> Any:
        raise self._lacks("barrier")

    def scatter(
        self, output_tensor: _Tensor, input_tensor_list: _Tensors, root: int, async_op: bool, **options: Unpack[Options]
    ) -> Any:
        raise self._lacks("scatter")

    def gather(
        self, output_tensor_list: _Tensors, input_tensor: _Tensor, root: int, async_op: bool, **options: Unpack[Options]
    ) -> Any:
        raise self._lacks("gather")

    def gather_single(
        self, output: _Tensor, input: _Tensor, root: int, async_op: bool, **options: Unpack[Options]
    ) -> Any:
        raise self._lacks("gather_single")

    def split(self, ranks: list[int], name: str | None, options: CommOptions) -> TorchCommBackend | None:
        """The part of this rank, or None if it has none. ``options`` are those of the whole communicator, with only the
        hints that the caller of split gave."""
        raise self._lacks("split")

    def get_backend_version(self) -> str:
        raise self._lacks("get_backend_version")

    def is_abort_supported(self) -> bool:
        return False

    def abort(self) -> None:
        raise self._lacks("abort")

    def is_aborted(self) -> bool:
        return False

    def get_init_handle(self) -> str:
        raise self._lacks("get_init_handle")

    def reconfigure(self, uuid: int, init_handles: list[str] | set[str], **options: Unpack[Options]) -> None:
        raise self._lacks("reconfigure")

    def on_abort(self, call: Callable[[], None]) -> None:
        """Call ``call`` once, from any thread, when the communicator breaks."""
        raise self._lacks("register_abort_hook")

    def set_timeout(self, timeout: timedelta) -> None:
        raise self._lacks("set_timeout")

    def set_hints(self, hints: dict[str, str]) -> None:
        raise self._lacks("set_hints")

    def tensor_register(self, tensor: _Tensor) -> None:
        raise self._lacks("tensor_register")

    def tensor_deregister(self, tensor: _Tensor) -> None:
        raise self._lacks("tensor_deregister")

    def _lacks(self, what: str) -> UnsupportedError:
        name = self.get_comm_name()
        return UnsupportedError(f"chorus: {what} not implemented for communicator: {name}", comm=name, op=what)


_registered: dict[str, type[TorchCommBackend]] = {}

# Programs' names of the library's backends for CPU tensors.
_NATIVE = {"native": "native", "chorus": "native", "gloo": "native", "fake": "fake", "mpi": "mpi"}

# The original's backends for accelerators: the library of each, and its devices.
_ACCELERATORS = {
    "nccl": ("NCCL (libnccl.so.2)", "CUDA devices"),
    "nccl-lazy": ("NCCL (libnccl.so.2)", "CUDA devices"),
    "ncclx": ("NCCLX", "CUDA devices"),
    "rccl": ("RCCL (librccl.so.1)", "ROCm devices"),
    "rcclx": ("RCCLX", "ROCm devices"),
    "xccl": ("oneCCL (libccl.so.1)", "Intel XPUs"),
}


def register_backend(name: str, backend_class: type[TorchCommBackend]) -> None:
    """Make a class the backend of this name. A class that is registered already stays."""
    if not (isinstance(backend_class, type) and issubclass(backend_class, TorchCommBackend)):
        raise TypeError(f"{backend_class!r} is not a subclass of TorchCommBackend")
    _registered.setdefault(name, backend_class)


def _is_backend_registered(name: str) -> bool:
    """Whether a backend of this name is known, even if it isn't installed."""
    return name in _registered or name in _NATIVE or name in LIBRARIES


def built_backends() -> list[str]:
    """The names that :func:`new_comm` takes."""
    there = (_lib.library.chorus_backends() or b"").decode().split(",")
    return sorted({name for name, ours in _NATIVE.items() if ours in there} | set(_registered))


def is_backend_built(name: str) -> bool:
    """Whether :func:`new_comm` takes this name."""
    return name in built_backends()


def native_name(name: str, kind: str = "cpu") -> str | None:
    """The library's backend of this name, for a type of device; None if it has none."""
    if name in _registered:
        return None
    return name if name in LIBRARIES and kind in served() else _NATIVE.get(name)


def registered_class(name: str) -> type[TorchCommBackend]:
    """The class registered under a name, by a call or by an installed package.

    Raises :class:`chorus.UnsupportedError` for the original's backends for accelerators, saying what is missing,
    and ModuleNotFoundError for unknown names.
    """
    if name not in _registered:
        for point in importlib.metadata.entry_points(group="torchcomms.backends", name=name):
            point.load()  # calls register_backend
    if name in _registered:
        return _registered[name]
    if name in _ACCELERATORS:
        library, devices = _ACCELERATORS[name]
        raise UnsupportedError(
            f"chorus: backend {name!r} is for {devices}, on which {library} works; "
            f"{_devices()}; CPU tensors go over {', '.join(built_backends())}"
        )
    raise ModuleNotFoundError(
        f"chorus: there is no backend {name!r}; there are {', '.join(built_backends())}, and none is registered "
        "under this name as an entry point of the group torchcomms.backends"
    )


def _devices() -> str:
    if torch.cuda.is_available():
        return f"PyTorch sees {torch.cuda.device_count()} CUDA or ROCm device(s), which this name can't use"
    return "and PyTorch sees no CUDA or ROCm device"
