"""Ray's collective groups over Chorus: ``ray.util.collective``.

Ray knows the backend in a process that has called :func:`register`. Ray can call it in all workers::

    import chorus.ray

    chorus.ray.register()
    ray.init(runtime_env={"worker_process_setup_hook": "chorus.ray.register"})
    collective.create_collective_group(actors, 2, [0, 1], backend="chorus")

Tensors are PyTorch's, of any device that a group of the backend ``chorus`` serves, or arrays of NumPy. An error names
the rank that is lost or late.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import numpy as np
import ray
import torch
from ray.experimental import internal_kv
from ray.util.collective import backend_registry, types
from ray.util.collective.collective_group.base_collective_group import BaseGroup
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    BarrierOptions,
    BroadcastOptions,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    TCPStore,
)

from chorus import backend, errors

_NAMESPACE = "chorus"  # of the keys under which the ranks 0 of groups publish their stores
_LOOK = 0.05  # seconds between two looks for such a key
_REDUCTIONS = {
    types.ReduceOp.SUM: ReduceOp.SUM,
    types.ReduceOp.PRODUCT: ReduceOp.PRODUCT,
    types.ReduceOp.MIN: ReduceOp.MIN,
    types.ReduceOp.MAX: ReduceOp.MAX,
}


def register(timeout: timedelta = timedelta(minutes=10), hints: dict[str, Any] | None = None) -> None:
    """Make ``"chorus"`` a backend of Ray's collective groups in this process.

    The driver and each actor call it before they make or use a group. ``timeout`` is that of the groups' operations,
    and of the wait for the other ranks when a group is made. ``hints`` are those of ``pg_options``. A later call
    changes both for the groups made from then on.
    """
    ChorusGroup.timeout, ChorusGroup.hints = timeout, hints
    if not backend_registry._global_registry.is_registered(ChorusGroup.backend()):
        backend_registry.register_collective_backend(ChorusGroup.backend(), ChorusGroup)


class ChorusGroup(BaseGroup):
    """One rank's part in a group. Ray makes it, and calls its methods with each tensor in a list of its own.

    Its rank 0 serves the store on which the ranks meet, whose address it publishes in Ray's key-value store.
    """

    timeout = timedelta(minutes=10)
    hints: dict[str, Any] | None = None

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        super().__init__(world_size, rank, group_name)
        self._key = f"{ray.get_runtime_context().namespace}/{group_name}"
        deadline = time.monotonic() + self.timeout.total_seconds()
        self._store = self._serve() if rank == 0 else self._find(deadline)
        try:
            left = max(timedelta(seconds=deadline - time.monotonic()), timedelta(seconds=1))
            self._group = backend.make_group(self._store, rank, world_size, left, group_name, self.hints)
        finally:
            if rank == 0:
                internal_kv._internal_kv_del(self._key, namespace=_NAMESPACE)
        self._group.set_timeout(self.timeout)

    def _serve(self) -> TCPStore:
        host = ray.util.get_node_ip_address()
        store = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=self.timeout)
        internal_kv._internal_kv_put(self._key, f"{host} {store.port}", namespace=_NAMESPACE)
        return store

    def _find(self, deadline: float) -> TCPStore:
        why = "it hasn't begun to make the group"
        while time.monotonic() < deadline:
            value = internal_kv._internal_kv_get(self._key, namespace=_NAMESPACE)
            if value is not None:
                host, port = value.decode().split()
                try:  # an address that a rank 0 has left behind which has died refuses the connection
                    return TCPStore(host, int(port), is_master=False, timeout=timedelta(seconds=5))
                except RuntimeError as error:
                    why = f"its store: {str(error).splitlines()[0]}"
            time.sleep(_LOOK)
        seconds = self.timeout.total_seconds()
        raise errors.TimeoutError(
            f"chorus: rank {self.rank} of {self.group_name!r}: rank 0 is missing after {seconds:g} s: {why}",
            comm=self.group_name,
            reporter=self.rank,
            missing_ranks=(0,),
            elapsed=seconds,
            detail=why,
        )

    @classmethod
    def backend(cls) -> str:
        return "CHORUS"

    @classmethod
    def check_backend_availability(cls) -> bool:
        return torch.distributed.is_available()

    def destroy_group(self) -> None:
        """End this rank's part, after the operations issued before."""
        self._group.shutdown()

    def allreduce(self, tensor: list[Any], allreduce_options: Any = None) -> None:
        """Combine the ranks' tensors, in place."""
        options = AllreduceOptions()
        self._reduce_as(options, allreduce_options)
        self._group.allreduce([self._one(tensor, "allreduce", True)], options)

    def barrier(self, barrier_options: Any = None) -> None:
        """Wait until all ranks have come."""
        options = BarrierOptions()
        self._within(options, barrier_options)
        self._group.barrier(options)

    def reduce(self, tensor: list[Any], reduce_options: Any = None) -> None:
        """Combine the ranks' tensors into the root's; the others' are left as they are."""
        options = ReduceOptions()
        options.rootRank = getattr(reduce_options, "root_rank", 0)
        self._reduce_as(options, reduce_options)
        self._group.reduce([self._one(tensor, "reduce", options.rootRank == self.rank)], options)

    def allgather(self, tensor_list: list[list[Any]], tensor: list[Any], allgather_options: Any = None) -> None:
        """``tensor_list[0][r]`` becomes rank r's tensor."""
        options = AllgatherOptions()
        self._within(options, allgather_options)
        outputs = [self._tensor(t, "allgather", True) for t in self._only(tensor_list, "allgather")]
        self._group.allgather([outputs], [self._one(tensor, "allgather", False)], options)

    def broadcast(self, tensor: list[Any], broadcast_options: Any = None) -> None:
        """Copy the root's tensor to every rank."""
        options = BroadcastOptions()
        options.rootRank = getattr(broadcast_options, "root_rank", 0)
        self._within(options, broadcast_options)
        self._group.broadcast([self._one(tensor, "broadcast", options.rootRank != self.rank)], options)

    def reducescatter(self, tensor: list[Any], tensor_list: list[list[Any]], reducescatter_options: Any = None) -> None:
        """The tensor becomes the combination of all ``tensor_list[0][rank]``, which are left as they are."""
        options = ReduceScatterOptions()
        self._reduce_as(options, reducescatter_options)
        inputs = [self._tensor(t, "reducescatter", False) for t in self._only(tensor_list, "reducescatter")]
        self._group.reduce_scatter([self._one(tensor, "reducescatter", True)], [inputs], options)

    def send(self, tensor: list[Any], send_options: Any) -> None:
        """Send a tensor to the rank ``send_options.dst_rank``."""
        self._group.send([self._one(tensor, "send", False)], send_options.dst_rank, 0).wait()

    def recv(self, tensor: list[Any], recv_options: Any) -> None:
        """Receive a tensor from the rank ``recv_options.src_rank``."""
        self._group.recv([self._one(tensor, "recv", True)], recv_options.src_rank, 0).wait()

    def _reduce_as(self, options: Any, given: Any) -> None:
        options.reduceOp = _REDUCTIONS[getattr(given, "reduceOp", types.ReduceOp.SUM)]
        self._within(options, given)

    def _within(self, options: Any, given: Any) -> None:
        """Make a call synchronous, with the timeout of Ray's options if they have one."""
        options.asyncOp = False
        timeout = getattr(given, "timeout_ms", types.unset_timeout_ms)
        if timeout > timedelta(0):
            options.timeout = timeout

    def _only(self, given: list[Any], op: str) -> Any:
        """The element of a list of one: Ray's calls for several GPUs of a process pass more."""
        if len(given) != 1:
            raise self._group.comm.invalid(op, f"a rank has one tensor, not {len(given)}")
        return given[0]

    def _one(self, given: list[Any], op: str, filled: bool) -> torch.Tensor:
        return self._tensor(self._only(given, op), op, filled)

    def _tensor(self, given: Any, op: str, filled: bool) -> torch.Tensor:
        """A tensor in the memory of what the program has passed. ``filled``: the operation writes there."""
        if isinstance(given, torch.Tensor):
            return given
        if not isinstance(given, np.ndarray):
            kind = type(given).__name__
            raise self._group.comm.invalid(op, f"takes tensors of PyTorch and arrays of NumPy, not {kind}")
        if not given.flags.writeable:
            if filled:
                raise self._group.comm.invalid(op, "the array is read-only, as those that Ray's object store keeps are")
            given = given.copy()
        return torch.from_numpy(given)
