"""Reports on a job that hangs: the lines of its Python program, and the call sites of its operations."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import time

import pytest
from browser import Browser
from jobs import Job, chorus, command
from worlds import longest

from chorus import _fastcall
from chorus.bench.port import free_port

# Rank 2 of three does something else while the others go on.
PROGRAM = """\
import ctypes, os, signal, threading, time
import torch, torch.distributed as dist
import chorus

chorus.register()
x = torch.ones(8)
lock = threading.Lock()

def train():
    for _ in range(3):
        dist.all_reduce(x)
    if dist.get_rank() == 2:
        elsewhere()
    dist.all_reduce(x)

def elsewhere():
    {elsewhere}

dist.init_process_group("chorus")
try:
    train()
except chorus.Error:
    pass
"""
WAITING = "waiting: ranks 0-1: all_reduce(float32[8], sum) #4, at train.py:14 (train), for T"
MISSING = '1. missing: rank 2 is missing from all_reduce(float32[8], sum) #4 of "default_pg"'
MISMATCH = '1. mismatch: rank 2 calls something else than all_reduce(float32[8], sum) #4 of "default_pg"'

LOADER = """
    class Stuck(torch.utils.data.Dataset):
        def __len__(self): return 1
        def __getitem__(self, i): time.sleep(600)
    for _ in torch.utils.data.DataLoader(Stuck(), num_workers=1, multiprocessing_context="fork"):
        pass
"""

LONG = ("another shape", "dead", "user code, nothing called")  # near relatives of others
# The behavior of rank 2, and the report.
HANGS = {
    "user code": ("time.sleep(600)", [MISSING, "rank 2: time.sleep in elsewhere (train.py:17), after all_reduce #3 (train.py:11)", WAITING]),
    "user code, nothing called": ("while True: x.numel", [MISSING,
        "rank 2: `while True: x.numel` in elsewhere (train.py:17), after all_reduce #3 (train.py:11)", WAITING]),
    "DataLoader": (LOADER, [MISSING,
        "rank 2: torch.utils.data.dataloader.__next__ in elsewhere (train.py:20), after all_reduce #3 (train.py:11)", WAITING]),
    "C extension": ("libc = ctypes.PyDLL(None); libc.sleep(600)", [MISSING,
        "rank 2: `libc = ctypes.PyDLL(None); libc.sleep(600)` in elsewhere (train.py:17), after all_reduce #3 (train.py:11)", WAITING]),
    "dead": ("os.kill(os.getpid(), signal.SIGKILL)", [MISSING.replace("missing: rank 2 is", "no_dump: rank 2 left no dump (dead, stopped or cut off) and is"),
        "rank 2: left no dump; it is dead", WAITING, "", "no dump: rank 2"]),
    "stopped": ("os.kill(os.getpid(), signal.SIGSTOP)", [MISSING.replace("missing: rank 2 is", "no_dump: rank 2 left no dump (dead, stopped or cut off) and is"),
        "rank 2: left no dump; it does not answer: it's stopped, by a signal or a debugger", WAITING, "", "no dump: rank 2"]),
    "another operation": ("dist.broadcast(x, 1)", [MISMATCH, "rank 2: broadcast(float32[8], root 1) #4, at train.py:17 (elsewhere)", WAITING]),
    "another shape": ("dist.all_reduce(torch.ones(9))", [MISMATCH, "rank 2: all_reduce(float32[9], sum) #4, at train.py:17 (elsewhere)", WAITING]),
    "exception": ("raise ValueError('no such batch')", [MISSING.replace("missing: rank 2", "raised: rank 2 raised an exception and"),
        "rank 2: ValueError: no such batch in elsewhere (train.py:17), after all_reduce #3 (train.py:11)", WAITING]),
    "lock": ("lock.acquire()\n    with lock: pass", [MISSING,
        "rank 2: `with lock: pass` in elsewhere (train.py:18), after all_reduce #3 (train.py:11)", WAITING]),
}  # fmt: skip


def said(job):
    """The output of `chorus explain`, without times."""
    text = re.sub(r"for \d+\.\d+ s", "for T", chorus("explain", job.dumps))
    # The rank that notices first that one is lost differs between runs.
    return [line.strip() for line in text.splitlines()[2:] if not line.strip().startswith("chorus: rank")]


def explained(job, lines, seconds=40):
    """Wait until the report has these lines."""
    until = time.monotonic() + seconds
    while (got := said(job)) != lines:
        assert time.monotonic() < until, "\n".join(got)
        time.sleep(0.1)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.long if n in LONG else ()) for n in HANGS])
def test_hangs(tmp_path, name):
    does, lines = HANGS[name]
    with Job(tmp_path, PROGRAM.format(elsewhere=does.strip())) as job:
        explained(job, lines)


PART = """\
import time
import torch, torch.distributed as dist
import chorus

