"""The small types of the interface: reductions, options, enumerations."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, TypedDict

import torch


class RedOpType(enum.Enum):
    """The kinds of reductions, numbered as in chorus.h."""

    SUM = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    AVG = 8
    PREMUL_SUM = 9


class ReduceOp:
    """A reduction: how the elements of the ranks are combined. Immutable.

    ``SUM``, ``PRODUCT``, ``MIN``, ``MAX`` (a NaN wins) and ``AVG`` (integers truncate toward
    zero) apply to numbers, ``BAND``, ``BOR`` and ``BXOR`` to integers and bool;
    ``PREMUL_SUM(factor)`` to floating and complex types.
    """

    SUM: ClassVar[ReduceOp]
    PRODUCT: ClassVar[ReduceOp]
    MIN: ClassVar[ReduceOp]
    MAX: ClassVar[ReduceOp]
    BAND: ClassVar[ReduceOp]
    BOR: ClassVar[ReduceOp]
    BXOR: ClassVar[ReduceOp]
    AVG: ClassVar[ReduceOp]

    __slots__ = ("_factor", "_type")
    _type: RedOpType
    _factor: float | torch.Tensor | None

    def __init__(self, type: RedOpType, factor: float | torch.Tensor | None = None) -> None:
        if (type is RedOpType.PREMUL_SUM) != (factor is not None):
            raise RuntimeError("PREMUL_SUM needs a factor, and nothing else takes one: ReduceOp.PREMUL_SUM(factor)")
        if isinstance(factor, torch.Tensor):
            if factor.numel() != 1:
                raise RuntimeError(f"PREMUL_SUM's factor has {factor.numel()} elements; it must have one")
        elif factor is not None:
            if isinstance(factor, bool) or not isinstance(factor, int | float):
                raise TypeError(f"PREMUL_SUM's factor must be a number or a tensor, not {factor.__class__.__name__}")
            factor = float(factor)
        object.__setattr__(self, "_type", type)
        object.__setattr__(self, "_factor", factor)

    @staticmethod
    def PREMUL_SUM(factor: float | torch.Tensor) -> ReduceOp:
        """The sum over ranks of ``factor`` times the input, which stays as it is.

        A tensor ``factor`` has one element, of the data's dtype, and is read when the operation starts.
        """
        return ReduceOp(RedOpType.PREMUL_SUM, factor)

    @property
    def type(self) -> RedOpType:
        return self._type

    @property
    def factor(self) -> float | torch.Tensor | None:
        """PREMUL_SUM's; None for others."""
        return self._factor

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a ReduceOp can't be changed")

    def _key(self) -> tuple[RedOpType, float | int | None]:
        return self._type, id(self._factor) if isinstance(self._factor, torch.Tensor) else self._factor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReduceOp) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"ReduceOp.{self._type.name}" + ("" if self._factor is None else f"({self._factor})")

    def __reduce__(self) -> Any:
        return ReduceOp, (self._type, self._factor)


for _type in RedOpType:
    if _type is not RedOpType.PREMUL_SUM:
        setattr(ReduceOp, _type.name, ReduceOp(_type))


class Options(TypedDict, total=False):
    """Keyword arguments that backends' operations get only if the caller gave them."""

    hints: Mapping[str, str]
    timeout: timedelta


class WorkStatus(enum.Enum):
    """The state of an operation."""

    NOT_STARTED = 0
    INPROGRESS = 1
    COMPLETED = 2
    TIMEDOUT = 3
    ERROR = 4


class TorchCommWinAccessType(enum.Enum):
    """How a peer's part of a window can be reached."""

    WIN_ACCESS_TYPE_UNIFIED = 0  # by loads and stores too, through map_remote_tensor
    WIN_ACCESS_TYPE_SEPARATE = 1  # by the window's operations only


@dataclass
class TorchCommWindowAttr:
    """The properties of a peer's part of a window."""

    access_type: TorchCommWinAccessType = TorchCommWinAccessType.WIN_ACCESS_TYPE_SEPARATE


