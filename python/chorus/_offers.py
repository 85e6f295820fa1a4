"""The choice of a library like NCCL for the tensors of GPUs whose streams this library makes, alike on all ranks.

A group uses it if all ranks have it, since its choice must not differ by rank. Each rank that has begun to use such a
device writes into the group's store what it has, before the ranks meet for the group. Another rank deletes what an
earlier process or group has left in its place. So exactly the ranks' offers are there afterwards. They stay there: a
rank that ends the group doesn't know whether others have read them, or have written those of the store's next group.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterable
from typing import Any

import torch
from torch._C._distributed_c10d import Store

from chorus import _devices, _lib
from chorus._store import GONE, asking
from chorus.errors import Error

# A group's libraries, by the library's name for the driver of the devices.
OF_DRIVER = {"cuda": "nccl", "hip": "rccl"}


class Offers:
    """Those of a group's ranks for some types of device; ``device`` is init_process_group's device_id."""

    def __init__(self, kinds: Iterable[str], device: torch.device | None, store: Store | None, rank: int, size: int):
        self._store: Any = store  # PyTorch's stubs lack a method
        self._size = size
        self._mine = {kind: _offer(kind, device) for kind in kinds}
        if store is not None:
            with asking(store):
                for kind, offer in self._mine.items():
                    self._write(_key(kind, rank), offer)

    def _write(self, key: str, offer: str) -> None:
        if not offer:
            with contextlib.suppress(RuntimeError):  # there are stores that can't delete
                self._store.delete_key(key)
                return
        self._store.set(key, offer)

    def agreed(self) -> set[str]:
        """The types for which all ranks have the same library and different GPUs. The ranks have met by now."""
        return {kind for kind, mine in self._mine.items() if mine and self._alike(kind, mine)}

    def _alike(self, kind: str, mine: str) -> bool:
        keys = [_key(kind, rank) for rank in range(self._size)]
        if self._store is None:
            return self._size == 1
        with asking(self._store):
            try:
                if not self._store.check(keys):  # a rank has no such device, or hasn't begun to use it
                    return False
            except GONE:
                raise
            except RuntimeError:  # there are stores that can't look
                return False
            many = self._store.has_extended_api()
            offers = [b.decode() for b in (self._store.multi_get(keys) if many else map(self._store.get, keys))]
        libraries = {offer.partition(" ")[0] for offer in offers}
        return len(set(offers)) == self._size and libraries == {mine.partition(" ")[0]}


def _key(kind: str, rank: int) -> str:
    return f"library/{kind}/{rank}"


def _offer(kind: str, device: torch.device | None) -> str:
    """This rank's library and GPU; empty if it lacks one, or if the program hasn't begun to use the device. Nothing is
    opened for the answer then."""
    named = device is not None and device.type == kind
    if not named and not _devices.begun[kind]():
        return ""
    index = device.index if device is not None and named else None
    if index is None:
        index = torch.get_device_module(kind).current_device()
    library = OF_DRIVER.get(_devices.driver_of(kind))
    if library is None or _lib.library.chorus_library_open(library.encode()):
        return ""
    try:
        place = _devices.place_of(torch.device(kind, index))
    except Error:  # the GPU is missing, or can't be opened; whatever uses it says why
        return ""
    info = _lib.DeviceInfo(size=ctypes.sizeof(_lib.DeviceInfo))
    if _lib.library.chorus_device_get(place, ctypes.byref(info)):
        return ""
    return f"{library} {info.uuid.decode()}"
