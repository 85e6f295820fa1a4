"""The modules of chorus.torchcomms beside communicators: objects, meshes, hooks, functional collectives, distwrap."""

import datetime
import json
import pickle
import subprocess
import sys
import time

import pytest
import torch
import torch.distributed as dist
from table import data, same, total
from test_torchcomms import SUM, join

import chorus
from chorus import torchcomms
from chorus.torchcomms import device_mesh, distwrap, functional, hooks, objcol


class Thing:
    """An object that weights_only refuses."""

    def __init__(self, value):
        self.value = value


def _objects(peers):
    comm, r, n = join(peers), peers.rank, peers.size
    mine = {"rank": r, "tensor": torch.full((r,), float(r)), "text": "x" * 100 * r}
    got = [None] * n
    objcol.all_gather_object(comm, got, mine)
    assert [g["rank"] for g in got] == list(range(n)) and same(got[-1]["tensor"], torch.full((n - 1,), float(n - 1)))
    got = [None] * n if r == n - 1 else None
    objcol.gather_object(comm, [r], n - 1, got)
    assert got is None or got == [[p] for p in range(n)]
    things = ["a", 1, {"b": 2.5}] if r == 0 else [None] * 3
    objcol.broadcast_object_list(comm, things, 0)
    assert things == ["a", 1, {"b": 2.5}]
    out = [None]
    objcol.scatter_object_list(comm, 0, out, [f"for {p}" * (p + 1) for p in range(n)] if r == 0 else None)
    assert out == [f"for {r}" * (r + 1)]
    if n > 1 and r < 2:
        if r == 0:
            objcol.send_object_list(comm, ["x", [1, 2]], 1)
        else:
            things = [None, None]
            objcol.recv_object_list(comm, things, 0)
            assert things == ["x", [1, 2]]
    with pytest.raises(pickle.UnpicklingError):
        objcol.all_gather_object(comm, [None] * n, Thing(r))
    got = [None] * n
    objcol.all_gather_object(comm, got, Thing(r), weights_only=False)
    assert [g.value for g in got] == list(range(n))
    with pytest.raises(ValueError, match="object_list"):
        objcol.all_gather_object(comm, [], r)
    comm.finalize()


def test_objects(world):
    world.run(_objects)


def _late_objects(peers):
    """A rank sends its sizes in a collective of objects, and then doesn't take part in the messages."""
    def refuse(op, op_id, args):
        if op is torchcomms.OpName.batch_op_issue:
            raise ValueError("no")

    def came(call, seconds):
        """Whether rank 1 sent its sizes in time. Rank 0's waits have the same limit."""
        comm = join(peers)
        if peers.rank == 1:
            comm.register_pre_hook(refuse)
        with pytest.raises((ValueError, chorus.Error) if peers.rank == 1 else chorus.TimeoutError) as raised:
            call(comm, datetime.timedelta(seconds=seconds))
        dist.all_gather_object(every := [None] * 2, raised.type is ValueError, peers.gloo)
        comm.finalize()
        return every[1]

    for call in (
        lambda comm, t: objcol.gather_object(comm, "x", 0, [None] * 2 if peers.rank == 0 else None, timeout=t),
        lambda comm, t: objcol.scatter_object_list(
            comm, 1, [None], ["a", "b"] if peers.rank == 1 else None, timeout=t
        ),
    ):
        assert any(came(call, seconds) for seconds in (1, 4, 16))


def test_objects_keep_their_timeout(pair):
    began = time.monotonic()
    pair.run(_late_objects)
    assert time.monotonic() - began < 120  # the communicator's own timeout is 600 s


def _mesh(peers):
    """A mesh of 2 by 2 beside PyTorch's own, and tensor parallelism over it."""
    from torch.distributed.tensor import DTensor, Shard

    world = join(peers)
    r = peers.rank
    rows = world.split([r % 2, r % 2 + 2], f"rows{r % 2}")
    columns = world.split([r - r % 2, r - r % 2 + 1], f"columns{r // 2}")
    mesh = device_mesh.init_device_mesh((rows, columns), ("dp", "tp"), _global_comm=world)
    assert mesh.mesh.tolist() == [[0, 1], [2, 3]] and list(mesh.get_coordinate()) == [r // 2, r % 2]
    for name, comm in (("dp", rows), ("tp", columns)):
        group = mesh.get_group(name)
        assert group.get_comm() is comm and dist.get_process_group_ranks(group) == comm.get_ranks()
        x = data(r, torch.float32, 10)
        dist.all_reduce(x, group=group)
        assert same(x, total([data(p, torch.float32, 10) for p in comm.get_ranks()]))
    tensor = DTensor.from_local(torch.full((2, 3), float(r)), mesh["tp"], [Shard(0)])
    assert tensor.full_tensor().tolist() == [[float(c)] * 3 for c in columns.get_ranks() for _ in range(2)]
    flat = device_mesh._flatten_with_comm(mesh, "dp_tp", world, [0, 1, 2, 3], None)
    assert flat.mesh.tolist() == [0, 1, 2, 3] and flat.get_group().get_comm() is world
    line = device_mesh.init_device_mesh((world,), ("line",))
    assert line.mesh.tolist() == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match="_global_comm"):
        device_mesh.init_device_mesh((rows, columns), ("dp", "tp"))
    with pytest.raises(ValueError, match="form a mesh"):
        device_mesh.init_device_mesh((world, columns), ("dp", "tp"), _global_comm=world)
    for comm in (rows, columns, world):
        comm.finalize()


