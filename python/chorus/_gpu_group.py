# PyTorch's stubs give the methods of the base class other overloads than PyTorch calls.

# mypy: disable-error-code="override"
"""The part of a process group that serves the tensors of a GPU: communicators of the vendor's library, NCCL or RCCL.

A group has one from the beginning, and it costs nothing. The first collective on tensors of the GPU, which every rank
of the group calls, makes its communicator. A single send or receive makes one for its two ranks alone, since no
other rank need take part. Messages of ``batch_isend_irecv`` use the whole group's, as in PyTorch's own group over NCCL.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from chorus import _devices, _lib, _nccl, process_group
from chorus._comm import Communicator
from chorus._offers import OF_DRIVER
from chorus.errors import Error, UnsupportedError
from chorus.process_group import ProcessGroup, timeout_ns

_Tensors = list[torch.Tensor]


class LibraryGroup(ProcessGroup):
    """The part of ``group`` for tensors of ``torch.device(kind)``, over the library's backend ``carrier``.

    It's a group of the same ranks. Its communicator shares the failures of the group's own, in both directions, and
    has its timeout. ``job`` is its ranks in the job: ``job_ranks`` and ``job_size`` of Communicator.

    Attributes:
        comm: the communicator, made when it's first read.
        eager: whether all ranks have had it from the beginning.
        split_from: the part of another group to split it from, and the ranks there; None: it's made anew.
    """

    def __init__(
        self, group: ProcessGroup, kind: str, carrier: str, hints: dict[str, str], job: tuple[Sequence[int], int]
    ) -> None:
        store = PrefixStore(f"{kind}/", group._store) if group._store is not None else None
        super().__init__(group.comm, store, group._timeout)
        del self.comm
        self._group = group
        self._kind, self.carrier, self._job = kind, carrier, job
        self._hints = hints
        self._ours = {kind}
        self._device: torch.device | None = None
        self.eager = False
        self._pairs: dict[int, ProcessGroup] = {}  # by the other rank
        self._starting: dict[Any, threading.Lock] = {}
        self.split_from: tuple[LibraryGroup, list[int]] | None = None

    def __getattr__(self, name: str) -> Any:
        if name != "comm":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self.begin()

    @property
    def begun(self) -> bool:
        """Whether this rank has made the communicator of all ranks."""
        return "comm" in self.__dict__

    def at(self, device: torch.device) -> LibraryGroup:
        """The part itself, bound to a device for all its communicators. The first call decides which."""
        if self._device is None and device.index is not None:
            self._device = device
        return self

    def begin(self) -> Communicator:
        """Make the communicator of all ranks. All of them call this; see :meth:`Communicator.create`."""
        with self._starting.setdefault(None, threading.Lock()):
            if not self.begun:
                if self.split_from is not None:
                    parent, ranks = self.split_from
                    part = parent.split(ranks, self._group, self._hints)
                    assert part is not None  # this rank is among them
                    self.comm = part
                else:
                    self.comm = self._start(range(self.size()), self._name, self._store)
                self.comm.group_name = self._group_name
                self.split_from = None
        comm: Communicator = self.__dict__["comm"]
        return comm

    @property
    def _name(self) -> str:
        return f"{self._group.comm.name}:{self._kind}"

    def _start(self, members: Sequence[int], name: str, store: Any) -> Communicator:
        """A communicator of some of the ranks, each of which calls this."""
        if (failure := self._group.failure) is not None:
            raise failure
        if store is None and len(members) > 1:
            raise UnsupportedError(f"chorus: {name!r}: a group without a store can't begin on {self._kind}")
        ranks, size = self._job
        comm = Communicator.create(
            members.index(self.rank()),
            len(members),
            store,
            backend=self.carrier,
            device=self._device or self._current(),
            name=name,
            timeout_ns=timeout_ns(self._timeout),
            hints={**_nccl.defaults(), **self._hints},
            abort_on_error=_nccl.abort_on_error(self._abort),
            job_ranks=[ranks[r] for r in members] if size else members if len(members) < self.size() else (),
            job_size=size or (self.size() if len(members) < self.size() else 0),
            again=True,
            beside=self._group.comm,
        )
        if _nccl.blocking_wait():
            comm.block()
        comm.group_name = self._group_name
        return comm

    def _place(self, op: str) -> tuple[str, torch.device]:
        return self.carrier, self._device or self._current()

    def _current(self) -> torch.device:
        module = torch.get_device_module(self._kind)
        return torch.device(self._kind, module.current_device())

    # ---- parts of it ----

    def split(
        self, ranks: Sequence[int], beside: ProcessGroup | None, hints: dict[str, str] | None = None
    ) -> Communicator | None:
        """A communicator of some of the ranks, in their order, for tensors of these devices, split off by the library
        if it can. ``beside`` is the group for the host's tensors. All ranks call it, each with the ranks of its own
        part, or none."""
        self._split_count += 1
        return self.comm.split(
            ranks,
            name=f"{beside.comm.name}:{self._kind}" if beside is not None else None,
            timeout_ns=timeout_ns(beside._timeout if beside is not None else self._timeout),
            hints=hints,
            beside=beside.comm if beside is not None else None,
        )

    def divide(self, group: ProcessGroup | None, ranks: Sequence[int], hints: dict[str, dict[str, str]]) -> None:
        """Give a split of the whole group its part: by a split of this one, if its communicator exists. All ranks call
        it. On a rank that is in no part ``group`` is None, and there are no ranks."""
        with self._starting.setdefault(None, threading.Lock()):  # not while the communicator is being made
            begun = self.begun
        own = hints.get(self._kind)
        comm = self.split(ranks, group, own) if begun else None
        if group is not None:
            part = self.follow(group, ranks, own)
            if comm is not None:
                part.comm, part.eager = comm, True

    def follow(self, group: ProcessGroup, ranks: Sequence[int], hints: dict[str, str] | None = None) -> LibraryGroup:
        """Give a group of some of the ranks, in their order, a part like this one, with a communicator of its own."""
        members, size = self._job
        job = ([members[r] for r in ranks], size) if size else (list(ranks), self.size())
        hints = dict(self._hints if hints is None else hints)
        abort = hints.pop("abort_on_error", self._abort)
        part = part_of(group, self._kind, self.carrier, hints, job)
        part._abort = abort
        return part

    def split_group(self, *args: Any, **named: Any) -> ProcessGroup | None:
        """:meth:`ProcessGroup.split_group` of the whole group."""
        return self._group.split_group(*args, **named)

    splitGroup = split_group

    def shrink(self, *args: Any, **named: Any) -> ProcessGroup:
        """:meth:`ProcessGroup.shrink` of the whole group."""
        return self._group.shrink(*args, **named)

    def perform_nocolor_split(self, device: torch.device) -> None:
        """Take part in a split by the other ranks; PyTorch calls it on those that ``new_group`` leaves out."""
        if self.eager:
            self.split([], None)

    def eager_connect_single_device(self, device: torch.device | None = None) -> None:
        """Make the communicator now. PyTorch calls this if init_process_group got a device_id."""
        if device is not None and device.type == self._kind:
            self.at(device)
            self.eager = True
            self.begin()

    # ---- messages ----

    def send(self, tensors: _Tensors, dst: int, tag: int) -> dist.Work:
        """:meth:`ProcessGroup.send`."""
        pair, peer = self._toward(dst, tag, "send")
        return super().send(tensors, dst, tag) if pair is None else pair.send(tensors, peer, tag)

    def recv(self, tensors: _Tensors, src: int, tag: int) -> dist.Work:
        """:meth:`ProcessGroup.recv`."""
        pair, peer = self._toward(src, tag, "recv")
        if pair is None:
            return super().recv(tensors, src, tag)
        work = pair.recv(tensors, peer, tag)
        if isinstance(work, process_group.Work):
            work._source = src
        return work

    def _toward(self, peer: int, tag: int, op: str) -> tuple[ProcessGroup | None, int]:
        """The group of this rank and a peer, and the peer's rank in it; None for this group itself.

        Messages that the library doesn't support are refused before a communicator is made.
        """
        if tag or peer == _lib.ANY:
            raise UnsupportedError(
                f"chorus: {self._name!r}: {op}: {self.carrier.upper()} has neither tags nor any source", op=op
            )
        if self.eager or self.begun and self.comm._batch is not None:
            return None, peer
        rank = self.rank()
        if not isinstance(peer, int) or not 0 <= peer < self.size():
            raise self._group.comm.invalid(op, f"there is no rank {peer}: the group has {self.size()}")
        pair = self._pairs.get(peer)
        if pair is None:
            with self._starting.setdefault(peer, threading.Lock()):
                pair = self._pairs.get(peer)
                if pair is None:
                    pair = self._pairs[peer] = self._pair(sorted({rank, peer}))
        return pair, int(peer > rank)

    def _pair(self, members: list[int]) -> ProcessGroup:
        text = "-".join(map(str, members))
        store = PrefixStore(f"{text}/", self._store) if self._store is not None else None
        comm = self._start(members, f"{self._name}:{text}", store)
        pair = ProcessGroup(comm, store, self._timeout)
        pair._ours = {self._kind}
        return pair

    # ---- the group itself ----

    def _communicators(self) -> list[Communicator]:
        return [pair.comm for pair in self._pairs.values()] + ([self.comm] if self.begun else [])

    def broken(self) -> Error | None:
        """Why one of its communicators is broken; None if none is."""
        return next((error for comm in self._communicators() if (error := comm.failure()) is not None), None)

    @property
    def failure(self) -> Any:
        """Why the group is broken; None if it isn't."""
        return self._group.failure

    def set_timeout(self, timeout: Any) -> None:
        """:meth:`ProcessGroup.set_timeout`."""
        for comm in self._communicators():
            comm.set_timeout(timeout_ns(timeout))
        self._timeout = timeout

    _set_default_timeout = set_timeout

    def abort(self) -> None:
        """Break the whole group; see :meth:`ProcessGroup.abort`."""
        for comm in self._communicators():
            comm.abort("abort was called")
        self._group.comm.abort("abort was called")

    def shutdown(self) -> None:
        """End this rank's part in the library's communicators."""
        for comm in self._communicators():
            if not comm.finalized:
                comm.finalize(timeout_ns(self._timeout))

    def _get_sequence_number_for_group(self) -> int:
        return self.comm.issued if self.begun else 0


def part_of(
    group: ProcessGroup, kind: str, carrier: str | None, hints: dict[str, str], job: tuple[Sequence[int], int] = ((), 0)
) -> LibraryGroup:
    """Give a group its part for tensors of ``torch.device(kind)``."""
    part = LibraryGroup(group, kind, carrier or OF_DRIVER[_devices.driver_of(kind)], hints, job)
    group._add_library(part)
    return part
