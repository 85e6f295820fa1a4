"""Groups over the site's MPI library: ``pg_options={"backend": "mpi"}`` under mpirun."""

import os
import shutil
import subprocess
import sys

import pytest

PROGRAM = """
import os
import sys
import torch
import torch.distributed as dist
import chorus
from chorus import torchcomms

rank, n = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
store = dist.FileStore(sys.argv[1], n)
dist.init_process_group("chorus", store=store, rank=rank, world_size=n, pg_options={"backend": "mpi"})
dist.all_reduce(x := torch.full((1000,), float(rank)))
assert x[999] == n * (n - 1) / 2 and dist.group.WORLD.comm.backend == "mpi"
dist.all_gather_object(found := [None] * n, {"rank": rank})
assert [e["rank"] for e in found] == list(range(n))
group = dist.new_group([0, 2])  # takes after the world
if rank != 1:
    dist.all_reduce(y := torch.ones(3), group=group)
    assert y[0] == 2 and group.comm.backend == "mpi"
work = dist.isend(x, (rank + 1) % n, tag=5)
dist.recv(torch.empty(1000), (rank - 1) % n, tag=5)
work.wait()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
model(torch.full((2, 4), float(rank))).sum().backward()
assert torch.equal(model.module.weight.grad, torch.full((1, 4), 2.0)), model.module.weight.grad
comm = torchcomms.new_comm("mpi", torch.device("cpu"), "second", store=store, rank=rank, world_size=n)
comm.all_reduce(z := torch.ones(3), torchcomms.ReduceOp.SUM, async_op=False)
assert z[0] == n
comm.finalize()
dist.destroy_process_group()
try:
    dist.init_process_group("chorus", store=dist.PrefixStore("again", store), rank=rank, world_size=n,
        pg_options={"backend": "mpi"})
except chorus.Error as error:
    assert "can't start again" in str(error), error
else:
    raise AssertionError("MPI has started twice")
print(f"done {rank}")
"""


UNCHANGED = """
import os
import sys
import torch
import torch.distributed as dist

rank, n = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
dist.init_process_group("chorus", store=dist.FileStore(sys.argv[1], n), rank=rank, world_size=n)
dist.all_reduce(x := torch.full((4,), float(rank)))
group = dist.new_group([0, 1])
assert x[0] == 3 and dist.group.WORLD.comm.backend == "mpi" and (rank == 2 or group.comm.backend == "mpi")
dist.destroy_process_group()
print(f"done {rank}")
"""


@pytest.mark.long
@pytest.mark.parametrize("program, variables", [(PROGRAM, {}), (UNCHANGED, {"CHORUS_BACKEND": "mpi"})])
def test_under_mpirun(tmp_path, program, variables):
    mpirun = shutil.which("mpirun")
    if mpirun is None or "Open MPI" not in subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout:
        pytest.skip("there is no mpirun of Open MPI")
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    # Two jobs that begin at once may both fail to create the folder of the user's sessions.
    environment = os.environ | root | {"OMPI_MCA_orte_tmpdir_base": str(tmp_path)} | variables
    command = [mpirun, "--oversubscribe", "-n", "3", sys.executable, "-c", program, str(tmp_path / "store")]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert found.returncode == 0 and found.stdout.count("done") == 3, found.stdout + found.stderr