@pytest.mark.long
def test_device_mesh():
    from worlds import world_of

    world_of(4).run(_mesh)


def _recorder(peers, directory):
    comm = join(peers, f"recorded{peers.size}")
    recorder = hooks.FlightRecorderHook(max_entries=4)
    recorder.register_with_comm(comm)
    assert recorder.is_enabled() and recorder.size() == 0
    x = torch.ones(3, 2)
    for _ in range(3):
        comm.all_reduce(x, SUM, True).wait()
    child = comm.split(list(range(peers.size)), f"child{peers.size}")
    child.barrier(False)
    waiting = comm.recv(x, 0, True) if peers.rank else None
    dump = json.loads(recorder.dump_json())
    assert dump["version"] == "2.10"
    assert [c["name"] for c in dump["pg_config"].values()] == [comm.get_name(), child.get_name()]
    first = dump["entries"][0]
    assert (
        first["profiling_name"] == "gloo:all_reduce"
        and first["input_sizes"] == [[3, 2]]
        and first["state"] == "completed"
    )
    if waiting:
        active = json.loads(recorder.dump_json(include_completed=False))["entries"]
        assert [e["profiling_name"] for e in active] == [f"gloo:recv {peers.rank}<-0"] and active[0]["is_p2p"]
        comm.barrier(False)
        waiting.wait()
    else:
        comm.barrier(False)
        for p in range(1, peers.size):
            comm.send(x, p, False)
    comm.barrier(False)
    path = recorder.dump_file(peers.rank, prefix=f"{directory}/trace_")
    assert recorder.size() == 4
    recorder.reset()
    assert recorder.size() == 0
    child.finalize()
    comm.finalize()
    return path


def test_flight_recorder(world, tmp_path):
    paths = world.run(_recorder, str(tmp_path))
    assert paths == [f"{tmp_path}/trace_{r}" for r in range(world.size)]


def test_flight_recorder_polls_backends_in_python():
    """Reading the record polls the pending operations of a backend written in Python."""

    class Handle:
        done, error = False, None

        def is_completed(self):
            return self.done

        def exception(self):
            return self.error

    class Untold(torchcomms.TorchCommBackend):
        def get_rank(self):
            return 0

        def get_size(self):
            return 1

        def all_reduce(self, tensor, op, async_op):
            return Handle()

    torchcomms.register_backend("untold", Untold)
    comm = torchcomms.new_comm("untold", torch.device("cpu"), "untold")
    recorder = hooks.FlightRecorderHook()
    recorder.register_with_comm(comm)
    works = [comm.all_reduce(torch.ones(1), SUM, True) for _ in range(3)]

    def states():
        return [(e["state"], e["retired"]) for e in json.loads(recorder.dump_json())["entries"]]

    assert states() == [("scheduled", False)] * 3
    works[1]._inner.done = True
    assert states() == [("scheduled", False), ("completed", True), ("scheduled", False)]
    works[0]._inner.error, works[0]._inner.done = ValueError("no"), True
    assert states() == [("scheduled", True), ("completed", True), ("scheduled", False)]
    comm.finalize()


def _straggler(peers, directory):
    comm = join(peers)
    recorder = hooks.FlightRecorderHook()
    recorder.register_with_comm(comm)
    for _ in range(2):
        comm.all_reduce(torch.ones(3, 2), SUM, False)
    work = comm.barrier(True) if peers.rank == 0 else None
    recorder.dump_file(peers.rank, prefix=f"{directory}/trace_")
    dist.barrier(peers.gloo)
    if work is None:
        work = comm.barrier(True)
    work.wait()
    comm.finalize()


