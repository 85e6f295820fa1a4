"""torchcomms' _BackendWrapper: communicators as backends of PyTorch's own process groups."""

import datetime
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from calls import CALLS, values
from torch._C._distributed_c10d import Backend

import chorus
from chorus import torchcomms
from chorus._pytorch_groups import adopt
from chorus.torchcomms import _backend_wrapper, _comms, hooks

CPU = torch.device("cpu")
CUSTOM = dist.ProcessGroup.BackendType.CUSTOM
_names = iter(range(10**6))

needs_it = pytest.mark.skipif(bool(_backend_wrapper.MISSING), reason=_backend_wrapper.MISSING)


def _group(comm, store, *devices):
    """A process group of PyTorch over a communicator, registered with torch.distributed."""
    wrapper = _comms._BackendWrapper(comm)
    group = dist.ProcessGroup(store, comm.get_rank(), comm.get_size())
    group._set_default_backend(CUSTOM)
    for device in devices or (CPU,):
        group._register_backend(device, CUSTOM, wrapper)
    group._set_group_name(comm.get_name())
    adopt(group, comm.get_name(), list(range(comm.get_size())), store)
    return group


def join(peers, **options):
    store = dist.PrefixStore("wrapper", dist.TCPStore("127.0.0.1", peers.port, peers.size, False))
    comm = torchcomms.new_comm(
        "gloo", CPU, f"wrapper{next(_names)}", store=store, rank=peers.rank, world_size=peers.size, **options
    )
    return _group(comm, store)


@pytest.fixture
def comm():
    comm = torchcomms.new_comm("gloo", CPU, f"wrapped{next(_names)}", rank=0, world_size=1)
    yield comm
    if not comm._ended():
        comm.finalize()


@needs_it
def test_is_a_backend(comm):
    wrapper = _comms._BackendWrapper(comm)
    assert isinstance(wrapper, Backend) and not isinstance(wrapper, dist.ProcessGroup)
    assert (wrapper.rank(), wrapper.size(), wrapper.name()) == (0, 1, "gloo")
    assert wrapper.get_comm() is comm and wrapper.supports_splitting and wrapper.supports_coalescing
    wrapper._set_default_timeout(datetime.timedelta(seconds=7))
    assert comm.get_options().timeout == wrapper.options._timeout == datetime.timedelta(seconds=7)
    group = dist.ProcessGroup(dist.HashStore(), 0, 1)
    group._register_backend(CPU, CUSTOM, wrapper)
    del wrapper  # the group has it
    again = group._get_backend(CPU)
    assert type(again) is _comms._BackendWrapper and again.get_comm() is comm
    again.shutdown()
    again.shutdown()
    with pytest.raises(chorus.FinalizedError):
        comm.barrier(async_op=False)
    torchcomms.register_backend("wrapped_py", type("Mine", (torchcomms.TorchCommBackend,), {"init": lambda *_: None,
        "get_rank": lambda _: 0, "get_size": lambda _: 1, "get_comm_name": lambda _: "x"}))  # fmt: skip
    python = torchcomms.new_comm("wrapped_py", CPU, "x")
    python._finalized = True
    with pytest.raises(TypeError, match="can't be a process group"):
        _comms._BackendWrapper(python)


@needs_it
def test_hooks_and_works(comm):
    group, seen = _group(comm, dist.HashStore()), []
    comm.register_pre_hook(lambda op, op_id, args: seen.append((op, op_id)))
    comm.register_post_hook(lambda op_id, args: seen.append(op_id))
    x = torch.ones(10)
    work = group.allreduce([x])
    assert work.wait() and work.is_completed() and work.is_success() and work.exception() is None
    assert work.get_future().wait()[0] is not None and work.get_future_result().wait() == 0
    group.broadcast(x, root=0).wait(datetime.timedelta(seconds=9))
    group.barrier().wait()
    names = [entry[0] for entry in seen[::2]]
    assert names == [torchcomms.OpName.all_reduce, torchcomms.OpName.broadcast, torchcomms.OpName.barrier]
    assert [entry[1] for entry in seen[::2]] == seen[1::2]
    at_once = dist.AllreduceOptions()
    at_once.asyncOp = False
    done = group.allreduce([x], at_once)
    assert done.is_completed() and done.wait() and done.get_future().value()[0].equal(x)
    with pytest.raises(chorus.InvalidArgumentError, match="share memory"):
        group.allreduce([torch.ones(3).expand(4, 3)])
    recorder = hooks.FlightRecorderHook(max_entries=0)
    recorder.register_with_comm(comm)
    assert recorder.members() == [comm] and recorder.size() == 0
    dist.destroy_process_group(group)
    assert comm._ended()


