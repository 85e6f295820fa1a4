"""A check for NaNs before operations."""

from __future__ import annotations

from typing import Any

import torch

from chorus.torchcomms._hook_args import OpName, RemovableHandle
from chorus.torchcomms.comm import TorchComm

# The fields of an operation's inputs, if not "input". A receive has none; the tensor of a broadcast is
# an input on the root only.
_INPUTS = {
    OpName.send: "tensor",
    OpName.all_reduce: "tensor",
    OpName.reduce: "tensor",
    OpName.broadcast: "tensor",
}


class NanCheckHook:
    """Raises RuntimeError, which names operation and communicator, before a NaN is sent.

    ``check_outputs`` checks the output tensors too, with their values before the operation.
    """

    def __init__(self, check_inputs: bool = True, check_outputs: bool = False) -> None:
        self.check_inputs = check_inputs
        self.check_outputs = check_outputs
        self._handles: list[RemovableHandle] = []

    def register_with_comm(self, comm: TorchComm) -> None:
        """Check this communicator's operations from now on."""

        def look(op: OpName, op_id: int, args: Any) -> None:
            if op is OpName.broadcast and args.root != comm.get_rank():
                return
            if self.check_inputs:
                self._look(comm, op, "input", getattr(args, _INPUTS.get(op, "input"), None))
                if op is OpName.batch_op_issue:
                    self._look(comm, op, "input", [p.tensor for p in args.ops if p.type.name == "SEND"])
            if self.check_outputs:
                self._look(comm, op, "output", getattr(args, "output", None))

        self._handles.append(comm.register_pre_hook(look))

    def is_enabled(self) -> bool:
        """Whether it checks any communicator's operations."""
        return bool(self._handles)

    def unregister(self) -> None:
        """Stop checking."""
        while self._handles:
            self._handles.pop().remove()

    @staticmethod
    def _look(comm: TorchComm, op: OpName, what: str, tensors: Any) -> None:
        for tensor in tensors if isinstance(tensors, list | tuple) else [tensors]:
            if not isinstance(tensor, torch.Tensor) or not (tensor.is_floating_point() or tensor.is_complex()):
                continue
            # The 8-bit floats have no isnan.
            if torch.isnan(tensor.float() if tensor.element_size() == 1 else tensor).any():
                raise RuntimeError(
                    f"chorus: rank {comm.get_rank()} of {comm.get_name()!r}: {op.name}: NaN in the {what} "
                    f"(shape {list(tensor.shape)}, {tensor.dtype})"
                )
