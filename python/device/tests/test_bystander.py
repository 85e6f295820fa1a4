"""A program that doesn't use an installed device does the same as without it."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import datetime, os, re, sys, tempfile, warnings
import torch, torch.distributed as dist

def show(name, f):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = f()
        except Exception as error:
            value = f"{type(error).__name__}: {error}".splitlines()[0]
    said = [re.sub(r"pid=\\d+", "pid", str(w.message).splitlines()[0]) for w in caught]
    print(name, value, said)

store = dist.HashStore()
dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=datetime.timedelta(seconds=60))
group = dist.new_group([0], backend="gloo")
lists = [None]
show("barrier", dist.barrier)
show("barrier of IDs", lambda: dist.barrier(device_ids=[0]))
show("barrier of a group", lambda: dist.barrier(group, device_ids=[0]))
show("barrier by position", lambda: dist.barrier(group, False, [0]))
show("asynchronous barrier", lambda: dist.barrier(async_op=True, device_ids=[0]).wait())
show("monitored barrier", dist.monitored_barrier)
show("objects", lambda: (dist.all_gather_object(lists, {"a": 1}), lists))
show("broadcast", lambda: (dist.broadcast_object_list(lists), lists))
show("gather", lambda: (dist.gather_object(3, lists), lists))
show("scatter", lambda: (dist.scatter_object_list(lists, [4]), lists))
show("device of objects", lambda: dist.distributed_c10d._get_object_coll_device())
show("subgroups", lambda: dist.new_subgroups(1)[0].size())
show("sum", lambda: (x := torch.ones(2), dist.all_reduce(x), x)[-1])
mesh = dist.init_device_mesh("cpu", (1,))
show("mesh", lambda: mesh.get_group().size())
model = torch.nn.Linear(2, 2)
ddp = torch.nn.parallel.DistributedDataParallel(model)
show("ddp", lambda: ddp(torch.ones(1, 2)).sum().backward() or [p.grad.device for p in model.parameters()])

def checkpointed():
    x = torch.ones(2, requires_grad=True)
    seen = []
    def f(x):
        seen.append(torch.is_autocast_enabled("cpu"))
        return torch.nn.functional.dropout(x, 0.5)
    torch.manual_seed(3)
    with torch.autocast("cpu"):
        y = torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False)
    y.sum().backward()
    return torch.equal(y.detach(), x.grad), seen

import torch.utils.checkpoint
show("checkpoint", checkpointed)
show("generator", lambda: torch.Generator().device)
show("random state", lambda: torch.utils.checkpoint.get_device_states(torch.ones(1)))
loader = torch.utils.data.DataLoader(torch.arange(4), batch_size=2)
show("loader", lambda: [b.tolist() for b in loader])
show("scaler", lambda: torch.amp.GradScaler("cpu").scale(torch.ones(1)))

def forked():
    with torch.multiprocessing.get_context("fork").Pool(1) as pool:  # else there may be a warning, of the collector
        return pool.map(abs, [-1])

show("fork", forked)

with tempfile.TemporaryDirectory() as folder:
    import torch.distributed.checkpoint as saved
    show("save", lambda: type(saved.save({"m": model.state_dict()}, checkpoint_id=folder)).__name__)
    show("load", lambda: saved.load({"m": model.state_dict()}, checkpoint_id=folder))
    torch.save(model.state_dict(), folder + "/file")
    show("file", lambda: {v.device for v in torch.load(folder + "/file").values()})
dist.destroy_process_group()
"""


def output(autoload):
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload, "CHORUS_TORCH_DEVICE": "accinte"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.long
def test_a_program_on_the_host():
    plain = output("0")
    assert not [line for line in plain if line.startswith("barrier") and " None []" not in line]
    assert output("1") == plain
