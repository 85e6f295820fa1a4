"""The life of processes: they are interrupted, fork, exit, die and are restarted."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from jobs import Job
from worlds import longest

HEADER = """
import os, sys, time, signal, datetime
import torch, torch.distributed as dist
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def ready(): print("ready", flush=True)
def init():
    dist.init_process_group("chorus", timeout=datetime.timedelta(seconds=60))
    dist.all_reduce(torch.ones(1))
    ready()
"""


class Script:
    """A program on every rank of a small world."""

    def __init__(self, body, size=2):
        from worlds import free_port

        env = dict(os.environ, WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
        text = HEADER + textwrap.dedent(body)
        self.ranks = [
            subprocess.Popen(
                [sys.executable, "-c", text], env=dict(env, RANK=str(r)), text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            for r in range(size)
        ]

    def await_ready(self):
        for process in self.ranks:
            assert process.stdout.readline() == "ready\n", process.communicate()[1]

    def ended(self, codes=None):
        """Standard output and error of each rank, which must end with the given codes."""
        results = []
        for process in self.ranks:
            try:
                results.append(process.communicate(timeout=90))
            except subprocess.TimeoutExpired:
                for other in self.ranks:
                    other.kill()
                raise
        got = [p.returncode for p in self.ranks]
        assert got == (codes or [0] * len(self.ranks)), (got, results)
        return results


LONG_WAITS = [
    pytest.param(wait, marks=pytest.mark.long)
    for wait in (
        "dist.all_reduce(x, async_op=True).wait()",
        "[dist.all_reduce(x, async_op=True) for _ in range(3)][2].wait()",
        "world._start_coalescing(cpu), dist.irecv(x, 1), dist.irecv(x[:3], 1), world._end_coalescing(cpu).wait()",
        "dist.barrier()",
        "dist.recv(x)",
        "world.recv([x], 1, 0).wait(datetime.timedelta(seconds=50))",
        "dist.new_group()",
    )
]


@pytest.mark.parametrize(
    "wait",
    [
        "dist.all_reduce(x)",
        pytest.param("dist.send(torch.ones(1 << 22), 1)", marks=pytest.mark.long),
        pytest.param("dist.recv(x, 1)", marks=pytest.mark.long),
        *LONG_WAITS,
    ],
)
def test_interrupt(wait):
    """Ctrl-C ends any wait, and the operation: the group ends at once. The program's own signal handler runs."""
    script = Script(
        f"""
        init()
        x, world, cpu = torch.ones(1 << 16), dist.group.WORLD, torch.device("cpu")
        try:
            if rank == 0:
                {wait}
            else:
                time.sleep(100)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            dist.destroy_process_group()
            os._exit(7)
        """
    )
    script.await_ready()
    time.sleep(0.3)  # so that it's likely in the wait; an interrupt before it must work as well
    script.ranks[0].send_signal(signal.SIGINT)
    try:
        assert script.ranks[0].wait(20) == 7, script.ranks[0].communicate()
    except subprocess.TimeoutExpired:
        for process in script.ranks:
            process.kill()
        raise
    script.ranks[1].send_signal(signal.SIGINT)
    script.ended([7, 7])


@pytest.mark.long
def test_interrupted_receive_takes_no_message():
    """A receive that Ctrl-C has ended is canceled: the next one gets the message."""
    script = Script(
        """
        init()
        x = torch.zeros(3)
        if rank == 0:
            for wait in (lambda: dist.recv(x, 1), lambda: dist.irecv(x, 1).wait()):
                try:
                    print("waits", flush=True)
                    wait()
                except KeyboardInterrupt:
                    ready()
            dist.barrier()
            dist.recv(x, 1)
            assert x.tolist() == [1, 2, 3]
        else:
            dist.barrier()
            dist.send(torch.tensor([1.0, 2.0, 3.0]), 0)
        dist.destroy_process_group()
        """
    )
    script.await_ready()
    for _ in range(2):
        assert script.ranks[0].stdout.readline() == "waits\n"
        time.sleep(0.3)  # so that it's likely in the wait
        script.ranks[0].send_signal(signal.SIGINT)
        assert script.ranks[0].stdout.readline() == "ready\n"
    script.ended()


def test_exit_without_destroy():
    """An exit prints nothing and waits for no rank, with any operation under way."""
    script = Script(
        """
        init()
        work = dist.all_reduce(torch.ones(1 << 18), async_op=True)
        future = dist.all_reduce(torch.ones(1 << 18), async_op=True).get_future()
        futures = [dist.all_reduce(torch.ones(8), async_op=True).get_future() for _ in range(5)]
        strange = torch.ones(64, 64).t()[::2]
        dist.all_reduce(strange, async_op=True)
        if rank == 0:
            never = dist.irecv(torch.ones(4), 1)
            another = dist.irecv(torch.ones(4), 1).get_future()
        """
    )
    for _, error in script.ended():
        assert error == ""


