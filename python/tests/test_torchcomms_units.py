"""The subjects of the original's own unit tests, rewritten from its documentation: hooks, copies, backends written in
Python, and communicators as backends of process groups. All in one process."""

import copy
import datetime
import json
import logging
import os
import pickle
import threading
import urllib.error
import urllib.request

import pytest
import torch
import torch.distributed as dist

import chorus
from chorus import torchcomms
from chorus.torchcomms import _comms, hooks
from chorus.torchcomms._comms import OpName
from chorus.torchcomms._wrapper import CommGroup

CPU = torch.device("cpu")
SUM = torchcomms.ReduceOp.SUM
_names = iter(range(10**6))


@pytest.fixture
def comm():
    """A communicator of the fake backend, finalized after the test."""
    made = torchcomms.new_comm("fake", CPU, f"unit{next(_names)}", rank=0, world_size=1)
    yield made
    made.finalize()


@pytest.fixture
def real():
    made = torchcomms.new_comm("gloo", CPU, f"unit{next(_names)}", rank=0, world_size=1)
    yield made
    made.finalize()


# ---- hooks ----


def test_hooks_are_called_in_the_order_of_their_registration(comm):
    seen = []
    comm.register_pre_hook(lambda op, op_id, args: seen.append(("first", op)))
    comm.register_pre_hook(lambda op, op_id, args: seen.append(("second", op)))
    comm.register_post_hook(lambda op_id, args: seen.append(("after", type(args).__name__)))
    comm.all_reduce(torch.ones(10), SUM, async_op=False)
    comm.barrier(async_op=False)
    names = [("all_reduce", "AllReducePostHookArgs"), ("barrier", "BarrierPostHookArgs")]
    assert seen == [
        x for op, after in names for x in (("first", OpName[op]), ("second", OpName[op]), ("after", after))
    ]


def test_numbers_of_operations(comm):
    before, after = [], []
    comm.register_pre_hook(lambda op, op_id, args: before.append(op_id))
    comm.register_post_hook(lambda op_id, args: after.append(op_id))
    for _ in range(3):
        comm.all_reduce(torch.ones(2), SUM, async_op=False)
    assert before == after == list(range(before[0], before[0] + 3))


def test_a_removed_hook_is_not_called(comm):
    calls = []
    handle = comm.register_pre_hook(lambda *args: calls.append(args))
    assert isinstance(handle, torchcomms.RemovableHandle)
    comm.barrier(async_op=False)
    handle.remove()
    comm.barrier(async_op=False)
    assert len(calls) == 1
    aborts = comm.register_abort_hook(lambda: calls.append("abort"))
    aborts.remove()


@pytest.mark.parametrize(
    "call, want",
    [
        (lambda c, x: c.broadcast(x, root=0, async_op=False), {"root": 0, "async_op": False}),
        (lambda c, x: c.reduce(x, 0, SUM, async_op=True), {"root": 0, "async_op": True}),
        (lambda c, x: c.send(x, 0, False), {"peer": 0, "async_op": False}),
        (lambda c, x: c.scatter(x, [x], 0, False), {"root": 0, "async_op": False}),
    ],
)
def test_arguments_that_hooks_see(comm, call, want):
    seen = []
    comm.register_pre_hook(lambda op, op_id, args: seen.append(args))
    call(comm, torch.ones(4))
    (args,) = seen
    assert {name: getattr(args, name) for name in want} == want


# ---- the flight recorder ----


def _entries(recorder, **how):
    return json.loads(recorder.dump_json(**how))["entries"]


def test_a_recorder_is_enabled_while_it_is_registered(real):
    recorder = hooks.FlightRecorderHook(max_entries=100, isolated=True)
    assert recorder.size() == 0 and not recorder.is_enabled()
    recorder.register_with_comm(real)
    assert recorder.is_enabled()
    real.all_reduce(torch.ones(3, 4), SUM, async_op=False)
    recorder.unregister()
    assert not recorder.is_enabled() and recorder.size() == 1
    real.all_reduce(torch.ones(3, 4), SUM, async_op=False)
    assert recorder.size() == 1
    empty = hooks.FlightRecorderHook(max_entries=0)
    empty.register_with_comm(real)
    assert not empty.is_enabled()