def elsewhere():
    time.sleep(600)

chorus.register()
dist.init_process_group("chorus")
part = dist.new_group([1, 2], group_desc="mesh_dp")
if dist.get_rank() == 2:
    elsewhere()
if dist.get_rank() == 1:
    dist.all_reduce(torch.ones(8), group=part)
time.sleep(600)
"""


def test_part(tmp_path):
    """A group of some ranks has the program's name for it, and its ranks are those of the job."""
    with Job(tmp_path, PART) as job:
        explained(job, [
            '1. missing: rank 2 is missing from all_reduce(float32[8], sum) #1 of "mesh_dp"',
            "rank 2: time.sleep in elsewhere, at train.py:6",
            "waiting: rank 1: all_reduce(float32[8], sum) #1, at train.py:14 (<module>), for T",
        ])  # fmt: skip
        top = re.sub(r"\d+\.\d+ s", "T", chorus("top", "--looks", "1", job.dumps))
        waits = 'rank 1 waits for rank 2 in all_reduce(float32[8], sum) #1 of "mesh_dp", for T\n  rank 2: time.sleep in elsewhere, at train.py:6\n'
        assert waits in top, top


# Operations through both interfaces and in all ways; each line ends with a number.
CALLS = """\
import time
import torch, torch.distributed as dist
import chorus
from chorus.torchcomms import ReduceOp, distwrap

chorus.register()
dist.init_process_group("chorus")
x, y, comm = torch.ones(4), [torch.ones(4), torch.ones(4)], distwrap.get_comm()
me = dist.get_rank()

class Model:
    def step(self):
        dist.all_reduce(x)  # 1
        dist.all_reduce(x, async_op=True).wait()  # 2
        dist.all_reduce(x.reshape(2, 2).t())  # 3
        dist.group.WORLD.allreduce([x]).wait()  # 4
        dist.broadcast(x, 0)  # 5
        dist.barrier()  # 6
        dist.all_gather(y, x)  # 7
        with dist.distributed_c10d._coalescing_manager(async_ops=True) as work:  # 8
            dist.all_reduce(x)
            dist.all_reduce(x)
        work.wait()
        comm.all_reduce(x, ReduceOp.SUM)  # 9
        comm.broadcast(x, 0)  # 10
        dist.send(x, 1) if me == 0 else dist.recv(x, 0)  # 11
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend if me == 0 else dist.irecv, x, 1 - me)]):  # 12
            work.wait()
        for _ in range(3): dist.all_reduce(x)  # 13

Model().step()
ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
def backward():
    ddp(torch.ones(1, 2)).sum().backward()
backward()
time.sleep(600)
"""


def test_call_sites(tmp_path):
    with Job(tmp_path, CALLS, 2) as job:
        lines = CALLS.splitlines()
        backward = next(i for i, line in enumerate(lines, 1) if ".backward()" in line)
        until = time.monotonic() + 40
        while True:
            entries = job.dump(0)["entries"]
            found = [e["frames"][0] if e["frames"] else None for e in entries]
            if found and found[-1] and found[-1]["name"] == "backward" and found[-1]["line"] == backward:
                break
            assert time.monotonic() < until, found
            time.sleep(0.1)
    numbers = {i: int(line.partition("# ")[2]) for i, line in enumerate(lines, 1) if re.search(r"# \d+$", line)}
    sites = [f for f in found if f and f["line"] in numbers]
    assert [numbers[f["line"]] for f in sites] == [*range(1, 9), 8, *range(9, 14), 13, 13]
    assert {f["filename"] for f in found if f} == {"train.py"}
    assert {f["name"] for f in sites} == {"Model.step"}


