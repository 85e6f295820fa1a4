"""Tensors of another device, in groups like ``cpu:chorus,cuda:nccl``: every call of PyTorch reaches the other backend.

There is no GPU here. A tensor that claims to be on one wraps a tensor of the CPU. The calls that reach PyTorch's
dispatcher run on the wrapped tensor: by Gloo, which is the group's backend of that device. So results are Gloo's, and
are compared with those of a group of Gloo alone. Tensors on ``meta`` are real ones, and have no elements.
"""

import datetime
import inspect
import warnings

import pytest
import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg
from torch.utils._pytree import tree_map_only

import chorus

XPU, MAX, MINUTE = torch.device("xpu"), dist.ReduceOp.MAX, datetime.timedelta(minutes=1)
# Calls of the dispatcher with a tensor of the other device: the operation and its arguments by name.
_reached = []
_stand_ins = {}


class Elsewhere(torch.Tensor):
    """A tensor that claims to be on a GPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, carried):
        self = torch.Tensor._make_wrapper_subclass(cls, carried.shape, dtype=carried.dtype, device="xpu:0")
        self.carried = carried
        return self

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args = tree_map_only(Elsewhere, lambda t: t.carried, args)
        if func.namespace != "c10d":
            return tree_map_only(torch.Tensor, Elsewhere, func(*args, **kwargs or {}))
        names = [a.name for a in func._schema.arguments]
        _reached.append((func._schema.name.removeprefix("c10d::"), dict(zip(names, args, strict=False))))
        at = names.index("process_group")
        return func(*args[:at], _stand_in(dist.ProcessGroup.unbox(args[at])), *args[at + 1 :], **kwargs or {})


def _stand_in(group):
    """A group whose backend of the CPU is the GPU's backend of the group that PyTorch was given."""
    backend = group._get_backend(XPU)
    if backend not in _stand_ins:
        _stand_ins[backend] = other = dist.ProcessGroup(group.rank(), group.size())
        other._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, backend)
    return _stand_ins[backend].boxed()


class Case:
    """One call on a group of two ranks: makes its tensors, and keeps those that the call fills."""

    def __init__(self, group, on, how):
        self.group, self.how, self.rank, self.peer = group, how, group.rank(), 1 - group.rank()
        self.on = on
        self.filled = []

    def full(self, *shape):
        """A tensor with elements of this rank's own."""
        n = torch.Size(shape).numel()
        return self.on(torch.arange(float(n)).reshape(shape) + 10 * self.rank)

    def empty(self, *shape):
        """A tensor to be filled."""
        self.filled.append(self.on(torch.zeros(shape)))
        return self.filled[-1]

    def both(self, *shape):
        """A tensor with elements, to be changed."""
        self.filled.append(self.full(*shape))
        return self.filled[-1]


def _swap(c, send, recv, message, room):
    """A send and a receive: one rank sends first, the other one receives first."""
    order = [(send, message), (recv, room)] if c.rank == 0 else [(recv, room), (send, message)]
    for call, tensor in order:
        to = {"group_dst": c.peer} if call is send else {}
        done = call(tensor, group=c.group, tag=5, **to)
        if isinstance(done, dist.Work):
            done.wait()
            if call is recv:
                c.filled.append(torch.tensor(done._source_rank()))
        elif call is recv:
            c.filled.append(torch.tensor(done))