@pytest.mark.long
def test_groups_destroyed_after_the_end():
    """A program's exit handler destroys groups that the package's own handler has ended before."""
    script = Script(
        """
        import atexit
        atexit.register(dist.destroy_process_group)
        atexit.register(lambda: dist.destroy_process_group(part))
        init()
        part = dist.new_group([0, 1])
        dist.barrier(part)
        """
    )
    for _, error in script.ended():
        assert error == ""


@pytest.mark.long
def test_exit_in_a_daemon_thread():
    script = Script(
        """
        import threading
        init()
        if rank == 0:
            for i in range(3):
                threading.Thread(target=lambda: dist.recv(torch.ones(4), 1, tag=i), daemon=True).start()
            time.sleep(0.2)
        """
    )
    script.ended()


@pytest.mark.long
def test_destroy_and_again():
    """Groups may be destroyed and made again, under the same names and with the same store."""
    script = Script(
        """
        store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), size, rank == 0)
        for i in range(3):
            dist.init_process_group("chorus", store=store, rank=rank, world_size=size)
            x = torch.ones(10)
            members = list(range(1 + i))  # the group has the same name every time
            group = dist.new_group(members)
            if rank in members:
                dist.all_reduce(x, group=group)
                assert x[0] == len(members)
            x.fill_(1)
            dist.all_reduce(x)
            assert x[0] == size
            dist.destroy_process_group()
        store.set(f"over {rank}", "1")
        if rank == 0:  # it serves the store
            store.wait([f"over {r}" for r in range(size)])
        """,
        size=3,
    )
    for _, error in script.ended():
        assert error == ""


@longest
@pytest.mark.long
def test_late_ranks_make_no_noise():
    """A rank waits for others in the store in short turns, and PyTorch's store doesn't print a warning for each."""
    script = Script(
        """
        if rank == 1:
            time.sleep(2.5)
        init()
        if rank == 1:
            time.sleep(1.5)
        dist.all_reduce(torch.ones(1), group=dist.new_group())
        dist.destroy_process_group()
        """
    )
    for _, error in script.ended():
        assert error == ""


@pytest.mark.long
def test_a_store_that_cannot_look():
    """A program's own store may lack optional methods."""
    script = Script(
        """
        inner = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), size, rank == 0)

        class Few(dist.Store):
            set, add = (lambda _, *args: inner.set(*args)), (lambda _, *args: inner.add(*args))
            get, wait = (lambda _, *args: inner.get(*args)), (lambda _, *args: inner.wait(*args))

        if rank == 1:
            time.sleep(1.5)
        dist.init_process_group("chorus", store=Few(), rank=rank, world_size=size)
        x = torch.ones(1)
        dist.all_reduce(x)
        assert x == size
        inner.set(f"over {rank}", "1")
        if rank == 0:
            inner.wait([f"over {r}" for r in range(size)])
        """
    )
    script.ended()


@pytest.mark.long
def test_destroy_releases_the_store():
    """The store of a group, and its connections, don't wait for the garbage collector."""
    script = Script(
        """
        import gc
        gc.disable()
        counts = []
        for i in range(4):
            address = f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}"
            dist.init_process_group("chorus", init_method=address, rank=rank, world_size=size)
            dist.barrier()
            time.sleep(0.3 * (1 - rank))  # rank 0 serves the store
            dist.destroy_process_group()
            counts.append(len(os.listdir("/proc/self/fd")))
            time.sleep(0.7)
        assert counts[1:] == [counts[0]] * 3, counts
        """
    )
    script.ended()


def test_fork():
    """Forked DataLoader workers don't disturb the group, nor does a child that tries to use it."""
    script = Script(
        """
        import chorus, gc, multiprocessing
        from torch.utils.data import DataLoader
        init()
        shared = chorus.zeros(5)
        pending = dist.irecv(torch.zeros(1), 1 - rank)
        data = [torch.full((2,), float(i)) for i in range(8)]
        total = torch.zeros(2)
        for batch in DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context="fork"):
            total += batch.sum(0)
        dist.all_reduce(total)
        assert total[0] == 28 * size, total

        def child():
            try:
                dist.all_reduce(torch.ones(3))
            except chorus.ForkedError as error:
                assert "fork" in str(error)
            else:
                os._exit(3)
            try:
                chorus.zeros(3)
            except chorus.ForkedError:
                pass
            else:
                os._exit(4)
            global shared, pending
            shared = pending = None
            gc.collect()
            sys.exit(5)  # through the interpreter's own exit

        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join(60)
        assert process.exitcode == 5, process.exitcode
        dist.send(torch.ones(1), 1 - rank)
        pending.wait()
        dist.barrier()
        """
    )
    script.ended()


