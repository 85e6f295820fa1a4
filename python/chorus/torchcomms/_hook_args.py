"""The arguments of hooks: the operation's name, and one class for each operation's arguments."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from chorus.torchcomms._types import P2POp, ReduceOp
    from chorus.torchcomms._window import TorchCommWindow
    from chorus.torchcomms._work import TorchWork


class OpName(enum.Enum):
    """The operations that hooks see."""

    send = 0
    recv = 1
    broadcast = 2
    all_reduce = 3
    reduce = 4
    all_gather = 5
    all_gather_v = 6
    all_gather_single = 7
    reduce_scatter = 8
    reduce_scatter_v = 9
    reduce_scatter_single = 10
    all_to_all = 11
    all_to_all_single = 12
    all_to_all_v_single = 13
    barrier = 14
    scatter = 15
    gather = 16
    gather_single = 17
    split = 18
    new_window = 19
    finalize = 20
    batch_op_issue = 21


_Tensors = list[torch.Tensor]


# Fields are in the order of the method's arguments, async_op last.


@dataclass
class _Message:
    tensor: torch.Tensor
    peer: int
    async_op: bool


@dataclass
class _Moved:
    output: Any
    input: Any
    async_op: bool


@dataclass
class _Reduced:
    output: Any
    input: Any
    op: ReduceOp
    async_op: bool


@dataclass
class _Rooted:
    output: Any
    input: Any
    root: int
    async_op: bool


class SendPreHookArgs(_Message):
    pass


class RecvPreHookArgs(_Message):
    pass


@dataclass
class BroadcastPreHookArgs:
    tensor: torch.Tensor
    root: int
    async_op: bool


@dataclass
class AllReducePreHookArgs:
    tensor: torch.Tensor
    op: ReduceOp
    async_op: bool


@dataclass
class ReducePreHookArgs:
    tensor: torch.Tensor
    root: int
    op: ReduceOp
    async_op: bool


class AllGatherPreHookArgs(_Moved):
    pass


class AllGatherVPreHookArgs(_Moved):
    pass


class AllGatherSinglePreHookArgs(_Moved):
    pass


class ReduceScatterPreHookArgs(_Reduced):
    pass


class ReduceScatterVPreHookArgs(_Reduced):
    pass


class ReduceScatterSinglePreHookArgs(_Reduced):
    pass


class AllToAllPreHookArgs(_Moved):
    pass


class AllToAllSinglePreHookArgs(_Moved):
    pass


@dataclass
class AllToAllVSinglePreHookArgs:
    output: torch.Tensor
    input: torch.Tensor
    output_split_sizes: list[int]
    input_split_sizes: list[int]
    async_op: bool


@dataclass
class BarrierPreHookArgs:
    async_op: bool


class ScatterPreHookArgs(_Rooted):
    pass


class GatherPreHookArgs(_Rooted):
    pass


class GatherSinglePreHookArgs(_Rooted):
    pass


@dataclass
class BatchOpIssuePreHookArgs:
    ops: list[P2POp]
    async_op: bool


@dataclass
class SplitPreHookArgs:
    ranks: list[int]
    name: str | None


@dataclass
class NewWindowPreHookArgs:
    tensor: torch.Tensor | None = None


@dataclass
class FinalizePreHookArgs:
    pass


@dataclass
class CollectivePostHookArgs:
    """``work``: the handle of the operation."""

    work: TorchWork


class SendPostHookArgs(CollectivePostHookArgs):
    pass


class RecvPostHookArgs(CollectivePostHookArgs):
    pass


class BroadcastPostHookArgs(CollectivePostHookArgs):
    pass


class AllReducePostHookArgs(CollectivePostHookArgs):
    pass


class ReducePostHookArgs(CollectivePostHookArgs):
    pass


class AllGatherPostHookArgs(CollectivePostHookArgs):
    pass


class AllGatherVPostHookArgs(CollectivePostHookArgs):
    pass


class AllGatherSinglePostHookArgs(CollectivePostHookArgs):
    pass


class ReduceScatterPostHookArgs(CollectivePostHookArgs):
    pass


class ReduceScatterVPostHookArgs(CollectivePostHookArgs):
    pass


class ReduceScatterSinglePostHookArgs(CollectivePostHookArgs):
    pass


class AllToAllPostHookArgs(CollectivePostHookArgs):
    pass


class AllToAllSinglePostHookArgs(CollectivePostHookArgs):
    pass


class AllToAllVSinglePostHookArgs(CollectivePostHookArgs):
    pass


class BarrierPostHookArgs(CollectivePostHookArgs):
    pass


class ScatterPostHookArgs(CollectivePostHookArgs):
    pass


class GatherPostHookArgs(CollectivePostHookArgs):
    pass


class GatherSinglePostHookArgs(CollectivePostHookArgs):
    pass


class BatchOpIssuePostHookArgs(CollectivePostHookArgs):
    pass


@dataclass
class SplitPostHookArgs:
    """``comm``: the new communicator."""

    comm: Any  # a TorchComm


@dataclass
class NewWindowPostHookArgs:
    window: TorchCommWindow


@dataclass
class FinalizePostHookArgs:
    pass


def _classes(when: str) -> dict[OpName, type[Any]]:
    """The class of each operation's arguments: all_gather_v's is AllGatherVPreHookArgs."""
    return {op: globals()[op.name.title().replace("_", "") + when + "HookArgs"] for op in OpName}


PRE = _classes("Pre")
POST = _classes("Post")

__all__ = ["CollectivePostHookArgs", "OpName", *(c.__name__ for c in (*PRE.values(), *POST.values()))]


@dataclass
class Hooks:
    """The hooks of one communicator's operations, in the order of their registration."""

    pre: list[Any] = field(default_factory=list)
    post: list[Any] = field(default_factory=list)
    left_out: list[Any] = field(default_factory=list)  # called with the op_id of a split that gives this rank no part


class RemovableHandle:
    """Removes a hook. Dropping this object doesn't remove the hook."""

    def __init__(self, hooks: list[Any], callback: Any) -> None:
        self._hooks: list[Any] | None = hooks
        self._callback = callback

    def remove(self) -> None:
        """Remove the hook; a second call changes nothing."""
        if self._hooks is not None:
            self._hooks.remove(self._callback)
            self._hooks = None
