"""Chorus as a backend of the original torchcomms: ``torchcomms.new_comm("chorus", torch.device("cpu"), name="main")``.

The original imports this module when it's asked for the backend "chorus": it is an entry point of the group
``torchcomms.backends``. Where ``torchcomms`` is Chorus's own distribution there is nothing to do.

The original's interface for backends written in Python is smaller than :class:`chorus.torchcomms.TorchComm`: it has no
hints and timeouts of single operations, no batches, windows, abort and reconfigure. Collectives are done when they
return, also asynchronous ones: PyTorch releases their handles on threads where Python objects must not be released.
Messages return handles.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from chorus.errors import UnsupportedError
from chorus.torchcomms._types import RedOpType, ReduceOp
from chorus.torchcomms.comm import TorchComm, new_comm

torchcomms: Any = importlib.import_module("torchcomms")

_COLLECTIVES = (
    "broadcast", "all_reduce", "reduce", "all_gather", "all_gather_v", "all_gather_single", "reduce_scatter",
    "reduce_scatter_v", "reduce_scatter_single", "all_to_all", "all_to_all_single", "all_to_all_v_single",
    "barrier", "scatter", "gather", "gather_single",
)  # fmt: skip


def _reduction(op: Any) -> ReduceOp:
    """Chorus's reduction for the original's, which is an object of C++."""
    kind = RedOpType[op.type.name]
    if kind is not RedOpType.PREMUL_SUM:
        return ReduceOp(kind)
    factor = getattr(op, "factor", None)  # older versions don't expose it to Python
    if factor is None:
        raise UnsupportedError("chorus: this torchcomms doesn't tell backends the factor of PREMUL_SUM")
    return ReduceOp.PREMUL_SUM(factor)


class Backend(torchcomms.TorchCommBackend):  # type: ignore[misc]
    """A communicator. The original passes arguments by position, ``async_op`` last."""

    def __init__(self) -> None:
        super().__init__()
        self._comm: TorchComm | None = None

    @property
    def comm(self) -> TorchComm:
        if self._comm is None:
            raise RuntimeError("chorus: the communicator is not initialized, or was finalized")
        return self._comm

    def init(self, device: Any, name: str, options: Any) -> None:
        self._comm = new_comm(
            "chorus",
            device,
            name,
            abort_process_on_timeout_or_error=options.abort_process_on_timeout_or_error,
            timeout=options.timeout,
            store=options.store,
            hints=dict(options.hints),
        )

    def finalize(self) -> None:
        self.comm.finalize()
        self._comm = None

    def get_rank(self) -> int:
        return self.comm.get_rank()

    def get_size(self) -> int:
        return self.comm.get_size()

    def get_backend_name(self) -> str:
        return "chorus"

    def get_comm_name(self) -> str:
        return self.comm.get_name()

    def send(self, tensor: Any, dst: int, async_op: bool) -> Any:
        work = self.comm.send(tensor, dst, async_op)
        return work if async_op else None

    def recv(self, tensor: Any, src: int, async_op: bool) -> Any:
        work = self.comm.recv(tensor, src, async_op)
        return work if async_op else None

    def split(self, ranks: list[int], name: str, options: Any) -> Backend | None:
        part = self.comm.split(list(ranks), name, hints=dict(options.hints), timeout=options.timeout)
        if part is None:
            return None
        backend = type(self)()
        backend._comm = part
        settle = getattr(backend, "_set_device_and_options", None)  # newer versions require the call
        if settle is not None:
            settle(part.get_device(), options)
        return backend


def _collective(name: str) -> Callable[..., None]:
    def call(self: Backend, *arguments: Any) -> None:
        given = [_reduction(a) if isinstance(a, torchcomms.ReduceOp) else a for a in arguments[:-1]]
        getattr(self.comm, name)(*given, False)

    call.__name__ = name
    return call


for _name in _COLLECTIVES:
    setattr(Backend, _name, _collective(_name))

if torchcomms.ReduceOp is not ReduceOp:
    torchcomms.register_backend("chorus", Backend)
