"""The original torchcomms: programs written for it, and Chorus as a backend of it."""

import os
import subprocess
import sys

import pytest
from children import path_with
from test_torchcomms_package import installed  # noqa: F401
from worlds import free_port

# A program for a cluster of GPUs, in the style of the original's.
PROGRAM = """
import datetime
import torch
from torchcomms import BatchP2POptions, ReduceOp, Timeout, new_comm

device = torch.device("cuda")
comm = new_comm("ncclx", device, name="main", timeout=datetime.timedelta(seconds=60),
                hints={"torchcomm::ncclx::high_priority_stream": "true"})
rank, size, device = comm.get_rank(), comm.get_size(), comm.get_device()

x = torch.full((1024,), float(rank + 1), dtype=torch.float32, device=device)
comm.all_reduce(x, ReduceOp.SUM, async_op=False)
torch.cuda.current_stream().synchronize()
assert x[0].item() == size * (size + 1) / 2

work = comm.all_reduce(x, ReduceOp.PREMUL_SUM(0.5), async_op=True, timeout=datetime.timedelta(seconds=10))
y = torch.ones(16, device=device) * 2
work.wait()
torch.cuda.current_stream().synchronize()
assert x[0].item() == size * (size + 1) / 2 * size / 2

right, left = (rank + 1) % size, (rank - 1 + size) % size
got = torch.zeros(8, device=device)
if rank % 2 == 0:
    sent, received = comm.send(torch.full((8,), float(rank), device=device), right, async_op=True), None
    received = comm.recv(got, left, async_op=True)
else:
    received = comm.recv(got, left, async_op=True)
    sent = comm.send(torch.full((8,), float(rank), device=device), right, async_op=True)
sent.wait()
received.wait()
torch.cuda.current_stream().synchronize()
assert got[0].item() == left

batch = comm.batch_op_create()
batch.send(x, right)
batch.recv(torch.empty_like(x), left)
batch.issue(async_op=True, options=BatchP2POptions()).wait()

parts = [torch.empty(4, device=device) for _ in range(size)]
comm.all_gather(parts, torch.full((4,), float(rank), device=device), async_op=False)
whole = torch.arange(float(size), device=device)
comm.reduce_scatter_single(whole[:1].clone(), whole, ReduceOp.MAX, async_op=False)
comm.barrier(async_op=False)

part = comm.split([r for r in range(size) if r % 2 == rank % 2], "part")
part.broadcast(x, root=0, async_op=False)
part.finalize()

window = comm.new_window()
memory = torch.zeros(4, device=device)
window.tensor_register(memory)
window.put(torch.ones(2, device=device), right, 2, async_op=False)
window.signal(right, async_op=False)
window.wait_signal(left, async_op=False)
assert memory.tolist() == [0, 0, 1, 1]
window.tensor_deregister()

handle = comm.register_pre_hook(lambda name, op_id, args: None)
comm.barrier(async_op=True).wait()
handle.remove()
comm.finalize()
print(f"done {rank}", flush=True)
"""


@pytest.mark.long
def test_program_for_the_original(installed, tmp_path):  # noqa: F811
    """The program runs with another backend and another device, and without its waits for the device's streams."""
    script = tmp_path / "program.py"
    program = PROGRAM.replace('"ncclx"', '"gloo"').replace('"cuda"', '"cpu"')
    script.write_text(program.replace("torch.cuda.current_stream().synchronize()\n", ""))
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d",
         "--rdzv-endpoint=localhost:0", str(script)],
        env=installed, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "done 0" in done.stdout and "done 1" in done.stdout


# A stand-in for the original, which has no wheel: the parts that a backend in Python uses. It has positional arguments,
# no options of operations, its own reductions, and a class that is made without arguments. It was written by reading
# the original.
STAND_IN = """
import datetime, enum, importlib.metadata

class RedOpType(enum.Enum):
    SUM, MAX, PREMUL_SUM = range(3)

class ReduceOp:
    def __init__(self, type, factor=None):
        self.type = type
        if factor is not None:
            self.factor = factor

class TorchCommBackend:
    pass

class Options:
    abort_process_on_timeout_or_error = False
    timeout = datetime.timedelta(seconds=30)
    store = None
    hints = {}

registered = {}
register_backend = registered.setdefault

def new_backend(name):
    for point in importlib.metadata.entry_points(group="torchcomms.backends", name=name):
        point.load()
    return registered[name]()
"""

RANK = """
import torch, torchcomms
from torchcomms import Options, RedOpType, ReduceOp

backend = torchcomms.new_backend("chorus")
assert isinstance(backend, torchcomms.TorchCommBackend)
backend.init(torch.device("cpu"), "main", Options())
rank, size = backend.get_rank(), backend.get_size()
assert size == 2 and backend.get_backend_name() == "chorus" and backend.get_comm_name() == "main"

def same(x, *values):
    assert x.tolist() == list(values), x

x = torch.tensor([rank + 1.0])
assert backend.all_reduce(x, ReduceOp(RedOpType.SUM), True) is None
same(x, 3)
backend.all_reduce(x, ReduceOp(RedOpType.PREMUL_SUM, 0.5), False)
same(x, 3)
try:
    backend.all_reduce(x, ReduceOp(RedOpType.PREMUL_SUM), False)
except RuntimeError as error:
    assert "factor" in str(error)
else:
    raise AssertionError
both = torch.empty(2)
backend.all_gather_single(both, torch.tensor([float(rank)]), False)
same(both, 0, 1)
parts = [torch.empty(1), torch.empty(1)]
backend.all_gather(parts, both[rank : rank + 1], True)
same(torch.cat(parts), 0, 1)
backend.reduce_scatter_single(x, both, ReduceOp(RedOpType.MAX), False)
same(x, rank)
backend.all_to_all_v_single(both, torch.tensor([rank, rank + 10.0]), [1, 1], [1, 1], False)
same(both, rank * 10, rank * 10 + 1)
backend.barrier(False)

sent, received = backend.send(torch.ones(1 << 20), 1 - rank, True), backend.recv(torch.empty(1 << 20), 1 - rank, True)
sent.wait(), received.wait()

part = backend.split([rank], "half", Options())
assert part.get_size() == 1 and type(part) is type(backend)
part.finalize()
assert backend.split([], "none", Options()) is None
backend.finalize()
try:
    backend.get_rank()
except RuntimeError:
    pass
else:
    raise AssertionError
"""


@pytest.mark.long
def test_backend_of_the_original(tmp_path):
    (tmp_path / "torchcomms.py").write_text(STAND_IN)
    ranks = []
    port = str(free_port())
    for rank in range(2):
        env = dict(os.environ, PYTHONPATH=path_with(tmp_path), RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port, OMP_NUM_THREADS="1")  # fmt: skip
        ranks.append(subprocess.Popen([sys.executable, "-c", RANK], env=env, stderr=subprocess.PIPE, text=True))
    for rank in ranks:
        _, said = rank.communicate(timeout=120)
        assert rank.returncode == 0, said


@pytest.mark.long
def test_nothing_to_register(installed):  # noqa: F811
    """If the name torchcomms is this package's, "chorus" stays the library's own backend."""
    code = """if True:
        import torchcomms, chorus.torchcomms.original
        from chorus.torchcomms import _backend
        assert _backend.native_name("chorus") == "native", _backend._registered
    """
    subprocess.run([sys.executable, "-c", code], env=installed, check=True)
