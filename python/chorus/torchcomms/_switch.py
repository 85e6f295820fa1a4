"""PyTorch's switch: ``torch.distributed.config.use_torchcomms``, or TORCH_DISTRIBUTED_USE_TORCHCOMMS.

With it PyTorch makes a process group of a communicator of torchcomms, for every backend's name. It finds torchcomms by
the names that :func:`give` sets.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from chorus import _patches
from chorus._devices import served
from chorus._pytorch_groups import reset_group_count
from chorus.errors import UnsupportedError
from chorus.torchcomms import _backend_wrapper
from chorus.torchcomms._backend import native_name
from chorus.torchcomms._wrapper import CommGroup
from chorus.torchcomms.comm import TorchComm, new_comm
from chorus.torchcomms.hooks import FlightRecorderHook

# The communicators of a group's other devices, until PyTorch makes the group.
_beside: weakref.WeakKeyDictionary[TorchComm, dict[str, TorchComm]] = weakref.WeakKeyDictionary()


def give(c10d: Any) -> None:
    """Set in PyTorch's module of process groups the names that it takes from torchcomms."""
    c10d._BackendWrapper, c10d.new_comm, c10d.FlightRecorderHook = Group, _new_comm, FlightRecorderHook


class Group(CommGroup):
    """A group that PyTorch has made of a communicator: one written in Python is the whole group."""

    def __init__(self, comm: TorchComm) -> None:
        super().__init__(comm)
        comm._finalized = True  # the group finalizes it
        for kind, other in _beside.pop(comm, {}).items():
            self._put_beside(kind, other)

    def _put_beside(self, kind: str, comm: TorchComm) -> None:
        """Let another communicator carry the tensors of a type of device."""
        comm._finalized = True  # the group finalizes it
        custom: Any = dist.ProcessGroup.BackendType.CUSTOM
        self._add_backend(torch.device(kind), custom, _backend_wrapper._BackendWrapper(comm))

    @property
    def _device_types(self) -> list[torch.device]:
        # PyTorch calls split for each type of device, on ranks that aren't in the new group. Types that share a
        # communicator need one call.
        mine = [device for device in super()._device_types if device not in self._others]
        return [*mine[:1], *self._others] if mine else []

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: list[torch.device] | None = None,
    ) -> Group | None:
        """A group of some of this one's ranks, as for every group. Its other devices' communicators are split, too."""
        if opts is not None and not isinstance(opts, dict):
            raise self.comm.invalid("split", f"options must be a dict of hints, not {type(opts).__name__}")
        if group_name is None:
            raise self.comm.invalid("split", "the new group needs a name")
        members = list(ranks) if self.comm.rank in ranks else []
        comm = self._torchcomm.split(members, group_name, opts, timeout)
        part = None if comm is None else Group(comm)
        for device in self._others:
            other = self._get_backend(device).get_comm().split(members, group_name, opts, timeout)
            if part is not None:
                part._put_beside(device.type, other)
        if part is None:
            return None
        part._store = None if self._store is None else PrefixStore(group_name, self._store)
        part.setGroupName(group_name)
        part.setGroupDesc(group_desc or f"{self._group_desc}:split")
        return part

    splitGroup = split_group


def _new_comm(
    backend: str, device: torch.device, name: str, store: Store | None = None, hints: dict[str, str] | None = None
) -> TorchComm:
    """A group's communicator. Rank, size, timeout, ``device_id`` and the hints in ``pg_options`` are the group's, which
    PyTorch doesn't pass on."""
    caller = _patches.locals_of_creation()
    given, place, config = (caller.get(name) for name in ("backend_options", "device_id", "backend_config"))
    kinds: dict[str, str] = {device.type: backend} if config is None else config.get_device_backend_map()
    if caller.get("group_desc") not in (None, "", "undefined"):
        name = caller["group_desc"]

    def make(backend: str, device: torch.device, name: str) -> TorchComm:
        more: dict[str, Any] = {}
        native = native_name(backend, device.type)
        if native is not None:
            more = {"rank": caller.get("group_rank"), "world_size": caller.get("group_size")}
        if place is not None and (place.type == device.type or native == "native" and place.type in served()):
            device = place
        return new_comm(
            backend,
            device,
            name,
            timeout=caller.get("timeout"),
            store=None if store is None else PrefixStore(device.type, store),
            hints={**(hints or {}), **(given if isinstance(given, dict) else {})},
            **more,
        )

    mine = native_name(backend, device.type)
    others = {kind: name for kind, name in kinds.items() if native_name(name, kind) != mine and name != backend}
    if others and _backend_wrapper.MISSING:
        raise UnsupportedError(f"chorus: a group of several backends, {kinds}: {_backend_wrapper.MISSING}")
    try:
        comm = make(backend, device, name)
        if others:
            _beside[comm] = {kind: make(other, torch.device(kind), f"{name}.{kind}") for kind, other in others.items()}
    except BaseException:
        reset_group_count()
        raise
    return comm