def _batch(c):
    ops = [
        dist.P2POp(dist.isend, c.full(3), group=c.group, group_peer=c.peer),
        dist.P2POp(dist.irecv, c.empty(3), group=c.group, group_peer=c.peer),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


# A call of each function of torch.distributed that takes tensors.
CALLS = {
    "all_gather": lambda c: dist.all_gather([c.empty(3), c.empty(3)], c.full(3), c.group, **c.how),
    "all_gather_coalesced": lambda c: dist.all_gather_coalesced(
        [[c.empty(3)], [c.empty(3)]], [c.full(3)], c.group, **c.how
    ),
    "all_gather_into_tensor": lambda c: dist.all_gather_into_tensor(c.empty(6), c.full(3), c.group, **c.how),
    "all_gather_single": lambda c: dist.all_gather_single(c.empty(6), c.full(3), c.group, **c.how),
    "all_reduce": lambda c: dist.all_reduce(c.both(3), MAX, c.group, **c.how),
    "all_reduce_coalesced": lambda c: dist.all_reduce_coalesced([c.both(3), c.both(2)], MAX, c.group, **c.how),
    "all_to_all": lambda c: dist.all_to_all([c.empty(3), c.empty(3)], [c.full(3), c.full(3)], c.group, **c.how),
    "all_to_all_single": lambda c: dist.all_to_all_single(
        c.empty(2 * (1 + c.rank)), c.full(3), [1 + c.rank] * 2, [1, 2], c.group, **c.how
    ),
    "batch_isend_irecv": _batch,
    "broadcast": lambda c: dist.broadcast(c.both(3), group=c.group, group_src=1, **c.how),
    "gather": lambda c: dist.gather(
        c.full(3), [c.empty(3), c.empty(3)] if c.rank else None, group=c.group, group_dst=1, **c.how
    ),
    "irecv": lambda c: _swap(c, dist.isend, dist.irecv, c.full(3), c.empty(3)),
    "isend": lambda c: _swap(c, dist.isend, dist.recv, c.full(3), c.empty(3)),
    "recv": lambda c: _swap(c, dist.send, dist.recv, c.full(3), c.empty(3)),
    "reduce": lambda c: dist.reduce(c.both(3) if c.rank else c.full(3), op=MAX, group=c.group, group_dst=1, **c.how),
    "reduce_scatter": lambda c: dist.reduce_scatter(c.empty(3), [c.full(3), c.full(3)], MAX, c.group, **c.how),
    "reduce_scatter_single": lambda c: dist.reduce_scatter_single(c.empty(3), c.full(6), MAX, c.group, **c.how),
    "reduce_scatter_tensor": lambda c: dist.reduce_scatter_tensor(c.empty(3), c.full(6), MAX, c.group, **c.how),
    "scatter": lambda c: dist.scatter(
        c.empty(3), [c.full(3), c.full(3)] if c.rank else None, group=c.group, group_src=1, **c.how
    ),
    "send": lambda c: _swap(c, dist.send, dist.irecv, c.full(3), c.empty(3)),
}

# The functions that move Python objects, by default in tensors on the CPU.
OBJECTS = {
    "all_gather_object": lambda c, out: dist.all_gather_object(out, {"from": c.rank}, c.group),
    "broadcast_object_list": lambda c, out: dist.broadcast_object_list(
        _given(out, ["x", c.rank]), group=c.group, group_src=1
    ),
    "gather_object": lambda c, out: dist.gather_object(
        {"from": c.rank}, out if c.rank else None, group=c.group, group_dst=1
    ),
    "recv_object_list": lambda c, out: _pass_on(c, out),
    "scatter_object_list": lambda c, out: dist.scatter_object_list(
        out, ["x", "y"] if c.rank else None, group=c.group, group_src=1
    ),
    "send_object_list": lambda c, out: _pass_on(c, out),
}


def _given(out, values):
    out[:] = values
    return out


def _pass_on(c, out):
    if c.rank == 0:
        dist.send_object_list(["x", 3], group=c.group, group_dst=1)
    else:
        out[:] = [dist.recv_object_list(out, group=c.group, group_src=0), *out]


# The functions that take no tensors and move no data; and those that Gloo doesn't support.
OTHERS = """
    barrier breakpoint destroy_process_group gather_into_tensor gather_single get_backend get_backend_config
    get_backend_impl get_debug_level get_default_backend_for_device get_global_rank get_group_rank
    get_node_local_rank get_pg_count get_process_group_ranks get_rank get_world_size init_device_mesh
    init_process_group is_available is_backend_available is_gloo_available is_initialized is_mpi_available
    is_nccl_available is_torchelastic_launched is_ucc_available is_xccl_available monitored_barrier new_group
    new_subgroups new_subgroups_by_enumeration record_comm register_rendezvous_handler rendezvous set_debug_level
    set_debug_level_from_env set_timeout shrink_group split_group supports_complex
""".split()

# A call of each method of a group that takes tensors; PyTorch's C++ calls them under their older names as well.
METHODS = {
    "_allgather_base": lambda c: c.group._allgather_base(c.empty(6), c.full(3)),
    "_reduce_scatter_base": lambda c: c.group._reduce_scatter_base(c.empty(3), c.full(6)),
    "all_gather_single": lambda c: c.group.all_gather_single(c.empty(6), c.full(3)),
    "all_gather_single_coalesced": lambda c: c.group.all_gather_single_coalesced([c.empty(6)], [c.full(3)]),
    "all_to_all_single": lambda c: c.group.all_to_all_single(c.empty(4), c.full(4), [], []),
    "allgather": lambda c: c.group.allgather([[c.empty(3), c.empty(3)]], [c.full(3)]),
    "allgather_coalesced": lambda c: c.group.allgather_coalesced([[c.empty(3)], [c.empty(3)]], [c.full(3)]),
    "allgather_into_tensor_coalesced": lambda c: c.group.allgather_into_tensor_coalesced([c.empty(6)], [c.full(3)]),
    "allreduce": lambda c: c.group.allreduce(c.both(3), MAX, MINUTE),
    "allreduce_coalesced": lambda c: c.group.allreduce_coalesced([c.both(3), c.both(2)]),
    "alltoall": lambda c: c.group.alltoall([c.empty(3), c.empty(3)], [c.full(3), c.full(3)]),
    "alltoall_base": lambda c: c.group.alltoall_base(c.empty(4), c.full(4), [], []),
    "broadcast": lambda c: c.group.broadcast(c.both(3), 1),
    "gather": lambda c: c.group.gather([[c.empty(3), c.empty(3)]] if c.rank == 0 else [], [c.full(3)]),
    "reduce": lambda c: c.group.reduce(c.both(3) if c.rank else c.full(3), 1, MAX),
    "reduce_scatter": lambda c: c.group.reduce_scatter([c.empty(3)], [[c.full(3), c.full(3)]]),
    "reduce_scatter_single": lambda c: c.group.reduce_scatter_single(c.empty(3), c.full(6)),
    "reduce_scatter_single_coalesced": lambda c: c.group.reduce_scatter_single_coalesced([c.empty(3)], [c.full(6)]),
    "reduce_scatter_tensor_coalesced": lambda c: c.group.reduce_scatter_tensor_coalesced([c.empty(3)], [c.full(6)]),
    "scatter": lambda c: c.group.scatter([c.empty(3)], [[c.full(3), c.full(3)]] if c.rank == 0 else []),
    "send": lambda c: c.group.send([c.full(3)], 1, 3) if c.rank == 0 else c.group.recv([c.empty(3)], 0, 3),
    "recv": lambda c: c.group.recv([c.empty(3)], 0, 0) if c.rank else c.group.send([c.full(3)], 1, 0),
    "recv_anysource": lambda c: c.group.recv_anysource([c.empty(3)], 0) if c.rank else c.group.send([c.full(3)], 1, 0),
}
OTHER_METHODS = """
    BackendType CUSTOM GLOO MPI NCCL UCC UNDEFINED XCCL abort barrier bound_device_id boxed gather_into_tensor
    gather_single get_backend get_group_store get_reconfigure_handle group_desc group_name merge_remote_group
    monitored_barrier name new_window rank reconfigure register_abort_hook register_post_hook register_pre_hook
    set_timeout shutdown size split_group supports_abort_hooks supports_completion_hooks supports_reconfigure
    supports_window unbox unregister_abort_hook unregister_post_hook unregister_pre_hook
    use_pg_for_symm_mem_rendezvous
""".split()


def functions():
    """The names of torch.distributed's public functions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that are deprecated
        every = {*dir(dist), *dist.distributed_c10d.__all__}
        return sorted(n for n in every if n[0] != "_" and inspect.isroutine(getattr(dist, n, None)))


def methods():
    """The names of the public methods of PyTorch's groups, and the older names that C++ calls."""
    return sorted(n for n in dir(dist.ProcessGroup) if n[0] != "_" or n.endswith("_base"))


def test_every_function_is_known():
    unknown = [n for n in functions() if n not in {*CALLS, *OBJECTS, *OTHERS}]
    assert not unknown, f"torch.distributed has functions that this file doesn't call with tensors of another device: {unknown}"  # noqa: E501
    unknown = [n for n in methods() if n not in {*METHODS, *OTHER_METHODS}]
    assert not unknown, f"torch.distributed.ProcessGroup has methods that this file doesn't call with tensors of another device: {unknown}"  # noqa: E501


def _group(backend, made={}):  # noqa: B006 (one of each for all tests of a process)
    if backend not in made:
        made[backend] = dist.new_group(backend=backend)
    return made[backend]


def _ways(name):
    """Synchronous, and asynchronous if there is a choice."""
    choice = name in CALLS and "async_op" in inspect.signature(getattr(dist, name)).parameters
    return [{}, {"async_op": True}] if choice else [{}]


def _run(call, group, on, how):
    case = Case(group, on, how)
    work = call(case)
    if how or isinstance(work, dist.Work):
        work.wait()
    return case.filled


def _reaches_the_other(peers, name, call):
    mixed = _group("cpu:chorus,xpu:gloo")
    issued = mixed.comm.issued
    for how in _ways(name):
        _reached.clear()
        ours = _run(call, mixed, Elsewhere, how)
        theirs = _run(call, peers.gloo, lambda t: t, how)
        assert [getattr(t, "carried", t).tolist() for t in ours] == [t.tolist() for t in theirs], f"{name}, {how}"
        for op, given in _reached:
            assert given["process_group"] is not None
            if name in CALLS and "async_op" in given:
                assert given["async_op"] == bool(how), op
        assert _reached, f"{name} has reached no backend of the GPU"
    assert mixed.comm.issued == issued, f"{name} has reached that of the CPU"


@pytest.mark.parametrize("name", [n for n in functions() if n in CALLS])
def test_function(pair, name):
    pair.run(_reaches_the_other_by_name, "CALLS", name)


@pytest.mark.parametrize("name", [n for n in methods() if n in METHODS])
def test_method(pair, name):
    pair.run(_reaches_the_other_by_name, "METHODS", name)


def _reaches_the_other_by_name(peers, table, name):
    _reaches_the_other(peers, name, globals()[table][name])


def _outcome(call, group, on, how):
    try:
        return [t.shape for t in _run(call, group, on, how)]
    except Exception as error:
        return type(error), str(error)


def _without_elements(peers, table, name):
    """Tensors on ``meta``, of the plain type, have the same results as in a group without this package."""
    ours, theirs = _group("cpu:chorus,meta:fake"), _group("cpu:gloo,meta:fake")
    issued = ours.comm.issued
    for how in _ways(name):
        one, other = (_outcome(globals()[table][name], group, lambda t: t.to("meta"), how) for group in (ours, theirs))
        assert one == other
    assert ours.comm.issued == issued


@pytest.mark.parametrize("table", ["CALLS", "METHODS"])
def test_meta(pair, table):
    for name in {"CALLS": functions, "METHODS": methods}[table]():
        if name in globals()[table]:
            pair.run(_without_elements, table, name)


def _objects(peers, name):
    ours, theirs = [None, None], [None, None]
    OBJECTS[name](Case(_group("cpu:chorus,xpu:gloo"), None, {}), ours)
    OBJECTS[name](Case(peers.gloo, None, {}), theirs)
    assert ours == theirs


def test_objects(pair):
    for name in OBJECTS:
        pair.run(_objects, name)


def _group_itself(peers):
    """Calls without tensors reach both backends, or are refused with a clear error."""
    group = dist.new_group(backend="cpu:chorus,xpu:gloo,meta:fake", timeout=MINUTE)
    comm, issued = group.comm, group.comm.issued
    dist.barrier(group)
    dist.barrier(group, device_ids=[0])  # a device of this machine's accelerator, which is the CPU
    assert comm.issued == issued + 2
    opts = dist.BarrierOptions()
    opts.device = torch.device("meta", 0)
    group.barrier(opts)
    assert comm.issued == issued + 2, "a barrier of another device"
    _group("cpu:chorus,xpu:gloo").set_timeout(MINUTE)
    if not hasattr(dist, "gather_single"):  # before PyTorch 2.15
        with pytest.raises(RuntimeError, match="fake does not support"):
            group.set_timeout(MINUTE)
    for call in (group.split_group, group.shrink):
        with pytest.raises(chorus.UnsupportedError, match="several devices"):
            call([0, 1])
    other = group._get_backend(XPU)
    assert other.name() == "gloo" and group._get_backend(torch.device("cpu")) is group
    group._start_coalescing(torch.device("meta"))
    assert comm._batch is None
    group._end_coalescing(torch.device("meta"))
    with pytest.raises(RuntimeError, match="cuda"):
        group._get_backend(torch.device("cuda"))
    dist.destroy_process_group(group)
    with pytest.raises(RuntimeError, match="xpu"):
        dist.all_reduce(Elsewhere(torch.ones(1)))  # the world has a backend for the CPU alone


def test_group_itself(pair):
    pair.run(_group_itself)