@pytest.mark.long
def test_pytorchs_tool_finds_the_missing_rank(pair, tmp_path):
    pytest.importorskip("torch.distributed.flight_recorder", reason="this PyTorch comes without its tool")
    pair.run(_straggler, str(tmp_path))
    tool = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(tmp_path), "-p", "trace_"]
    done = subprocess.run(tool, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = done.stdout + done.stderr
    assert "sequence number: 3" in found and "gloo:barrier" in found and "missing ranks: {1}" in found, found


def _nans(peers):
    comm = join(peers)
    check = hooks.NanCheckHook()
    check.register_with_comm(comm)
    bad = torch.tensor([1.0, float("nan")])
    for call in (lambda: comm.all_reduce(bad, SUM, False), lambda: comm.send(bad, 0, False),
                 lambda: comm.all_to_all([torch.zeros(2)] * peers.size, (bad,) * peers.size, False)):  # fmt: skip
        with pytest.raises(RuntimeError, match="NaN in the input"):
            call()
    x = torch.ones(2, dtype=torch.int32)
    comm.all_reduce(x, SUM, False)
    out = bad.clone() if peers.rank else torch.ones(2)
    comm.broadcast(out, 0, False)  # a NaN that will be overwritten is allowed
    check.unregister()
    comm.all_reduce(bad, SUM, False)
    comm.finalize()


def test_nan_check(pair):
    pair.run(_nans)


def _functional(peers):
    import torch.distributed.nn.functional as theirs

    comm, r, n, f = join(peers), peers.rank, peers.size, functional.collectives
    assert not functional.is_torch_compile_supported_and_enabled()  # the variable isn't set
    base = torch.arange(12.0).reshape(6 * 2, 1).repeat(1, 3)[: 2 * n] * (r + 1)
    weights = torch.arange(1.0, 1 + 2 * n * n * 3).reshape(-1, 3)

    def gradient(call):
        x = base.clone().requires_grad_()
        y = call(x)
        (y * weights[: y.size(0)] * (r + 1)).sum().backward()
        return y.detach(), x.grad

    gloo = peers.gloo
    pairs = [
        (lambda x: f.all_reduce(x, SUM, comm), lambda x: theirs.all_reduce(x.clone(), group=gloo)),
        (lambda x: f.all_gather_single(x, comm), lambda x: torch.cat(theirs.all_gather(x, group=gloo))),
        (lambda x: f.broadcast(x, 0, comm), lambda x: theirs.broadcast(x.clone(), 0, group=gloo)),
        (lambda x: f.all_to_all_single(x, comm),
         lambda x: theirs.all_to_all_single(torch.empty_like(x), x, group=gloo)),
    ]  # fmt: skip
    for ours, other in pairs:
        for a, b in zip(gradient(ours), gradient(other), strict=True):
            assert torch.equal(a, b), (a, b)
    for op, scale in ((SUM, 1.0), (torchcomms.ReduceOp.AVG, 1 / n), (torchcomms.ReduceOp.PREMUL_SUM(2.0), 2.0)):
        y, grad = gradient(lambda x, op=op: f.reduce_scatter_single(x, op, comm))
        whole = base / (r + 1) * sum(range(1, n + 1)) * scale
        torch.testing.assert_close(y, whole[2 * r : 2 * r + 2])
        torch.testing.assert_close(grad, torch.cat([weights[:2] * (p + 1) * scale for p in range(n)]))
    # Each rank has a factor of its own, which scales its gradient.
    mine = torchcomms.ReduceOp.PREMUL_SUM(r + 1.0)
    y, grad = gradient(lambda x: f.all_reduce(x, mine, comm))
    torch.testing.assert_close(y, sum((p + 1) ** 2 * base / (r + 1) for p in range(n)))
    torch.testing.assert_close(grad, sum(weights[: 2 * n] * (p + 1) for p in range(n)) * (r + 1))
    y, grad = gradient(lambda x: f.reduce_scatter_single(x, mine, comm))
    torch.testing.assert_close(grad, torch.cat([weights[:2] * (p + 1) for p in range(n)]) * (r + 1))
    with pytest.raises(RuntimeError, match="no gradient"):
        f.all_reduce(base.clone().requires_grad_(), torchcomms.ReduceOp.MAX, comm)
    late = f.all_reduce(base, SUM, comm, async_op=True)
    assert isinstance(late, functional.async_tensor.TorchCommsAsyncTensor) and late.shape == base.shape
    assert type(late + 1) is torch.Tensor and torch.equal(late + 0, f.all_reduce(base, SUM, comm))
    gathered = f.all_gather_single(base, comm, async_op=True)
    assert torch.equal(gathered.wait(), f.all_gather_single(base, comm))
    compiled = torch.compile(lambda x: f.all_reduce(x * 2, SUM, comm).sin(), backend="aot_eager", fullgraph=False)
    assert torch.equal(compiled(base), f.all_reduce(base * 2, SUM, comm).sin())
    comm.finalize()


def test_an_async_tensor_is_transparent():
    """Its properties don't wait, autograd goes through it, and it may have no work."""

    class Work(torchcomms.TorchWork):
        waits = 0

        def wait(self, timeout=None):
            self.waits += 1

    async_tensor, work = functional.async_tensor.TorchCommsAsyncTensor, Work()
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    late, leaf = async_tensor(y, work), async_tensor(x, work)
    assert late.grad_fn is y.grad_fn and not late.is_leaf and leaf.is_leaf and late.requires_grad
    assert late.shape == (3,) and late.dtype is torch.float32 and late.size(0) == late.numel() == 3
    leaf.grad = torch.full((3,), 5.0)
    assert leaf.grad is x.grad and work.waits == 0
    leaf.grad = None
    late.sum().backward()
    assert work.waits == 1 and x.grad.tolist() == [2, 2, 2]
    assert late.tolist() == [2, 2, 2] and late.detach().numpy().sum() == 6 and work.waits == 3
    done = async_tensor(x, None)
    assert done.wait() is x and "[1., 1., 1.]" in repr(done) and type(done + 1) is torch.Tensor


def test_functional(world):
    if world.size < 4:
        world.run(_functional)


DISTWRAP = """
import os, sys, torch
import chorus.torchcomms.distwrap as dist
dist.init_process_group("gloo", use_torchcomms=True)
rank, n = dist.get_rank(), dist.get_world_size()
x = torch.full((4,), float(rank))
dist.all_reduce(x, op=dist.ReduceOp.SUM)
assert x.tolist() == [n * (n - 1) / 2] * 4
part = dist.split_group(split_ranks=[[0], [1]])
dist.all_reduce(x, group=part)
assert dist.get_world_size(dist.split_group(backend="cpu:gloo", pg_options=dist.ProcessGroupGloo._Options())) == n
whole = dist.split_group(pg_options={"algorithm": "ring"}, group_desc="of hints")
assert dist.get_comm(whole).get_size() == n and dist.get_group() is dist.group.WORLD and dist.get_group(whole) is whole
for bad, words in (({"backend": "nccl"}, "a part has the parent's backend"), ({"pg_options": 3}, "dict of hints")):
    try:
        dist.split_group(**bad)
    except RuntimeError as error:
        assert words in str(error), error
    else:
        raise AssertionError(bad)
exact, out = torch.randn(n, 1000, generator=torch.Generator().manual_seed(rank)), torch.zeros(1000)
work = dist.reduce_scatter_quantized(out, exact, dist.ReduceOp.SUM, torch.tensor([rank]), async_op=True)
work.wait()
dist.all_reduce(exact)
assert (out - exact[rank]).abs().max() < 0.05 and abs((out - exact[rank]).mean()) < 1e-3 and not out.equal(exact[rank])
try:
    dist.reduce_scatter_quantized(out, exact, dist.ReduceOp.MAX, torch.tensor([1]))
except RuntimeError as error:
    assert "must be SUM or AVG" in str(error)
dist.register_mem_pool(None, torch.device("cpu"), None)
ops = [dist.P2POp(dist.isend, x, 1 - rank), dist.P2POp(dist.irecv, torch.zeros(4), 1 - rank)]
[work.wait() for work in dist.batch_isend_irecv(ops)]
window = dist.new_window(dist.get_mem_allocator().zeros(4))
window.put(torch.full((4,), 5.0 + rank), 1 - rank, 0)
window.signal(1 - rank)
window.wait_signal(1 - rank)
assert window.get_tensor().tolist() == [6.0 - rank] * 4
window.tensor_deregister()
assert dist.get_comm().get_size() == 2 and dist.get_comm() is dist.get_comm()
try:
    dist.init_process_group("nccl", use_torchcomms=True)
except RuntimeError as error:
    assert "libnccl" in str(error)
    print("fine")
dist.destroy_process_group()
"""


@pytest.mark.long
def test_distwrap(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(DISTWRAP)
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d",
                           "--rdzv-endpoint=localhost:0", str(script)], capture_output=True, text=True,
                          timeout=100)  # fmt: skip
    assert done.returncode == 0 and done.stdout.count("fine") == 2, done.stderr
    assert "finalized" not in done.stderr
    for name in (
        "all_reduce", "batch_isend_irecv", "new_group", "is_initialized", "HashStore", "destroy_process_group",
        "ReduceOp", "P2POp", "ProcessGroup", "ProcessGroupGloo", "Store", "Work", "GroupMember",
    ):  # fmt: skip
        assert getattr(distwrap, name) is getattr(dist, name)
    assert chorus.torchcomms.objcol.__doc__
    with pytest.raises(chorus.UnsupportedError, match="'fake' can't be the backend of process groups"):
        distwrap.init_process_group("fake", use_torchcomms=True)
