"""The torchcomms interface over Chorus: communicators as objects, for tensors of the CPU and of devices.

::

    from chorus import torchcomms

    comm = torchcomms.new_comm("gloo", torch.device("cpu"), name="main")   # under torchrun
    x = torch.full((1024,), float(comm.get_rank()))
    comm.all_reduce(x, torchcomms.ReduceOp.SUM, async_op=False)
    comm.finalize()

Names, arguments and defaults are the original's, so that the distribution
``chorus-torchcomms``, which gives this package the name ``torchcomms``, runs programs that were
written for it. ``"gloo"`` is another name of ``"native"`` here.
"""

from __future__ import annotations

import os
from typing import Any

import torch  # noqa: F401  # whose import ends with chorus._autoload: not in the middle of a module's

from chorus import _patches
from chorus.torchcomms._backend import (
    TorchCommBackend,
    _is_backend_registered,
    built_backends,
    is_backend_built,
    register_backend,
)
from chorus.torchcomms._hook_args import OpName, RemovableHandle
from chorus.torchcomms._types import (
    AllGatherOptions,
    AllGatherPExecOptions,
    AllGatherPInitOptions,
    AllGatherSingleOptions,
    AllReduceOptions,
    AllToAllOptions,
    AllToAllSingleOptions,
    AllToAllvSingleOptions,
    BarrierOptions,
    BatchP2POptions,
    BroadcastOptions,
    CommOptions,
    GatherOptions,
    GatherSingleOptions,
    NodeRankLayout,
    P2POp,
    P2POpType,
    ReconfigureOptions,
    RecvOptions,
    RedOpType,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    ReduceScatterSingleOptions,
    ScatterOptions,
    SendOptions,
    Timeout,
    TorchCommWinAccessType,
    TorchCommWindowAttr,
    WorkStatus,
)
from chorus.torchcomms._window import TorchCommWindow
from chorus.torchcomms._work import TorchWork, WorkWrapper
from chorus.torchcomms.comm import BatchSendRecv, MemAllocator, TorchComm, get_mem_allocator, new_comm

__all__ = [
    "AllGatherOptions",
    "AllGatherPExecOptions",
    "AllGatherPInitOptions",
    "AllGatherSingleOptions",
    "AllReduceOptions",
    "AllToAllOptions",
    "AllToAllSingleOptions",
    "AllToAllvSingleOptions",
    "BarrierOptions",
    "BatchP2POptions",
    "BatchSendRecv",
    "BroadcastOptions",
    "CommOptions",
    "GatherOptions",
    "GatherSingleOptions",
    "MemAllocator",
    "NodeRankLayout",
    "OpName",
    "P2POp",
    "P2POpType",
    "ReconfigureOptions",
    "RecvOptions",
    "RedOpType",
    "ReduceOp",
    "ReduceOptions",
    "ReduceScatterOptions",
    "ReduceScatterSingleOptions",
    "RemovableHandle",
    "ScatterOptions",
    "SendOptions",
    "Timeout",
    "TorchComm",
    "TorchCommBackend",
    "TorchCommWinAccessType",
    "TorchCommWindow",
    "TorchCommWindowAttr",
    "TorchWork",
    "WorkStatus",
    "WorkWrapper",
    "_is_backend_registered",
    "built_backends",
    "get_mem_allocator",
    "is_backend_built",
    "new_comm",
    "register_backend",
]


def _give(c10d: Any) -> None:
    from chorus.torchcomms import _switch

    _switch.give(c10d)


_patches.apply("use_torchcomms", _give)

if os.environ.get("TORCHCOMMS_PATCH_FOR_COMPILE") == "1":
    from chorus.torchcomms.functional import is_torch_compile_supported_and_enabled

    if is_torch_compile_supported_and_enabled():
        from chorus import _compiled

        _compiled.install()