class Timeout(timedelta):
    """A timedelta under another name, for programs that torch.compile traces."""


@dataclass
class CommOptions:
    """The options of a communicator, as :meth:`TorchComm.get_options` gives them.

    Two are equal if the flag, the timeout and the hints are.
    """

    abort_process_on_timeout_or_error: bool = False
    timeout: timedelta = timedelta(seconds=600)
    is_high_priority_stream: bool = field(default=False, compare=False)
    store: Any = field(default=None, compare=False)
    enable_reconfigure: bool = field(default=False, compare=False)
    hints: dict[str, str] = field(default_factory=dict)

    @property
    def high_priority_stream(self) -> bool:
        """The older name of ``is_high_priority_stream``."""
        return self.is_high_priority_stream

    @high_priority_stream.setter
    def high_priority_stream(self, value: bool) -> None:
        self.is_high_priority_stream = value


@dataclass
class OperationOptions:
    """Hints and timeout of one operation; a timeout of zero is the communicator's."""

    hints: dict[str, str] = field(default_factory=dict)
    timeout: timedelta = timedelta(0)


class BatchP2POptions(OperationOptions):
    """The options of :meth:`BatchSendRecv.issue`."""


def _options_of(name: str) -> type[OperationOptions]:
    text = f"Hints and timeout of one {name.removesuffix('Options')}, for programs that name them so."
    return type(name, (OperationOptions,), {"__doc__": text, "__module__": __name__})


AllGatherOptions = _options_of("AllGatherOptions")
AllGatherPExecOptions = _options_of("AllGatherPExecOptions")
AllGatherPInitOptions = _options_of("AllGatherPInitOptions")
AllGatherSingleOptions = _options_of("AllGatherSingleOptions")
AllReduceOptions = _options_of("AllReduceOptions")
AllToAllOptions = _options_of("AllToAllOptions")
AllToAllSingleOptions = _options_of("AllToAllSingleOptions")
AllToAllvSingleOptions = _options_of("AllToAllvSingleOptions")
BarrierOptions = _options_of("BarrierOptions")
BroadcastOptions = _options_of("BroadcastOptions")
GatherOptions = _options_of("GatherOptions")
GatherSingleOptions = _options_of("GatherSingleOptions")
RecvOptions = _options_of("RecvOptions")
ReduceOptions = _options_of("ReduceOptions")
ReduceScatterOptions = _options_of("ReduceScatterOptions")
ReduceScatterSingleOptions = _options_of("ReduceScatterSingleOptions")
ScatterOptions = _options_of("ScatterOptions")
SendOptions = _options_of("SendOptions")


@dataclass
class ReconfigureOptions:
    """The arguments of :meth:`TorchComm.reconfigure`."""

    uuid: int = 0
    init_handles: list[str] | set[str] = field(default_factory=list)
    timeout: timedelta | None = None
    hints: dict[str, str] | None = None


@dataclass
class NodeRankLayout:
    """The ranks of each host, as :meth:`TorchComm.get_node_rank_layout` returns them.

    Attributes:
        num_nodes: number of hosts.
        local_node_ranks: ranks on this rank's host.
        local_node_global_rank_ids: for each of these, in the communicator's order, its rank in the job.
        local_node_local_rank_ids: likewise, its rank on the host: LOCAL_RANK, or else its index among these.
        uniform: whether all hosts have the same number of ranks.
    """

    num_nodes: int = 0
    local_node_ranks: int = 0
    local_node_global_rank_ids: list[int] = field(default_factory=list)
    local_node_local_rank_ids: list[int] = field(default_factory=list)
    uniform: bool = True

    def is_single_node(self) -> bool:
        """Whether all ranks are on one host."""
        return self.num_nodes == 1


class P2POpType(enum.Enum):
    """The direction of a message of a batch."""

    SEND = 0
    RECV = 1


@dataclass
class P2POp:
    """One message of a batch. ``peer``: rank of the communicator."""

    type: P2POpType
    tensor: torch.Tensor
    peer: int