def test_site():
    def here():
        return _fastcall.site(0)

    def there():
        return _fastcall.site(0)

    assert here() == here() != there() > 0
    assert _fastcall.site(10000) == 0
    with pytest.raises(TypeError):
        _fastcall.site("x")


@pytest.mark.long
def test_stacks_leave_signals_alone():
    """No signal that a program handles is taken, and the signal that stands for the stacks is never sent."""
    code = textwrap.dedent("""
        import faulthandler, signal
        seen = []
        taken = signal.SIGRTMAX - 1
        signal.signal(taken, lambda *_: seen.append(1))
        before = {n: signal.getsignal(n) for n in range(1, signal.NSIG) if n not in (32, 33)}
        from chorus import _fastcall
        assert _fastcall._PYTHON.stacks_signal not in (0, taken), _fastcall._PYTHON.stacks_signal
        after = {n: signal.getsignal(n) for n in before}
        changed = [n for n in before if before[n] != after[n]]
        assert not changed
        signal.raise_signal(taken)
        assert seen == [1]
    """)
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.long
def test_environment():
    """The library reads variables that a program sets before loading it, and not those that it has deleted."""
    code = textwrap.dedent("""
        import os, pathlib, sys
        os.environ["CHORUS_DUMP_DIR"] = sys.argv[1]
        del os.environ["CHORUS_RECORD"]
        from chorus._comm import Communicator
        comm = Communicator.create(0, 1, None, name="alone")
        assert list(pathlib.Path(sys.argv[1]).glob("*.sock"))
    """)
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.executable, "-c", code, directory], check=True, env=os.environ | {"CHORUS_RECORD": "0"})


def browsed(url, picture):
    """A page's final contents in a browser, and a screenshot; its console must be empty."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not browser:
        pytest.skip("there is no browser here: apt-get install chromium")
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,500", "--enable-logging=stderr",
         "--virtual-time-budget=3000", f"--screenshot={picture}", "--dump-dom", url],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout


# What a reader must scroll sideways for.
CUT = "[...document.body.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > innerWidth).map(e => e.outerHTML)"


@longest
@pytest.mark.long
def test_page(tmp_path):
    """The live page of a job with a stopped rank, and the file of one with a rank in user code."""
    for name, does in ("stopped", HANGS["stopped"][0]), ("code", HANGS["user code"][0]):
        (tmp_path / name).mkdir()
        with Job(tmp_path / name, PROGRAM.format(elsewhere=does)) as job:
            explained(job, HANGS["stopped" if name == "stopped" else "user code"][1])
            if name == "stopped":
                port = free_port()
                server = subprocess.Popen([command(), "top", "--http", f"127.0.0.1:{port}", job.dumps])
                try:
                    until = time.monotonic() + 10
                    while socket.socket().connect_ex(("127.0.0.1", port)):
                        assert time.monotonic() < until
                        time.sleep(0.02)
                    page = browsed(f"http://127.0.0.1:{port}/?looks=1", tmp_path / "live.png")
                finally:
                    server.kill()
                    server.wait()
                assert re.search(r'<tr class="stuck" data-rank="2"><td class="rank n">2</td><td class="at" colspan="7">stopped, by a signal or a debugger', page), page
                assert "ranks 0, 1 wait for rank 2" in page and "train.py:14 (train)" in page, page
            else:
                chorus("explain", "--html", tmp_path / "explained.html", job.dumps)
                page = browsed(f"file://{tmp_path}/explained.html", tmp_path / "explained.png")
                assert re.search(r'<tr class="stuck" data-rank="2">.*time\.sleep in elsewhere \(train\.py:17\), after all_reduce #3 \(train\.py:11\)', page), page
                assert "missing: rank 2, all_reduce(float32[8], sum) #4" in page, page
                with Browser() as phone:
                    phone.open(f"file://{tmp_path}/explained.html", 390, 844)
                    cut = phone.evaluate(CUT)
                    assert not cut, cut
