"""A store of PyTorch, used as it is, for the library.

The library calls the callbacks from its own threads, while the thread that makes
a communicator waits without the GIL. It calls none of them after the communicator
is made.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore

from chorus import _lib
from chorus.errors import AbortedError, InternalError, PeerLostError, check

_OK, _TIMEOUT, _INTERNAL, _LOST = (int(_lib.Status[s]) for s in ("OK", "TIMEOUT", "INTERNAL", "PEER_LOST"))


GONE = (dist.DistNetworkError, ConnectionError)  # raised by a store whose server is gone


def _host_lost(store: Any, why: BaseException) -> PeerLostError:
    """The exception for a store whose server is gone."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    at = f" at {store.host}:{store.port}" if isinstance(store, TCPStore) else ""
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    host = "the launcher" if agent else "rank 0 of the world"
    detail = f"the store{at}, which {host} serves, is gone ({str(why).splitlines()[0]}); no group can be made any more"
    rank = -1 if agent else 0
    return PeerLostError(
        f"chorus: {host} is lost: {detail}", peer=rank, missing_ranks=() if agent else (rank,), detail=detail
    )


@contextlib.contextmanager
def asking(store: Store) -> Iterator[None]:
    """A context for requests to a store; raises PeerLostError if its server is gone."""
    try:
        yield
    except GONE as error:
        raise _host_lost(store, error) from error


def _look(store: Store) -> BaseException | None:
    """The error of a store whose server is gone; None if the server is there, or doesn't answer soon."""
    found: list[BaseException] = []

    def ask() -> None:
        try:
            store.check(["joined"])
        except GONE as error:
            found.append(error)
        except RuntimeError:  # there are stores that can't look
            pass

    asked = threading.Thread(target=ask, daemon=True)
    asked.start()
    asked.join(0.5)
    return found[0] if found else None


