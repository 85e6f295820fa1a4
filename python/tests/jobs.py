"""Jobs of a few processes that run a test's program, as under ``torchrun``. They may hang, for tests of how a hanging
job looks from outside.

The processes are forked from one that has loaded PyTorch, so that a job starts in less than a second.
"""

import atexit
import contextlib
import json
import os
import pathlib
import runpy
import socket
import subprocess
import sys
import time

from worlds import context

from chorus.bench.port import free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _rank(program, directory, environment):
    os.environ.update(environment)
    os.chdir(directory)
    try:
        runpy.run_path(program, run_name="__main__")
    except Exception as error:  # as Python itself does at a program's end; multiprocessing doesn't
        sys.last_value = error
        atexit._run_exitfuncs()
        os._exit(1)
    except SystemExit as end:
        atexit._run_exitfuncs()
        os._exit(end.code or 0)


class Job:
    """``size`` processes that run ``text`` as ``train.py``, in a directory that also has their ``dumps``."""

    def __init__(self, directory, text, size=3):
        self.directory, self.size = directory, size
        (directory / "train.py").write_text(text)
        self.dumps = directory / "dumps"
        port = free_port()
        self.processes = []
        for rank in range(size):
            environment = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size,
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "CHORUS_DUMP_DIR": self.dumps, "OMP_NUM_THREADS": 1,
                "TORCHELASTIC_RUN_ID": "train"}  # fmt: skip
            process = context.Process(
                target=_rank, args=("train.py", directory, {k: str(v) for k, v in environment.items()})
            )
            process.start()
            self.processes.append(process)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.join()

    def ask(self, rank, what, seconds=10):
        """A rank's answer to a request on its status socket."""
        until = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError, ValueError, IndexError), socket.socket(socket.AF_UNIX) as s:
                s.settimeout(seconds)
                s.connect(str(next(iter(self.dumps.glob(f"*_rank_{rank}.sock")), "/none")))
                s.sendall(what.encode() + b"\n")
                return json.loads(b"".join(iter(lambda: s.recv(1 << 16), b"")))
            assert time.monotonic() < until, f"rank {rank} doesn't answer"
            time.sleep(0.02)

    def dump(self, rank):
        """The rank's dump, as it is now."""
        return json.loads(pathlib.Path(self.ask(rank, "dump")).read_text())


_command = []


def command():
    """The path of ``chorus``, which is built once."""
    if not _command:
        binary = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"chorus-test-{os.getpid()}"
        atexit.register(binary.unlink, missing_ok=True)
        subprocess.run(["go", "build", "-o", binary, "./cmd/chorus"], cwd=ROOT, check=True)
        _command.append(binary)
    return _command[0]


def chorus(*args):
    """The output of ``chorus``."""
    return subprocess.run([command(), *map(str, args)], capture_output=True, text=True).stdout
