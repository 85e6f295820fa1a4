"""Two processes with torch.device("zoom"): FSDP, and a group whose ranks have tensors of different devices."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.long

BEGIN = """
import sys
from datetime import timedelta
import torch
import torch.distributed as dist

rank = int(sys.argv[1])
torch.set_num_threads(1)
dist.init_process_group("cpu:chorus,zoom:chorus", store=dist.FileStore(sys.argv[2], 2), rank=rank, world_size=2,
                        timeout=timedelta(seconds=200))
"""

SHARDED = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

def trained(device):
    "The loss and the whole parameters after each step."
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4))
    model = model.to(device)
    mesh = init_device_mesh(device, (2,))
    for layer in (model[0], model[3]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    history = []
    for step in range(4):
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(10 * step + rank))
        loss = torch.nn.functional.cross_entropy(model(x.to(device)), x[:, :4].argmax(1).to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        history.append([loss.detach().cpu(), *(p.full_tensor().detach().cpu() for p in model.parameters())])
    return history

first, own = trained("cpu"), trained("zoom")
assert not torch.equal(first[0][1], first[-1][1])
for step, (want, got) in enumerate(zip(first, own, strict=True)):
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, msg=lambda text: f"step {step}: {text}")
print("equal")
dist.destroy_process_group()
"""

MIXED = """
device = "zoom" if rank else "cpu"  # a rank's tensors are on the host, the other's on a device
for n in (5, 1 << 18):
    x = torch.full((n,), rank + 1.0, device=device)
    dist.all_reduce(x)
    assert x.device.type == device and x.cpu().eq(3).all()
    got = [torch.empty(n, device=device) for _ in range(2)]
    dist.all_gather(got, x * (rank + 1))
    assert [t.cpu()[-1].item() for t in got] == [3, 6]
    part = torch.empty(n, device=device)
    dist.reduce_scatter_tensor(part, torch.arange(2.0 * n, device=device))
    assert torch.equal(part.cpu(), 2 * (torch.arange(n) + float(rank * n)))
    y = torch.full((n,), float(rank), device=device)
    dist.broadcast(y, 1)
    assert y.cpu().eq(1).all()
    if rank:
        dist.send(y + 4, 0)
    else:
        dist.recv(y, 1)
        assert y.eq(5).all()
print("equal")
dist.destroy_process_group()
"""


REPLICATED = """
from torch.nn.parallel import DistributedDataParallel

def trained(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 4)).to(device)
    model = DistributedDataParallel(model, bucket_cap_mb=0.001)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(10 * step + rank)).to(device)
        model(x).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().cpu() for p in model.parameters()]

torch.testing.assert_close(trained("zoom"), trained("cpu"), rtol=1e-4, atol=1e-5)
wide = torch.full((4, 6), rank + 1.0, device="zoom")
ops = [dist.P2POp(dist.isend, wide.clone(), 1 - rank), dist.P2POp(dist.irecv, wide[:, ::2][:, :2], 1 - rank)]
ops[0].tensor = ops[0].tensor[:, :2].contiguous()
for work in dist.batch_isend_irecv(ops):
    work.wait()
assert wide.cpu()[:, [0, 2]].eq(2 - rank).all() and wide.cpu()[:, [1, 3, 4, 5]].eq(rank + 1).all()
received = wide[:, ::2][:, :2]
first = dist.irecv(received, 1 - rank)  # a rank whose receive waited would never send
dist.isend(torch.full((4, 2), 7.0, device="zoom"), 1 - rank).wait()
first.wait()
assert received.cpu().eq(7).all()
x = torch.ones(1000, device="zoom")
done = dist.all_reduce(x, async_op=True).get_future().then(lambda future: future.value()[0] + 1)
assert done.wait().cpu().eq(3).all()
print("equal")
dist.destroy_process_group()
"""


@pytest.mark.parametrize("touched", [True, False])
@pytest.mark.parametrize("program", [SHARDED, MIXED, REPLICATED], ids=["sharded", "host_and_device", "replicated"])
def test_two_processes(tmp_path, monkeypatch, program, touched):
    monkeypatch.setenv("CHORUS_OPENCL_SHARED_MEMORY", str(touched).lower())
    (tmp_path / "rank.py").write_text(BEGIN + program)
    command = [sys.executable, str(tmp_path / "rank.py")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    ranks = [subprocess.Popen([*command, str(r), str(tmp_path / "store")], **pipes) for r in range(2)]
    for r in ranks:
        out, err = r.communicate(timeout=280)
        assert r.returncode == 0 and out == "equal\n", out + err