class _Bridge:
    """One store and its callbacks."""

    def __init__(self, store: Store, used: set[str]) -> None:
        self.store: Any = store  # PyTorch's stubs don't know that values may be bytes
        self.used = used  # the keys that were asked for
        self.gone: BaseException | None = None  # the store's error, if its server is gone
        self.callbacks = _lib.StoreCallbacks(
            size=ctypes.sizeof(_lib.StoreCallbacks),
            set=_lib.SET_FN(self._set),
            get=_lib.GET_FN(self._get),
            add=_lib.ADD_FN(self._add),
            wait=_lib.WAIT_FN(self._wait),
            check=_lib.CHECK_FN(self._check),
            compare_set=_lib.COMPARE_SET_FN(self._compare_set),
            remove=_lib.REMOVE_FN(self._remove),
            num_keys=_lib.NUM_KEYS_FN(self._num_keys),
            released=_lib.RELEASED_FN(self._released),
        )

    def _answer(self, reply: int, timeout_ns: int, call: Callable[[], object]) -> int:
        """Run a call on the store and turn its exception into a status."""
        deadline = time.monotonic() + timeout_ns / 1e9
        try:
            call()
        except TimeoutError:
            return _TIMEOUT
        except BaseException as error:  # an exception can't cross the library
            if isinstance(error, GONE):
                self.gone = error
            # Only the text of PyTorch's exception tells a timeout from other failures; FileStore's is a RuntimeError.
            if isinstance(error, RuntimeError) and timeout_ns and time.monotonic() >= deadline - 0.01:
                return _TIMEOUT
            _lib.library.chorus_reply_error(reply, f"{type(error).__name__}: {error}".encode())
            return _LOST if isinstance(error, GONE) else _INTERNAL
        return _OK

    def _set(self, _: Any, key: bytes, value: int, n: int, reply: int) -> int:
        data = ctypes.string_at(value, n) if n else b""
        self.used.add(name := key.decode())
        return self._answer(reply, 0, lambda: self.store.set(name, data))

    def _get(self, _: Any, key: bytes, timeout_ns: int, reply: int) -> int:
        def call() -> None:
            self.used.add(name := key.decode())
            self._await([name], timeout_ns)
            value = self.store.get(name)
            _lib.library.chorus_reply_value(reply, value, len(value))

        return self._answer(reply, timeout_ns, call)

    def _add(self, _: Any, key: bytes, delta: int, total: Any, reply: int) -> int:
        def call() -> None:
            self.used.add(name := key.decode())
            total[0] = self.store.add(name, delta)

        return self._answer(reply, 0, call)

    def _wait(self, _: Any, keys: Any, n: int, timeout_ns: int, reply: int) -> int:
        names = [keys[i].decode() for i in range(n)]
        return self._answer(reply, timeout_ns, lambda: self._await(names, timeout_ns))

    def _await(self, names: list[str], timeout_ns: int) -> None:
        """Wait for keys, as long as the library says. The library waits in short turns, to notice a peer's failure.

        It avoids ``wait`` if it can: PyTorch's TCPStore prints a warning if that times out.
        """
        began = time.monotonic()
        while True:
            try:
                if self.store.check(names):
                    return
            except RuntimeError:  # there are stores that can't look
                self.store.wait(names, timedelta(milliseconds=max(1, timeout_ns // 1_000_000)))
                return
            waited = time.monotonic() - began
            left = timeout_ns / 1e9 - waited
            if left <= 0:
                raise TimeoutError
            time.sleep(min(max(waited, 0.0005), 0.05, left))

    def _check(self, _: Any, keys: Any, n: int, every: Any, reply: int) -> int:
        def call() -> None:
            every[0] = int(self.store.check([keys[i].decode() for i in range(n)]))

        return self._answer(reply, 0, call)

    def _compare_set(self, _: Any, key: bytes, old: int, n_old: int, new: int, n_new: int, reply: int) -> int:
        def call() -> None:
            expected = ctypes.string_at(old, n_old) if n_old else b""
            desired = ctypes.string_at(new, n_new) if n_new else b""
            self.used.add(name := key.decode())
            value = self.store.compare_set(name, expected, desired)
            _lib.library.chorus_reply_value(reply, value, len(value))

        return self._answer(reply, 0, call)

    def _remove(self, _: Any, key: bytes, existed: Any, reply: int) -> int:
        def call() -> None:
            existed[0] = int(self.store.delete_key(key.decode()))

        return self._answer(reply, 0, call)

    def _num_keys(self, _: Any, count: Any, reply: int) -> int:
        def call() -> None:
            count[0] = self.store.num_keys()

        return self._answer(reply, 0, call)

    def _released(self, user: int) -> None:
        with _lock:
            _bridges.pop(user, None)
        # The callbacks, one of which this is, keep the bridge alive in a cycle. The store may be a server, so it must
        # not wait for the garbage collector.
        self.store = None


# The bridges that the library may still call, by the number that it passes back.
_bridges: dict[int, _Bridge] = {}
_numbers = itertools.count(1)
_lock = threading.Lock()


def forget(store: Any, used: set[str], size: int) -> None:
    """Delete from a store the keys by which the ranks of a group have met, once all ranks have read them. Rank 0 does
    so: it knows all keys except the other ranks' claims, and what they have brought. The counter stays, for the next
    group of the name."""
    ready = next((key for key in used if key.endswith("/ready")), None)
    if ready is None or store.add(ready, 0) != size:
        return
    room = ready.removesuffix("ready")
    places = [key.removesuffix("claim/0") for key in used if key.endswith("claim/0")]
    others = [f"{place}{kind}{r}" for place in places for kind in ("claim/", "") for r in range(1, size)]
    for key in (*used, *others, f"{room}all_ready"):
        if key.startswith(room):
            store.delete_key(key)


@contextlib.contextmanager
def opened(store: Store | None, used: set[str] | None = None) -> Iterator[int]:
    """The library's handle of a store of PyTorch for the time of a ``with``; 0 for None. The keys that the library
    reads are added to ``used``."""
    if store is None:
        yield 0
        return
    bridge = _Bridge(store, set() if used is None else used)
    with _lock:
        bridge.callbacks.user = number = next(_numbers)
        _bridges[number] = bridge
    handle = ctypes.c_uint64()
    try:
        check(_lib.library.chorus_store_from_callbacks(ctypes.byref(bridge.callbacks), ctypes.byref(handle)))
    except BaseException:
        with _lock:
            _bridges.pop(number, None)
        raise
    try:
        yield handle.value
    except InternalError as error:  # the library's error for a store's failure
        if bridge.gone is None:
            raise
        raise _host_lost(store, bridge.gone) from error
    except (PeerLostError, AbortedError) as error:  # by a rank that may have lost its store
        if (gone := bridge.gone or _look(store)) is None:
            raise
        raise _host_lost(store, gone) from error
    finally:
        _lib.library.chorus_store_release(handle)
