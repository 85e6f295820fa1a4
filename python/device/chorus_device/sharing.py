"""Tensors of devices that processes share: ``torch.multiprocessing`` sends them like CUDA's.

A message has a handle of the memory, and a ticket. The sender keeps the memory until the receiver has dropped the
tensor or has ended in any way: each receiver has a connection to the sender. Nothing has a name in the file system. A
message must be received once. If it's never received, the sender keeps the memory until it ends.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import secrets
import threading
from multiprocessing.connection import Client, Connection, Listener
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

from chorus_device._device import c, name


class Sharer:
    """The storages that this process shares, by their tickets, and a listener for their receivers."""

    def __init__(self) -> None:
        self.address = f"\0chorus-shared-{os.getpid()}-{secrets.token_hex(8)}"
        self.storages: dict[int, torch.UntypedStorage] = {}
        self._tickets = itertools.count(1)
        self._listener = Listener(self.address, "AF_UNIX", backlog=64, authkey=_key())
        threading.Thread(target=self._accept, name="chorus-shared", daemon=True).start()

    def keep(self, storage: torch.UntypedStorage) -> int:
        ticket = next(self._tickets)
        self.storages[ticket] = storage
        return ticket

    def _accept(self) -> None:
        while True:
            try:
                receiver = self._listener.accept()
            except (OSError, EOFError, multiprocessing.AuthenticationError):  # an unauthenticated client
                continue
            threading.Thread(target=self._serve, args=(receiver,), name="chorus-shared", daemon=True).start()

    def _serve(self, receiver: Connection) -> None:
        """Serve a receiver until it ends, which drops its storages."""
        held: set[int] = set()
        try:
            while True:
                what, ticket = receiver.recv()
                if what == "take":
                    there = ticket in self.storages
                    held.update({ticket} if there else ())
                    receiver.send(there)
                else:
                    held.discard(ticket)
                    self.storages.pop(ticket, None)
        except (EOFError, OSError):
            pass
        finally:
            for ticket in held:
                self.storages.pop(ticket, None)


class Source:
    """A process that shares storages with this one."""

    def __init__(self, address: str) -> None:
        # A storage may be dropped at any garbage collection, even during an exchange of the same thread.
        self._lock = threading.RLock()
        self._connection = Client(address, "AF_UNIX", authkey=_key())

    def take(self, ticket: int) -> bool:
        with self._lock:
            self._connection.send(("take", ticket))
            return bool(self._connection.recv())

    def drop(self, ticket: int) -> None:
        with self._lock:
            try:
                self._connection.send(("drop", ticket))
            except OSError:  # the sender has ended, and this process alone has the memory
                pass


_lock = threading.Lock()
_sharer: Sharer | None = None
_sources: dict[str, Source] = {}


def _key() -> bytes:
    return bytes(multiprocessing.current_process().authkey)


def _after_fork() -> None:
    global _lock, _sharer
    _lock, _sharer = threading.Lock(), None
    _sources.clear()


def sharer() -> Sharer:
    global _sharer
    with _lock:
        if _sharer is None:
            _sharer = Sharer()
        return _sharer


def source(address: str) -> Source:
    with _lock:
        if address not in _sources:
            _sources[address] = Source(address)
        return _sources[address]


def send(storage: torch.UntypedStorage) -> tuple[Any, ...]:
    """The message from which another process makes the same storage."""
    index = storage.device.index
    if storage.nbytes() == 0:
        return (index, 0)
    # The receiver doesn't know this process's streams. Nor does the sending thread, which may be a queue's.
    torch.accelerator.synchronize(index)
    handle, offset = c().share_storage(storage)
    mine = sharer()
    return (index, storage.nbytes(), handle, offset, mine.address, mine.keep(storage))


def receive(index: int, bytes: int, handle: bytes = b"", offset: int = 0, address: str = "", ticket: int = 0) -> Any:
    """The storage of a message of :func:`send`."""
    if bytes == 0:
        return torch.empty(0, device=torch.device(name(), index)).untyped_storage()
    if _sharer is not None and _sharer.address == address:
        kept = _sharer.storages.pop(ticket, None)
        if kept is None:
            raise RuntimeError("a shared tensor is received once, and this one was before")
        return kept
    process = address.split("-")[2]
    try:
        of = source(address)
        there = of.take(ticket)
    except (OSError, EOFError) as error:
        raise RuntimeError(f"process {process}, which shared a tensor, has ended: its memory is gone") from error
    if not there:
        raise RuntimeError(f"process {process} has shared a tensor that was received before, and dropped")
    try:
        return c().open_storage(index, handle, offset, bytes, lambda: of.drop(ticket))
    except BaseException:
        of.drop(ticket)
        raise


def _reduce_storage(storage: torch.UntypedStorage) -> Any:
    if storage.device.type != name():
        return _pytorch_reduce["storage"](storage)
    return receive, send(storage)


def _reduce_tensor(tensor: torch.Tensor) -> Any:
    if tensor.device.type != name() or tensor.layout != torch.strided:
        return _pytorch_reduce["tensor"](tensor)
    if tensor.requires_grad and not tensor.is_leaf:
        return _pytorch_reduce["tensor"](tensor)  # PyTorch's function, which refuses the tensor
    torch.utils.hooks.warn_if_has_hooks(tensor)
    form = (tensor.dtype, tensor.storage_offset(), tuple(tensor.size()), tensor.stride(), tensor.requires_grad)
    return _rebuild_tensor, (isinstance(tensor, torch.nn.Parameter), form, send(tensor.untyped_storage()))


def _rebuild_tensor(parameter: bool, form: tuple[Any, ...], storage: tuple[Any, ...]) -> torch.Tensor:
    dtype, offset, size, stride, requires_grad = form
    t = torch.empty(0, dtype=dtype, device=torch.device(name(), storage[0]))
    t.set_(receive(*storage), offset, size, stride)
    if parameter:
        return torch.nn.Parameter(t, requires_grad)
    return t.requires_grad_(requires_grad)


_pytorch_reduce: dict[str, Any] = {}


def register() -> None:
    """Let ``torch.multiprocessing`` send tensors of the device."""
    from torch.multiprocessing import reductions

    _pytorch_reduce.update(tensor=reductions.reduce_tensor, storage=reductions.reduce_storage)
    for kind in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, _reduce_tensor)
    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)


os.register_at_fork(after_in_child=_after_fork)