def _calls(peers):
    group = join(peers)
    for name, call in CALLS.items():
        for async_op in (False, True):
            results = []
            for of in (group, peers.gloo):
                work, out = call(
                    lambda which, shape: values(peers.rank, shape, torch.float32, which),
                    peers.size, peers.rank, group=of, async_op=async_op,
                )  # fmt: skip
                if work is not None:
                    work.wait()
                if name != "reduce" or peers.rank == 1:  # Gloo leaves undefined results on ranks other than the root
                    results.append(out)
            for ours, theirs in zip(*results, strict=True) if results else ():
                torch.testing.assert_close(ours, theirs, msg=lambda text, name=name: f"{name}: {text}")
    objects = [None] * peers.size
    dist.all_gather_object(objects, peers.rank, group=group)
    assert objects == list(range(peers.size))
    got, other = torch.zeros(3), 1 - peers.rank
    ops = [dist.P2POp(dist.isend, torch.full((3,), float(peers.rank)), other, group),
           dist.P2POp(dist.irecv, got, other, group)]  # fmt: skip
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert got.tolist() == [float(other)] * 3
    work = dist.irecv(got, group=group, tag=3)  # from any rank
    dist.isend(torch.ones(3), other, group=group, tag=3).wait()
    work.wait()
    assert work._source_rank() == other
    backend = group._get_backend(CPU)
    group.monitored_barrier()
    assert backend._get_sequence_number_for_group() > 0
    part = group.split_group([0, 1], group_name="both")
    x = torch.ones(2)
    part.allreduce([x]).wait()
    assert x.tolist() == [2.0] * 2 and part.size() == 2
    part._get_backend(CPU).get_comm().finalize()
    dist.destroy_process_group(group)


@needs_it
def test_calls(pair):
    pair.run(_calls)


def _ddp(peers, hook):
    group = join(peers)
    grads = []
    for of in (group, peers.gloo):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
        ddp = torch.nn.parallel.DistributedDataParallel(model, process_group=of)
        if hook:
            ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
        ddp(torch.full((2, 4), peers.rank + 1.0)).square().sum().backward()
        grads.append([p.grad for p in model.parameters()])
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs)
    dist.destroy_process_group(group)


@needs_it
@pytest.mark.parametrize("hook", [False, True], ids=["plain", "fp16"])
def test_ddp(pair, hook):
    pair.run(_ddp, hook)


def _failures(peers):
    group = join(peers)
    dist.barrier()
    if peers.rank == 0:
        group.set_timeout(datetime.timedelta(seconds=0.2))
        work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
        with pytest.raises(chorus.TimeoutError) as failed:
            work.wait()
        assert failed.value.missing_ranks == (1,)
        assert work.is_completed() and not work.is_success() and isinstance(work.exception(), chorus.TimeoutError)
        with pytest.raises(chorus.TimeoutError):
            work.get_future().wait()
        assert work.get_future_result().wait() == 1
    dist.barrier()
    group.abort()
    with pytest.raises(chorus.Error):
        dist.all_reduce(torch.ones(3), group=group)
    dist.destroy_process_group(group)


@needs_it
def test_failures(pair):
    pair.run(_failures)


@pytest.mark.long
def test_the_error_if_it_is_missing():
    code = """
import sys, torch, chorus
sys.modules["chorus_device"] = sys.modules["chorus_device._C"] = None
from chorus import torchcomms
from chorus.torchcomms import _comms
comm = torchcomms.new_comm("fake", torch.device("cpu"), "x", rank=0, world_size=1)
try:
    _comms._BackendWrapper(comm)
except chorus.UnsupportedError as error:
    print(error)
comm.finalize()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install chorus-device" in done.stdout, done.stderr
