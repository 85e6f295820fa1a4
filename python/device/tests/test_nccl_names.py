"""The table in docs/nccl.md of ProcessGroupNCCL's names in a group over NCCL, compared with PyTorch's stub."""

import ast
import json
import pathlib
import re

import pytest
import torch
import torch.distributed as dist
from pages import assert_table
from standins import FOREIGN, ROOT, run

import chorus

# Missing names, and why.
ABSENT = {
    "_group_start, _group_end": "PyTorch calls them around aborts of its own class alone; `_start_coalescing` is there",
    "_start_time_estimate, _end_time_estimate": "`supports_time_estimate` says so: NCCL's simulation isn't called",
    "_add_ephemeral_timeout": "PyTorch calls it on its own class alone; `set_timeout`, or the timeout of an operation",
    "get_build_nccl_version, get_runtime_nccl_version": "nothing is built against NCCL; `chorus doctor` names the "
    "version that was found",
    "_comm_ptr": "the library's communicator isn't handed out",
    "_set_enable_nan_check": "elements aren't looked at",
    "_verify_work_timeout": "it's for PyTorch's own tests",
    "memory_stats": "`ncclCommMemStats` isn't called",
    "setUsePgForSymmMemRendezvous": "PyTorch's symmetric memory exchanges its handles by the store",
    "NCCLConfig.unsafe_get_ptr": "the fields are read, not their memory",
    "Options.split_from, Options.split_color": "PyTorch sets them for its own class",
    "Options.use_pg_for_symm_mem_rendezvous": "as `setUsePgForSymmMemRendezvous`",
}

# Variables that have no effect, and what does the same here.
WITHOUT_EFFECT = {
    "TORCH_NCCL_ENABLE_MONITORING, TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "there is no monitor: calls of NCCL that wait "
    "have the operation's deadline. A call of the driver that never returns isn't noticed",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "with `CHORUS_DUMP_DIR` each rank writes its flight record when the group breaks",
    "TORCH_FR_DUMP_TEMP_FILE, TORCH_FR_DUMP_DYNAMIC_FILE_NAME, TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "`CHORUS_DUMP_DIR`, "
    "which `chorus explain` reads; `FlightRecorderHook` of torchcomms writes the files of PyTorch's analyzer",
    "TORCH_FR_BUFFER_SIZE, TORCH_NCCL_TRACE_BUFFER_SIZE": "`CHORUS_RECORD`; without it 1024 operations are recorded",
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC, TORCH_NCCL_COORD_CHECK_MILSEC": "the record is written before the error is "
    "raised, and the other ranks are notified at once",
    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "`kill -USR1` makes a process write its record",
    "TORCH_NCCL_EXTRA_DUMP_ON_EXEC": "a record also has the operations that are over",
    "TORCH_FR_CPP_STACK, TORCH_NCCL_TRACE_CPP_STACK, TORCH_NCCL_LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN": "records have the "
    "Python line of each call, and no stacks of C++",
    "TORCH_NCCL_DESYNC_DEBUG": "always on: the error of an overdue operation names the ranks that are missing, and "
    "what they do instead",
    "TORCH_NCCL_PROPAGATE_ERROR": "always on: a failure reaches all ranks",
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "always on: an error of CUDA is the operation's",
    "TORCH_NCCL_ENABLE_TIMING": "the flight record has the times; `Work` has none",
    "TORCH_NCCL_AVOID_RECORD_STREAMS": "always on: tensors are kept until the stream of the caller waits for the "
    "operation",
    "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": "memory of `mem_allocator` is registered; for other memory there "
    "is `register_mem_pool`",
    "TORCH_NCCL_NAN_CHECK": "elements aren't looked at; `NanCheckHook` of torchcomms does",
    "TORCH_NCCL_CUDA_EVENT_CACHE": "is for PyTorch's events",
    "TORCH_NCCL_BCAST_UNIQUEID": "ranks exchange NCCL's id by the group's store",
    "TORCH_NCCL_RANKS_PER_ROOT": "`ncclCommInitRankScalable` isn't called",
    "TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING": "there is no such warning",
}