def test_a_recorders_ring_and_reset(real):
    recorder = hooks.FlightRecorderHook(max_entries=10, isolated=True)
    recorder.register_with_comm(real)
    for fill in (10, 3):
        for _ in range(fill):
            real.all_reduce(torch.ones(2), SUM, async_op=False)
        entries = _entries(recorder)
        assert recorder.size() == len(entries) == fill
        ids = [e["record_id"] for e in entries]
        times = [e["time_created_ns"] for e in entries]
        assert ids == sorted(ids) and times == sorted(times)
        recorder.reset()
        assert recorder.size() == 0


def test_durations(real):
    recorder = hooks.FlightRecorderHook()
    recorder.register_with_comm(real)
    real.all_reduce(torch.ones(2), SUM, async_op=False)
    real.broadcast(torch.ones(2), 0, async_op=True).wait()
    real.barrier(async_op=False)
    for entry in _entries(recorder):
        assert entry["retired"] and entry["state"] == "completed" and entry["duration_ms"] > 0
    assert _entries(recorder, include_completed=False) == []


def test_a_recorder_has_splits_and_follows_them(real):
    recorder = hooks.FlightRecorderHook()
    recorder.register_with_comm(real)
    first = real.split([0], "level1")
    second = first.split([0], "level2")
    assert real.split([]) is None
    for c in (real, first, second):
        c.all_reduce(torch.ones(2), SUM, async_op=False)
    entries = _entries(recorder)
    assert [(e["process_group"][0], e["profiling_name"]) for e in entries] == [
        (real.get_name(), "gloo:split"), ("level1", "gloo:split"), (real.get_name(), "gloo:split"),
        (real.get_name(), "gloo:all_reduce"), ("level1", "gloo:all_reduce"), ("level2", "gloo:all_reduce"),
    ]  # fmt: skip
    assert all(e["state"] == "completed" for e in entries)
    assert json.loads(recorder.dump_json())["pg_config"]["level2"]["ranks"] == "[0]"
    second.finalize()
    first.finalize()


