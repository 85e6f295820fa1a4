"""The package's changes to PyTorch from outside: all can be left out, and then PyTorch's functions are unchanged."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch  # noqa: F401  before chorus, whose modules it loads
from worlds import longest

import chorus
from chorus import _patches

NAMES = {
    "all_reduce",
    "barrier",
    "batches",
    "buckets",
    "coalescing",
    "fp16_hook",
    "shrink",
    "profiler",
    "dynamo",
    "use_torchcomms",
}

# Prints which of PyTorch's functions are replaced after the package was loaded and used.
PROGRAM = """
import os, torch, torch.distributed as dist
from torch.autograd import profiler
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel as DDP
import torch._dynamo.trace_rules as rules
def cell(f=c10d.all_reduce):
    return f.__closure__[f.__code__.co_freevars.index("func")].cell_contents
def looked_at():
    return {"all_reduce": cell(), "buckets": (dist.Reducer.__init__, dist.Reducer._rebuild_buckets),
            "fp16_hook": DDP._register_builtin_comm_hook, "shrink": getattr(c10d, "_create_shrunk_process_group", None),
            "profiler": profiler._disable_profiler, "batches": c10d.batch_isend_irecv,
            "coalescing": c10d._coalescing_manager,
            "dynamo": "chorus" in rules.get_mod_inlinelist() | set(rules.MOD_SKIPLIST)}
before = looked_at()
dist.init_process_group("chorus", store=dist.HashStore(), rank=0, world_size=1)
x = torch.ones(3)
dist.all_reduce(x)
module = DDP(torch.nn.Linear(3, 3))
module(x).sum().backward()
with torch.profiler.profile():
    dist.all_reduce(x, async_op=True).wait()
after = looked_at()
import chorus
switch = getattr(c10d, "_use_torchcomms_enabled", cell)  # which is changed when PyTorch is loaded
print("changed:", *sorted(name for name in before if before[name] != after[name]),
      *["barrier"] * cell(c10d.barrier).__code__.co_filename.endswith("_patches.py"),  # likewise, with a device
      *["use_torchcomms"] * (switch.__module__ == "chorus._patches"))
print("states:", chorus.patches())
print("name:", dist.group.WORLD.comm.name)
dist.destroy_process_group()
"""


def _run(**environment):
    env = {k: v for k, v in os.environ.items() if k != "CHORUS_PATCHES"} | environment
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = dict(line.split(":", 1) for line in done.stdout.splitlines())
    states = eval(found["states"])
    return set(found["changed"].split()), states, found["name"].strip()


@pytest.mark.long
def test_all_are_applied():
    changed, states, name = _run()
    applied = {n for n, state in states.items() if state == "applied"}
    assert applied - {"locals", "dynamo"} == changed - {"dynamo"} and name == "default_pg"
    assert set(states) | {"barrier"} == NAMES | {"locals"} and all(
        s == "applied" or s.startswith("not applied: ") for s in states.values()
    )


@pytest.mark.long
def test_none():
    changed, states, name = _run(CHORUS_PATCHES="")
    assert not changed and set(states.values()) == {_patches._OFF} and name != "default_pg"


@longest
@pytest.mark.long
def test_some():
    changed, states, _ = _run(CHORUS_PATCHES="shrink, profiler")
    assert changed == {"shrink", "profiler"}
    assert {n for n, s in states.items() if s == "applied"} == {"shrink", "profiler"}


@pytest.mark.parametrize("name", sorted(NAMES - {"dynamo"}))
def test_something_unexpected(monkeypatch, name):
    """A PyTorch with unexpected code is left unchanged, and the state has the reason."""
    import torch.distributed as dist
    from torch.autograd import profiler
    from torch.nn.parallel import DistributedDataParallel

    c10d = dist.distributed_c10d
    monkeypatch.setattr(_patches, "_states", {})
    monkeypatch.setattr(c10d, "all_reduce", lambda tensor: None)
    monkeypatch.setattr(c10d, "barrier", lambda: None)
    monkeypatch.setattr(c10d, "_coalescing_manager", lambda: None)
    monkeypatch.setattr(c10d, "batch_isend_irecv", lambda ops: None)
    monkeypatch.setattr(dist, "Reducer", None)
    monkeypatch.setattr(c10d, "_create_shrunk_process_group", lambda backend: None, raising=False)
    monkeypatch.setattr(profiler, "_disable_profiler", None)
    monkeypatch.setattr(c10d, "_use_torchcomms_enabled", None, raising=False)
    monkeypatch.setattr(DistributedDataParallel, "_register_builtin_comm_hook", lambda self: None)
    _patches.apply(name, chorus.ProcessGroup, *([chorus.Work] if name == "all_reduce" else []))
    assert re.match("not applied: another .* than known", _patches.patches()[name])


def test_documented():
    """Every change is a row of the table in the documentation, and every row is a change."""
    text = (Path(__file__).parents[2] / "docs/pytorch-internals.md").read_text()
    rows = set(re.findall(r"^\| `(\w+)` \|", text.split("## What is changed in PyTorch")[1].split("\n## ")[0], re.M))
    assert rows == NAMES | {"locals"}