# A program of two ranks that calls the existing names of a group over the stand-in. It prints the names.
CALLS = """
import json
from datetime import timedelta
import torch.distributed as dist
from torch._C._distributed_c10d import AllreduceOptions, ErrorType

class Pool:
    id = (1, 2)
    def snapshot(self):
        return [{"device": device.index, "address": x.untyped_storage().data_ptr(), "total_size": x.numel() * 4}]

def done(work):
    if work is not None:
        work.wait()

dist.init_process_group("chorus", pg_options={"backend": "nccl"}, device_id=device)
g = dist.group.WORLD
n, me = g.size(), g.rank()
x, y, both = (torch.ones(k, device=device) for k in (4, 4, 8))
lists = [torch.ones(4, device=device) for _ in range(n)]

def messages():
    done(g.send([x], 1 - me, 0) if me else g.recv([y], 1 - me, 0))
    done(g.recv([y], 1 - me, 0) if me else g.send([x], 1 - me, 0))

def coalesced():
    g._start_coalescing(device)
    g.allreduce([x])
    done(g._end_coalescing(device))

def parts():
    part = g.split_group([0, 1], opts=options())
    assert g.comm_split_count() == 1 and part.options.is_high_priority_stream
    done(part.allreduce([x]))
    part.shutdown()

def no_part():
    if me:
        g.perform_nocolor_split(device)
    else:
        g.split_group([0]).shutdown()

calls = {
    "_allgather_base": lambda: done(g._allgather_base(both, x)),
    "_end_coalescing, _start_coalescing": coalesced,
    "_get_backend_name, name": lambda: (g._get_backend_name(), g.name()),
    "_get_sequence_number_for_group, _set_sequence_number_for_group": lambda: (g._get_sequence_number_for_group(),
        g._set_sequence_number_for_group()),
    "_is_initialized": lambda: [1][not g._is_initialized()],
    "_reduce_scatter_base": lambda: done(g._reduce_scatter_base(x, both)),
    "_set_default_timeout, set_timeout": lambda: (g._set_default_timeout(timedelta(seconds=60)),
        g.set_timeout(timedelta(seconds=60))),
    "allgather": lambda: done(g.allgather([lists], [x])),
    "allgather_coalesced": lambda: done(g.allgather_coalesced([[t] for t in lists], [x])),
    "allocate_tensor, supports_tensor_alloc": lambda: (g.allocate_tensor(4, dtype=torch.float32, device=device),
        [1][not g.supports_tensor_alloc(device)]),
    "allreduce": lambda: done(g.allreduce([x])),
    "allreduce_coalesced": lambda: done(g.allreduce_coalesced([x, y])),
    "alltoall": lambda: done(g.alltoall([t.clone() for t in lists], lists)),
    "alltoall_base": lambda: done(g.alltoall_base(both, both.clone(), [], [])),
    "barrier": lambda: done(g.barrier()),
    "bound_device_id": lambda: g.bound_device_id,
    "broadcast": lambda: done(g.broadcast([x], 0)),
    "eager_connect_single_device": lambda: g.eager_connect_single_device(device),
    "gather": lambda: done(g.gather([lists] if me == 0 else [], [x], 0)),
    "get_error": lambda: [1][g.get_error() != ErrorType.SUCCESS],
    "mem_allocator": lambda: g.mem_allocator,
    "monitored_barrier": lambda: g.monitored_barrier(timedelta(seconds=60)),
    "options": lambda: g.options,
    "rank, size": lambda: (g.rank(), g.size()),
    "send, recv": messages,
    "reduce": lambda: done(g.reduce([x], 0)),
    "reduce_scatter": lambda: done(g.reduce_scatter([x], [lists])),
    "register_mem_pool, deregister_mem_pool": lambda: (g.register_mem_pool(pool), g.register_mem_pool(pool),
        done(g.allreduce([x])), g.deregister_mem_pool(pool)),
    "scatter": lambda: done(g.scatter([x], [lists] if me == 0 else [], 0)),
    "comm_split_count": parts,
    "perform_nocolor_split": no_part,
    "suspend, resume": lambda: (g.suspend(), g.resume()),
    "supports_coalescing, supports_shrinking, supports_splitting": lambda: [1][not (g.supports_coalescing
        and g.supports_shrinking and g.supports_splitting)],
    "supports_time_estimate": lambda: [1][g.supports_time_estimate],
    "uid": lambda: int(g.uid),
    "shrink": lambda: g.shrink([]).shutdown(),
}
ends = {
    "recv_anysource": "NCCL has neither tags nor any source",
    "abort": None,
    "shutdown": None,
}

def options():
    theirs = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    theirs.config.cga_cluster_size = 2
    return theirs

pool, found = Pool(), []
for name, call in calls.items():
    if name == "shrink":
        continue  # it ends the group
    call()
    found.append(name)
try:
    g.recv_anysource([x], 0)
except RuntimeError as error:
    assert ends["recv_anysource"] in str(error)
g.shrink([]).shutdown()
dist.destroy_process_group()

# Options by their attributes, which reach the library's configuration.
theirs = options()
theirs.global_ranks_in_group, theirs._timeout = [7], timedelta(seconds=60)
for name, value in OPTIONS.items():
    setattr(theirs.config, name, value)
dist.init_process_group("chorus", pg_options=theirs, device_id=device, timeout=timedelta(seconds=60))
world = dist.group.WORLD
g = world._get_backend(device)
assert world.options is g.options is theirs and theirs.group_name == world.group_name
assert theirs.global_ranks_in_group == [] and world.mem_allocator is g.mem_allocator
world.register_mem_pool(pool)
world.deregister_mem_pool(pool)
dist.all_reduce(cpu := torch.ones(3))
assert (cpu == n).all() and world.get_error() == ErrorType.SUCCESS
part = dist.new_group([0, 1])._get_backend(device)
done(part.allreduce([x]))
assert part._hints == g._hints and world.split_group([0, 1], opts=theirs)._get_backend(device).options is theirs
wanted = {k: str(v) for k, v in {"cga_cluster_size": 2, **OPTIONS}.items()}
assert g._hints == {"is_high_priority_stream": "true", **wanted}, g._hints
done(g.allreduce([x]))
done(g.barrier())
store = dist.distributed_c10d._get_default_store()
store.set(f"done {me}", "")
store.wait(["done 0", "done 1"])
g.abort()
try:
    g.allreduce([x])
    raise SystemExit("an aborted group goes on")
except RuntimeError:
    assert g.get_error() in (ErrorType.COMM_ERROR, ErrorType.REMOTE_ERROR)
g.shutdown()
print(json.dumps([*calls, *ends]))
os._exit(0)
"""


