"""Groups of this backend in jobs whose other ranks have PyTorch's own Gloo: ``pg_options={"wire": "gloo"}``."""

import pytest
from jobs import Job

PROGRAM = """
import os
import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
if rank in {ranks}:
    dist.init_process_group("chorus", pg_options={{"wire": "gloo"}})
else:
    dist.init_process_group("gloo")
n = dist.get_world_size()
x = torch.full((1000,), float(rank))
dist.all_reduce(x)
assert x[999] == 3, x
parts = [torch.zeros(17, dtype=torch.int64) for _ in range(n)]
dist.all_gather(parts, torch.full((17,), rank))
assert [int(p[16]) for p in parts] == [0, 1, 2]
lists = [None] * n
dist.all_gather_object(lists, {{"rank": rank}})
assert [e["rank"] for e in lists] == [0, 1, 2]
dist.broadcast(x, 1)
group = dist.new_group([0, 2])
if rank != 1:
    y = torch.ones(3)
    dist.all_reduce(y, group=group)
    assert y[0] == 2
work = dist.isend(x, (rank + 1) % n, tag=5)
dist.recv(torch.empty(1000), (rank + 2) % n, tag=5)
work.wait()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
model(torch.full((2, 4), float(rank))).sum().backward()
assert torch.equal(model.module.weight.grad, torch.full((1, 4), 2.0)), model.module.weight.grad
dist.barrier()
open(f"ok.{{rank}}", "w").close()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("ranks", [[1], pytest.param([0, 2], marks=pytest.mark.long)])
def test_with_gloo(tmp_path, monkeypatch, ranks):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    with Job(tmp_path, PROGRAM.format(ranks=ranks)) as job:
        for process in job.processes:
            process.join(60)
    assert sorted(p.name for p in tmp_path.glob("ok.*")) == ["ok.0", "ok.1", "ok.2"]