def test_files_of_a_recorder(real, tmp_path, monkeypatch):
    recorder = hooks.FlightRecorderHook()
    recorder.register_with_comm(real)
    real.all_reduce(torch.ones(2), SUM, async_op=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TORCHCOMM_FR_DUMP_TEMP_FILE", raising=False)
    want = [str(tmp_path / "torch" / "comm_lib_trace_rank_0"), f"{tmp_path}/trace_0", f"{tmp_path}/whole"]
    assert recorder.dump_file(0) == want[0]
    monkeypatch.setenv("TORCHCOMM_FR_DUMP_TEMP_FILE", f"{tmp_path}/trace_")
    assert recorder.dump_file(0) == want[1]
    monkeypatch.setenv("TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME", "1")
    monkeypatch.setenv("TORCHCOMM_FR_DUMP_TEMP_FILE", want[2])
    assert recorder.dump_file(0) == want[2]
    for path in want:
        with open(path, "rb") as file:
            dump = pickle.load(file)
        assert dump["version"] == "2.10" and [e["profiling_name"] for e in dump["entries"]] == ["gloo:all_reduce"]
    monkeypatch.setenv("TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME", "perhaps")
    with pytest.raises(RuntimeError, match="TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME='perhaps'"):
        recorder.dump_file(0)


def test_a_record_is_written_when_a_communicator_breaks(real, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHCOMM_FR_DUMP_TEMP_FILE", f"{tmp_path}/aborted_")
    logger, told, words = logging.getLogger("chorus"), threading.Event(), []

    class Told(logging.Handler):
        def emit(self, record):
            words.append(record.getMessage())
            told.set()

    monkeypatch.setattr(logger, "handlers", [Told()])
    monkeypatch.setattr(logger, "level", logging.INFO)
    logger.manager._clear_cache()
    recorder = hooks.FlightRecorderHook()
    recorder.register_with_comm(real)
    real.all_reduce(torch.ones(2), SUM, async_op=False)
    real.abort()
    assert told.wait(30)
    assert words == [f"{real.get_name()} broke; its flight record is in {tmp_path}/aborted_0"]
    with open(tmp_path / "aborted_0", "rb") as file:
        assert [e["profiling_name"] for e in pickle.load(file)["entries"]] == ["gloo:all_reduce"]


def test_pytorchs_debug_server_has_the_records(real, tmp_path, monkeypatch):
    c10d = torch._C._distributed_c10d
    if not hasattr(c10d, "_get_handler_names"):
        pytest.skip("this PyTorch has no debug server for Python's handlers")
    recorder = hooks.FlightRecorderHook()
    recorder.register_with_comm(real)
    again = hooks.FlightRecorderHook()  # of the same operations
    again.register_with_comm(real)
    real.all_reduce(torch.ones(2), SUM, async_op=False)
    server = c10d._WorkerServer("::", 0)

    def ask(name):
        url = f"http://localhost:{server.port}/handler/{name}"
        with urllib.request.urlopen(urllib.request.Request(url, method="POST")) as answer:
            return answer.read().decode()

    try:
        whole = json.loads(ask("torchcomms_fr_trace_json"))
        mine = [e for e in whole["entries"] if e["process_group"][0] == real.get_name()]
        assert [e["profiling_name"] for e in mine] == ["gloo:all_reduce"]
        assert list(whole["pg_config"])[mine[0]["pg_id"]] == real.get_name()
        active = json.loads(ask("torchcomms_fr_trace_json?onlyactive=true"))
        assert mine[0]["op_id"] not in [e["op_id"] for e in active["entries"]]
        assert "entries" not in json.loads(ask("torchcomms_fr_trace_json?includecollectives=false"))
        with pytest.raises(urllib.error.HTTPError, match="400"):
            ask("torchcomms_fr_trace_json?onlyactive=1")
        monkeypatch.setenv("TORCHCOMM_FR_DUMP_TEMP_FILE", f"{tmp_path}/asked_")
        assert f"{tmp_path}/asked_0" in ask("torchcomms_fr_dump_file") and os.path.exists(f"{tmp_path}/asked_0")
        assert json.loads(ask("torchcomms_health_check")) == {"healthy": True}
        real.abort()
        while not real.is_aborted():
            pass
        assert json.loads(ask("torchcomms_health_check")) == {"healthy": False}
    finally:
        server.shutdown()


# ---- the log ----


def _lines(path):
    with open(path) as file:
        return [line.rstrip("\n") for line in file]


def test_clog(real, tmp_path):
    path = tmp_path / "log"
    log = hooks.clog(output=str(path), events=["ALL"])
    (head,) = _lines(path)
    assert head.startswith("V|1|base_timestamp=")
    log.register_with_comm(real)
    name = real.get_name()
    assert _lines(path)[1] == f"new_comm|comm={name}|rank=0|world_size=1"
    with pytest.raises(RuntimeError, match="already registered"):
        log.register_with_comm(real)
    x = torch.ones(1024)
    for _ in range(2):
        real.all_reduce(x, SUM, async_op=False)
    for call in (
        lambda: real.broadcast(torch.ones(256, dtype=torch.float16), root=0, async_op=False),
        lambda: real.reduce(x, 0, torchcomms.ReduceOp.PRODUCT, async_op=False),
        lambda: real.all_gather_single(x.clone(), x, async_op=False),
        lambda: real.reduce_scatter(x.clone(), [x], torchcomms.ReduceOp.AVG, async_op=False),
        lambda: real.all_to_all_v_single(x.clone(), x, [5], [5], async_op=False),
        lambda: real.gather([x.clone()], x, 0, async_op=False),
        lambda: real.scatter(x, [x.clone()], 0, async_op=False),
        lambda: real.all_to_all([x.clone()], [x], async_op=False),
        lambda: real.barrier(async_op=False),
    ):
        call()
    batch = real.batch_op_create()
    batch.send(x, 0)
    batch.recv(x.clone(), 0)
    batch.issue(False)
    lines = _lines(path)[2:]
    assert [line.split("|", 1)[1] for line in lines if "|sig|" in line] == [
        f"sig|{text}|comm={name}" for text in (
            "all_reduce|in_count=1024|out_count=1024|dtype=f32|red_op=sum|async_op=f",
            "broadcast|in_count=256|out_count=256|dtype=f16|root=0|async_op=f",
            "reduce|in_count=1024|out_count=1024|dtype=f32|red_op=prod|root=0|async_op=f",
            "all_gather_single|in_count=1024|out_count=1024|dtype=f32|async_op=f",
            "reduce_scatter|in_counts=1024|out_count=1024|dtype=f32|red_op=avg|async_op=f",
            "all_to_all_v_single|in_splits=5|out_splits=5|dtype=f32|async_op=f",
            "gather|in_count=1024|out_counts=1024|dtype=f32|root=0|async_op=f",
            "scatter|in_counts=1024|out_count=1024|dtype=f32|root=0|async_op=f",
            "all_to_all|in_counts=1024|out_counts=1024|dtype=f32|async_op=f",
            "barrier|async_op=f",
            "batch_op_issue|num_ops=2|async_op=f",
        )
    ]  # fmt: skip
    events = [line.split("|") for line in lines if "|sig|" not in line]
    assert [e[1] for e in events[:6]] == ["Q", "S", "E", "Q", "S", "E"] and all(e[0] == "C1" for e in events[:6])
    assert [e[2] for e in events if e[1] == "Q"] == [f"work_id={i}" for i in range(1, 13)]
    log.unregister()
    real.barrier(async_op=False)
    assert _lines(path)[2:] == lines


def test_clog_has_waits(real, group, tmp_path):
    """There is a line for the first wait for an asynchronous operation, with any method, and none for others."""
    path, x = tmp_path / "log", torch.ones(4)
    log = hooks.clog(output=str(path), events=["LIFECYCLE"])
    log.register_with_comm(real)
    works = [
        real.all_reduce(x, SUM, async_op=True),
        real.broadcast(x, 0, async_op=True),
        group.reduce([x], root=0),
        real.barrier(async_op=True),
    ]
    real.all_reduce(x, SUM, async_op=False)
    assert not any("|W|" in line for line in _lines(path))
    works[1].wait_blocking()
    for work in works[:3]:
        work.wait()
        work.wait()
    signatures = {line.split("|")[0]: line.split("|")[2] for line in _lines(path) if "|sig|" in line}
    waits = [signatures[line.split("|")[0]] for line in _lines(path) if "|W|" in line]
    assert waits == ["broadcast", "all_reduce", "reduce"]
    works[3].wait()
    log.unregister()


def test_clogs_are_separate_and_follow_splits(real, tmp_path):
    other = torchcomms.new_comm("gloo", CPU, "other", rank=0, world_size=1)
    logs = [hooks.clog(str(tmp_path / n), [], ["buffers"]) for n in "ab"]
    x = torch.ones(3)
    for log, c in zip(logs, (real, other), strict=True):
        log.register_with_comm(c)
    child = real.split([0], "child")
    child.all_reduce(x, SUM, False)
    other.all_reduce(x, SUM, True).wait()
    first, second = (_lines(tmp_path / n) for n in "ab")
    assert f"split|parent={real.get_name()}|child=child|ranks=0" in first
    assert any(f"async_op=f|buf={hex(x.data_ptr())}|comm=child" in line for line in first)
    assert not any("comm=other" in line for line in first) and any("comm=other" in line for line in second)
    assert not any("|E|" in line for line in first + second)  # it was asked for no events
    with pytest.raises(ValueError, match="'START' is not one of"):
        hooks.clog(str(tmp_path / "c"), ["START"])
    child.finalize()
    other.finalize()


# ---- the check for NaNs ----


def test_nan_check(comm):
    other = torchcomms.new_comm("fake", CPU, "other", rank=0, world_size=1)
    check, bad = hooks.NanCheckHook(), torch.tensor([1.0, float("nan")])
    assert not check.is_enabled()
    for c in (comm, other):
        check.register_with_comm(c)
    assert check.is_enabled()
    for c in (comm, other):
        for good in (torch.ones(3), torch.tensor([1.0, float("inf")]), torch.tensor([1, 2])):
            c.all_reduce(good, SUM, async_op=False)
        c.barrier(async_op=False)
        with pytest.raises(RuntimeError, match=f"{c.get_name()}.*all_reduce"):
            c.all_reduce(bad, SUM, async_op=False)
        with pytest.raises(RuntimeError, match="broadcast"):
            c.broadcast(bad, root=0, async_op=False)
    check.unregister()
    assert not check.is_enabled()
    comm.all_reduce(bad, SUM, async_op=False)
    outputs = hooks.NanCheckHook(check_inputs=False, check_outputs=True)
    outputs.register_with_comm(comm)
    with pytest.raises(RuntimeError, match="output"):
        comm.all_gather_single(bad, torch.ones(2), async_op=False)
    outputs.unregister()
    other.finalize()


# ---- copies ----


def test_copies_of_a_communicator_are_itself(real):
    work = real.all_reduce(torch.ones(2), SUM, async_op=True)
    for same in (real, work):
        assert copy.copy(same) is same and copy.deepcopy(same) is same
    kept = copy.deepcopy({"comm": real, "x": torch.ones(2)})
    assert kept["comm"] is real
    work.wait()


def test_copies_of_a_window(real):
    x = torch.arange(4.0)
    window = real.new_window(x)
    other = copy.deepcopy(window)
    assert other is not window and other.get_tensor() is not x and other.get_tensor().equal(x)
    x[0] = 42
    assert other.get_tensor()[0] == 0
    window.tensor_deregister()
    other.put(torch.full((2,), 7.0), 0, 1, async_op=False)
    assert other.get_tensor().tolist() == [0, 7, 7, 3]
    other.signal(peer_rank=0, async_op=False)
    other.signal(dst_rank=0)
    other.signal(0)
    for _ in range(3):
        other.wait_signal(peer_rank=0, async_op=False)
    for bad in ({}, {"peer_rank": 0, "dst_rank": 0}):
        with pytest.raises(TypeError, match="one rank"):
            other.signal(**bad)
    other.tensor_deregister()


def test_copies_of_values(real):
    op = torchcomms.ReduceOp.PREMUL_SUM(2.0)
    options = torchcomms.CommOptions(hints={"a": "b"})
    for value in (SUM, op, options, torchcomms.BatchP2POptions(), torchcomms.Timeout(seconds=3)):
        assert copy.copy(value) == value and copy.deepcopy(value) == value
        assert pickle.loads(pickle.dumps(value)) == value
    assert copy.deepcopy(options).hints is not options.hints
    batch = real.batch_op_create()
    batch.send(torch.ones(2), 0)
    other = copy.deepcopy(batch)
    other.recv(torch.zeros(2), 0)
    assert len(batch.ops) == 1 and other.ops[0].tensor is not batch.ops[0].tensor
    other.issue(async_op=False)
    assert other.ops[1].tensor.tolist() == [1, 1]


# ---- backends written in Python ----


class Mine(torchcomms.TorchCommBackend):
    """A backend as in the original's documentation: arguments by position, and none for an operation's options."""

    def __init__(self):
        super().__init__()
        self.size, self.calls, self.given = 1, [], None

    def init(self, device, name, options):
        self.device, self.name, self.options = device, name, options

    def finalize(self):
        self.calls.append("finalize")

    def get_rank(self):
        return 0

    def get_size(self):
        return self.size

    def get_backend_name(self):
        return "mine_py"

    def get_comm_name(self):
        return self.name

    def split(self, ranks, name, options):
        part = type(self)()
        part.size, part.name, part.given = len(ranks), name, options
        return part if ranks else None


class Waited:
    done = False

    def wait(self):
        self.done = True


CALLS = {
    "send": lambda c, x: c.send(x, 0, False),
    "recv": lambda c, x: c.recv(x, 0, False),
    "broadcast": lambda c, x: c.broadcast(x, 0, False),
    "all_reduce": lambda c, x: c.all_reduce(x, SUM, False),
    "reduce": lambda c, x: c.reduce(x, 0, SUM, False),
    "all_gather": lambda c, x: c.all_gather([x], x, False),
    "all_gather_v": lambda c, x: c.all_gather_v([x], x, False),
    "all_gather_single": lambda c, x: c.all_gather_single(x, x, False),
    "reduce_scatter": lambda c, x: c.reduce_scatter(x, [x], SUM, False),
    "reduce_scatter_v": lambda c, x: c.reduce_scatter_v(x, [x], SUM, False),
    "reduce_scatter_single": lambda c, x: c.reduce_scatter_single(x, x, SUM, False),
    "all_to_all_single": lambda c, x: c.all_to_all_single(x, x, False),
    "all_to_all_v_single": lambda c, x: c.all_to_all_v_single(x, x, [1], [1], False),
    "all_to_all": lambda c, x: c.all_to_all([x], [x], False),
    "barrier": lambda c, x: c.barrier(False),
    "scatter": lambda c, x: c.scatter(x, [x], 0, False),
    "gather": lambda c, x: c.gather([x], x, 0, False),
}


def _recorded(name):
    def call(self, *args):
        self.calls.append((name, len(args)))

    return call


for _name in CALLS:
    setattr(Mine, _name, _recorded(_name))
torchcomms.register_backend("mine_py", Mine)


@pytest.fixture
def mine():
    made = torchcomms.new_comm("mine_py", CPU, name=f"unit{next(_names)}")
    yield made
    made.finalize()


def test_a_backend_in_python_is_registered_and_made(mine):
    assert torchcomms._is_backend_registered("mine_py") and torchcomms.is_backend_built("mine_py")
    assert (mine.get_rank(), mine.get_size(), mine.get_backend()) == (0, 1, "mine_py")
    assert mine.get_backend_impl().options == mine.get_options() and mine.get_device() == CPU
    other = torchcomms.new_comm("mine_py", CPU, name="another")
    assert other.get_backend_impl() is not mine.get_backend_impl() and other.get_name() == "another"
    other.finalize()
    assert other.get_backend_impl().calls == ["finalize"]


@pytest.mark.parametrize("name", CALLS)
def test_operations_of_a_backend_in_python(mine, name):
    work = CALLS[name](mine, torch.ones(4))
    work.wait()
    assert work.is_completed() and [n for n, _ in mine.get_backend_impl().calls] == [name]


def test_handles_of_a_backend_in_python(mine, monkeypatch):
    monkeypatch.setattr(Mine, "all_reduce", lambda self, tensor, op, async_op: Waited())
    work = mine.all_reduce(torch.ones(4), SUM, async_op=True)
    assert not work.is_completed()
    work.wait()
    assert work.is_completed()

    def doubled(self, tensor, op, async_op):
        assert op.type is torchcomms.RedOpType.SUM
        tensor *= 2

    monkeypatch.setattr(Mine, "all_reduce", doubled)
    x = torch.ones(4)
    mine.all_reduce(x, SUM, async_op=False)
    assert x.tolist() == [2] * 4


def test_hooks_of_a_backend_in_python(mine):
    seen = []
    handle = mine.register_pre_hook(lambda op, op_id, args: seen.append(op))
    mine.all_reduce(torch.ones(4), SUM, async_op=False)
    handle.remove()
    mine.barrier(async_op=False)
    assert seen == [OpName.all_reduce]
    recorder = hooks.FlightRecorderHook()  # such a backend doesn't report that it's broken
    recorder.register_with_comm(mine)
    mine.barrier(async_op=False)
    assert recorder.size() == 1


def test_split_of_a_backend_in_python(mine):
    second = datetime.timedelta(seconds=1)
    part = mine.split([0], name="part", hints={"a": "b"}, timeout=second)
    given = part.get_backend_impl().given
    assert isinstance(given, torchcomms.CommOptions) and given.hints == {"a": "b"} and given.timeout == second
    assert (part.get_rank(), part.get_size(), part.get_name()) == (0, 1, "part")
    assert mine.split([], "none") is None
    plain = mine.split([0], "plain")
    assert plain.get_backend_impl().given.timeout == mine.get_options().timeout
    for c in (part, plain):
        c.finalize()


def test_what_a_backend_in_python_lacks(mine):
    for call in (
        lambda: mine.gather_single(torch.ones(1), torch.ones(1), 0, False),
        lambda: mine.set_timeout(datetime.timedelta(seconds=1)),
        lambda: mine.register_abort_hook(print),
        mine.new_window,
        mine.abort,
        mine.get_init_handle,
    ):
        with pytest.raises(chorus.UnsupportedError, match="not implemented for communicator"):
            call()
    with pytest.raises(TypeError, match="is not a subclass"):
        torchcomms.register_backend("other", object)
    with pytest.raises(ModuleNotFoundError):
        torchcomms.new_comm("nonesuch", CPU, "x")


# ---- process groups ----


@pytest.fixture
def group(real):
    return CommGroup(real)


@pytest.mark.parametrize("kind", ["fake", "gloo"])
def test_hooks_see_the_operations_of_a_group(kind):
    comm = torchcomms.new_comm(kind, CPU, f"unit{next(_names)}", rank=0, world_size=1)
    group, x = CommGroup(comm), torch.ones(10)
    assert isinstance(group, dist.ProcessGroup) and group.get_comm() is comm
    before, after = [], []
    handles = [
        comm.register_pre_hook(lambda op, op_id, args: before.append((op, op_id, args))),
        comm.register_post_hook(lambda op_id, args: after.append((op_id, args))),
    ]
    group.allreduce([x]).wait()
    group.broadcast(x, root=0).wait()
    group.barrier().wait()
    assert [op for op, _, _ in before] == [OpName.all_reduce, OpName.broadcast, OpName.barrier]
    assert before[0][2].tensor is x and before[0][2].op == SUM and before[0][2].async_op
    assert before[1][2].root == 0
    numbers = [op_id for _, op_id, _ in before]
    assert numbers == sorted(numbers) == [op_id for op_id, _ in after]
    assert all(args.work.is_completed() for _, args in after) or kind == "gloo"
    for handle in handles:
        handle.remove()
    group.allreduce([x]).wait()
    assert len(before) == len(after) == 3
    comm.finalize()


def test_hooks_see_every_operation_of_a_group(real, group):
    x, seen = torch.ones(2, 3), []
    real.register_pre_hook(lambda op, op_id, args: seen.append((op, args)))
    recorder = hooks.FlightRecorderHook()
    recorder.register_with_comm(real)
    premultiplied = dist._make_nccl_premul_sum(2.0)
    calls = [
        (OpName.reduce, lambda: group.reduce([x], root=0)),
        (OpName.all_gather, lambda: group.allgather([[x.clone()]], [x])),
        (OpName.all_gather_single, lambda: group._allgather_base(x.clone(), x)),
        (OpName.reduce_scatter, lambda: group.reduce_scatter([x.clone()], [[x]])),
        (OpName.reduce_scatter_single, lambda: group._reduce_scatter_base(x.clone(), x)),
        (OpName.all_to_all, lambda: group.alltoall([x.clone()], [x])),
        (OpName.all_to_all_single, lambda: group.alltoall_base(x.clone(), x, [], [])),
        (OpName.all_to_all_v_single, lambda: group.alltoall_base(x.clone(), x, [2], [2])),
        (OpName.gather, lambda: group.gather([[x.clone()]], [x], root=0)),
        (OpName.scatter, lambda: group.scatter([x.clone()], [[x]], root=0)),
        (OpName.all_reduce, lambda: group.allreduce([x], op=premultiplied)),
    ]
    for _, call in calls:
        call().wait()
    received = torch.zeros(2, 3)
    works = [group.send([x], 0, 0), group.recv([received], 0, 0)]
    for work in works:
        work.wait()
    assert [op for op, _ in seen] == [op for op, _ in calls] + [OpName.send, OpName.recv]
    by_name = dict(seen)
    assert by_name[OpName.all_to_all_v_single].input_split_sizes == [2]
    assert by_name[OpName.all_reduce].op == torchcomms.ReduceOp.PREMUL_SUM(2.0) and received.equal(x)
    assert [e["state"] for e in _entries(recorder)] == ["completed"] * len(seen)


def test_a_group_ends_its_communicator():
    comm = torchcomms.new_comm("gloo", CPU, f"unit{next(_names)}", rank=0, world_size=1)
    group = CommGroup(comm)
    group.shutdown()
    group.shutdown()
    with pytest.raises(chorus.FinalizedError):
        comm.barrier(async_op=False)
    with pytest.raises(TypeError, match="can't be a process group"):
        CommGroup(torchcomms.new_comm("mine_py", CPU, "x"))


# ---- names ----


def test_option_classes():
    names = [n for n in _comms.__all__ if n.endswith("Options") and n not in ("CommOptions", "ReconfigureOptions")]
    assert len(names) == 19
    for name in names:
        options = getattr(_comms, name)()
        assert options.hints == {} and options.timeout == datetime.timedelta(0), name
        options.hints["algorithm"] = "ring"
        assert getattr(_comms, name)().hints == {} and options.__class__.__name__ == name


def test_class_of_the_gloo_backend(real):
    from chorus.torchcomms._comms_gloo import TorchCommGloo

    assert isinstance(real.get_backend_impl(), TorchCommGloo)


def test_layout_of_one_rank(real, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("LOCAL_RANK", "3")
    layout = real.get_node_rank_layout()
    assert layout == torchcomms.NodeRankLayout(1, 1, [0], [3], True) and layout.is_single_node()
    assert real.get_node_rank_layout() is layout
    off = torchcomms.new_comm("gloo", CPU, "off", rank=0, world_size=1, hints={"compute_node_rank_layout": "false"})
    with pytest.raises(chorus.UnsupportedError, match="compute_node_rank_layout is false"):
        off.get_node_rank_layout()
    off.finalize()


def _layout(peers):
    """Two hosts, set by hints: one of rank 0, one of the others."""
    store = dist.PrefixStore("layout", dist.TCPStore("127.0.0.1", peers.port, peers.size, False))
    comm = torchcomms.new_comm("gloo", CPU, f"layout{next(_names)}", store=store, rank=peers.rank,
        world_size=peers.size, hints={"host_id": f"host{min(peers.rank, 1)}"})  # fmt: skip
    layout, rest = comm.get_node_rank_layout(), comm.split([0] if peers.rank == 0 else [2, 1], "rest")
    of_rest = rest.get_node_rank_layout()
    for c in (rest, comm):
        c.finalize()
    return layout, of_rest


def test_layout(monkeypatch):
    from worlds import world_of

    told = world_of(3).run(_layout)
    assert [t.num_nodes for t, _ in told] == [2] * 3 and not any(t.uniform for t, _ in told)
    assert [t.local_node_global_rank_ids for t, _ in told] == [[0], [1, 2], [1, 2]]
    assert [t.local_node_local_rank_ids for t, _ in told] == [[0], [0, 1], [0, 1]]
    assert [t.local_node_global_rank_ids for _, t in told] == [[0], [2, 1], [2, 1]]
    assert all(t.is_single_node() and t.uniform for _, t in told)