# The fields of NCCL's configuration that options set, and their values.
CONFIG = {"blocking": 0, "collnet_enable": 0, "cta_policy": 2, "max_ctas": 8, "min_ctas": 1, "net_name": "Socket",
          "nvls_ctas": 1, "split_share": 0, "traffic_class": 3}  # fmt: skip
FIELDS = {"cga_cluster_size": 2, **CONFIG}
OPTIONS = ("_timeout", "backend", "config", "global_ranks_in_group", "group_name", "is_high_priority_stream")
POLICIES = ("NCCL_CTA_POLICY_DEFAULT", "NCCL_CTA_POLICY_EFFICIENCY", "NCCL_CTA_POLICY_ZERO")


def stub():
    """The names of ProcessGroupNCCL, of its base classes, and of its options, in PyTorch's stub."""
    path = pathlib.Path(dist.__file__).parents[1] / "_C" / "_distributed_c10d.pyi"
    classes = {c.name: c for c in ast.parse(path.read_text()).body if isinstance(c, ast.ClassDef)}
    found = set()

    def add(body, prefix=""):
        for node in body:
            if isinstance(node, ast.ClassDef):
                add(node.body, f"{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                found.add(prefix + node.name)
            elif isinstance(node, ast.AnnAssign):
                found.add(prefix + node.target.id)

    for name in ("Backend", "ProcessGroupNCCL"):
        add(classes[name].body)
    return found


def runtime():
    """The names of the class itself, in a PyTorch that has it."""
    theirs = getattr(dist, "ProcessGroupNCCL", None)
    if theirs is None:
        return set()
    options = theirs.Options()
    names = set(dir(theirs)) - {"NCCLConfig", "Options"}
    names |= {f"Options.{name}" for name in dir(options)} | {f"NCCLConfig.{name}" for name in dir(options.config)}
    return names


def plain(names):
    return {name for name in names if not name.split(".")[-1].startswith("__") and "pybind11" not in name}


def split(rows):
    return {name.strip() for row in rows for name in row.split(",")}


@pytest.fixture(scope="module")
def called(standin, tmp_path_factory):
    """The names that were called, with the stand-in."""
    program = FOREIGN + f"OPTIONS = {CONFIG!r}\n" + CALLS
    out = run(standin, tmp_path_factory.mktemp("names"), 2, program)
    return json.loads(out.splitlines()[-1])


def test_names(called):
    """Every name of PyTorch's is in docs/nccl.md's table: it was called here, or the table has the reason why it's
    missing. CHORUS_TEST_WRITE=1 writes the table."""
    there = [*called, *(f"Options.{name}" for name in OPTIONS), *(f"NCCLConfig.{name}" for name in FIELDS), *POLICIES]
    assert not split(there) & split(ABSENT)
    theirs = plain(stub() | runtime())
    assert theirs - split(there) - split(ABSENT) == set(), "names of PyTorch's that the table lacks"
    table = "| of `ProcessGroupNCCL` | here |\n|---|---|\n"
    for names in sorted([*called, ", ".join(POLICIES)], key=str.lower):
        table += f"| {quoted(names)} | yes |\n"
    table += f"| of `Options`: {quoted(', '.join(OPTIONS))} | yes |\n"
    table += f"| of `NCCLConfig`: {quoted(', '.join(sorted(FIELDS)))} | yes |\n"
    for names, why in sorted(ABSENT.items()):
        table += f"| {quoted(names)} | no: {why} |\n"
    assert_table("nccl.md", "ProcessGroupNCCL", table, "test_nccl_names.py")


def test_variables():
    """Every variable of PyTorch's class is read by this package, and has a row in docs/nccl.md, or is in its table of
    those without effect. CHORUS_TEST_WRITE=1 writes that."""
    name = re.compile(r"\bTORCH_(?:NCCL|FR)_[A-Z0-9_]+\b")
    headers = pathlib.Path(torch.__file__).parent / "include" / "torch" / "csrc" / "distributed" / "c10d"
    theirs = {n for n in name.findall("".join(h.read_text() for h in headers.rglob("*.hpp"))) if not n.endswith("_")}
    assert "TORCH_NCCL_ENABLE_MONITORING" in theirs
    page = (ROOT / "docs" / "nccl.md").read_text()
    package = pathlib.Path(chorus.__file__).parent
    effective = {n for n in name.findall("".join(p.read_text() for p in package.rglob("*.py"))) if f"| `{n}` |" in page}
    assert set(name.findall((package / "_nccl.py").read_text())) <= effective, "variables that docs/nccl.md lacks"
    assert theirs - effective - split(WITHOUT_EFFECT) == set(), "variables of PyTorch's that docs/nccl.md lacks"
    assert not split(WITHOUT_EFFECT) & effective
    table = "| variable | in its place |\n|---|---|\n"
    for names, why in WITHOUT_EFFECT.items():
        table += f"| {quoted(names)} | {why} |\n"
    assert_table("nccl.md", "variables without effect", table, "test_nccl_names.py -k variables")


def quoted(names):
    return ", ".join(f"`{name.strip()}`" for name in names.split(","))