TRAIN = """
import os, sys, datetime
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("chorus", timeout=datetime.timedelta(seconds=60))
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(300, 300))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
start = 0
path = os.environ["CHECKPOINT"]
if os.path.exists(path):
    start = torch.load(path, weights_only=True)["step"]
for step in range(start, 20):
    model(torch.ones(4, 300)).sum().backward()
    if step == 10 and start == 0 and rank == 1:
        os.kill(os.getpid(), 9)
    optimizer.step()
    optimizer.zero_grad()
    if step == 9:
        if rank == 0:
            torch.save({"step": 10}, path)
        dist.barrier()
print(f"finished {rank} from {start}", flush=True)
dist.destroy_process_group()
"""


@longest
@pytest.mark.long
def test_torchrun_restarts(tmp_path):
    """A rank of a job with DistributedDataParallel dies, and torchrun starts it again."""
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1",
         "--monitor-interval=0.1",
         "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", str(script)],
        env=dict(os.environ, CHECKPOINT=str(tmp_path / "checkpoint")), capture_output=True, text=True, timeout=150,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "finished 0 from 10" in done.stdout and "finished 1 from 10" in done.stdout


@pytest.mark.long
def test_killed_rank_of_ddp():
    """Every other rank's backward raises an error that names the rank; the group's failure has all facts."""
    script = Script(
        """
        import chorus
        from torch.nn.parallel import DistributedDataParallel
        init()
        layers = [torch.nn.Linear(100, 100) for _ in range(5)]
        model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.05)
        begin = None
        try:
            while True:
                model(torch.ones(4, 100)).sum().backward()
                if rank == 1 and begin is None:
                    os.kill(os.getpid(), 9)
        except RuntimeError as error:
            assert "rank 1 is lost" in str(error), error
            failure = chorus.failure()
            assert isinstance(failure, chorus.PeerLostError) and failure.peer == 1, repr(failure)
            sys.exit(9)
        """,
        size=3,
    )
    script.ended([9, -9, 9])


PARTING = """
import os, pathlib, sys
import torch, torch.distributed as dist
import chorus
rank = int(os.environ["RANK"])
if {apart}:
    os.environ["CHORUS_HOST_ID"] = str(rank)
dist.init_process_group("chorus")
dist.all_reduce(torch.ones(1))
if rank == 1:
    {end}
try:
    dist.all_reduce(torch.ones(8))
except RuntimeError as error:
    assert isinstance(error, chorus.PeerLostError) and error.peer == 1, repr(error)
    pathlib.Path(f"said{{rank}}").write_text(str(error))
    sys.exit(9)
"""
RAISES = "raise ValueError('bad batch')"
PLACE = PARTING.splitlines().index("    {end}") + 1


@pytest.mark.parametrize("apart", [False, True], ids=["one host", "hosts"])
@pytest.mark.parametrize(
    "end, code, cause",
    [
        (RAISES, 1, f"it raised ValueError: bad batch (train.py:{PLACE})"),
        ("raise ValueError('é' * 500)", 1, f"it raised ValueError: {'é' * 52}... (train.py:{PLACE})"),
        ("sys.exit(3)", 3, "its process exited with the communicator open"),
    ],
    ids=["raises", "raises at length", "exits"],
)
def test_peers_read_how_a_rank_ended(tmp_path, end, code, cause, apart):
    """Ranks that wait read how one has ended, through shared memory and over TCP."""
    with Job(tmp_path, PARTING.format(apart=apart, end=end)) as job:
        for process in job.processes:
            process.join(60)
        assert [p.exitcode for p in job.processes] == [9, code, 9]
    for rank in (0, 2):
        said = (tmp_path / f"said{rank}").read_text()
        assert f"rank 1 is lost: {cause}, after operation #1" in said, said


@pytest.mark.long
def test_peers_read_the_exception_that_ended_an_interpreter(tmp_path):
    """The same for the exception that ended an interpreter."""
    script = Script(f"os.chdir({str(tmp_path)!r})" + PARTING.format(apart=False, end=RAISES))
    script.ended([9, 1])
    assert "rank 1 is lost: it raised ValueError: bad batch (<string>:" in (tmp_path / "said0").read_text()
