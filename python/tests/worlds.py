"""Worlds of processes that run functions of the tests, rank by rank.

The processes of a world live as long as the tests do, so that a test doesn't have to start
PyTorch. Their default group has the backend "chorus"; ``peers.gloo`` is a group of Gloo
with the same ranks, for comparisons.
"""

import datetime
import faulthandler
import multiprocessing
import os
import signal
import time
import traceback

import pytest
from breaking import TIMEOUT

from chorus.bench.port import free_port

LONG = os.environ.get("CHORUS_TEST_LONG") == "1"
# What make test-long has no time for, either. It's for tests and parameters that are marked as long.
longest = pytest.mark.skipif(not LONG, reason="CHORUS_TEST_LONG=1 runs it")


def sample(names, *few):
    """Return the parameters of a long test, of which make test-long runs a few."""
    return [name if name in few else pytest.param(name, marks=longest) for name in names]


context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["torch", "torch.distributed"])


def _serve(rank, size, port, pipe, environment):
    os.environ.update(environment)
    faulthandler.register(signal.SIGUSR2)  # for a caller that gets no answer in time
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, size, rank == 0, timeout=datetime.timedelta(seconds=TIMEOUT))
    dist.init_process_group(
        "chorus", store=store, rank=rank, world_size=size, timeout=datetime.timedelta(seconds=TIMEOUT)
    )
    gloo = dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=TIMEOUT))
    pipe.send(None)
    while (job := pipe.recv()) is not None:
        call, args = job
        try:
            pipe.send((True, call(Peers(rank, size, gloo, port), *args)))
        except BaseException:
            pipe.send((False, traceback.format_exc()))
    dist.destroy_process_group()
    pipe.send(None)


class Peers:
    """The argument of a function that a world runs."""

    def __init__(self, rank, size, gloo, port):
        self.rank, self.size, self.gloo, self.port = rank, size, gloo, port


class World:
    """``size`` waiting processes, with environment variables that the library reads at its start."""

    def __init__(self, size, **environment):
        self.size = size
        port = free_port()
        self.processes, self.pipes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, size, port, theirs, environment), daemon=True)
            process.start()
            theirs.close()
            self.processes.append(process)
            self.pipes.append(ours)
        self._answers()
        self.broken = False

    def _answers(self, seconds=3 * TIMEOUT):
        answers = []
        for rank, pipe in enumerate(self.pipes):
            if not pipe.poll(seconds):
                why = [f"rank {rank} of {self.size} gave no answer"]
                for other in range(rank + 1, self.size):  # it may have waited for these
                    if self.pipes[other].poll():
                        why.append(f"rank {other}: {self.pipes[other].recv()}")
                for process in self.processes:
                    os.kill(process.pid, signal.SIGUSR2)
                time.sleep(1)
                self.kill()
                raise AssertionError("\n".join(why))
            answers.append(pipe.recv())
        return answers

    def run(self, call, *args):
        """Run ``call(peers, *args)`` on every rank and return what they returned, by rank."""
        for pipe in self.pipes:
            pipe.send((call, args))
        answers = self._answers()
        failures = [f"rank {r}: {text}" for r, (fine, text) in enumerate(answers) if not fine]
        if failures:
            self.kill()
            raise AssertionError("\n".join(failures))
        return [value for _, value in answers]

    def kill(self):
        self.broken = True
        for process in self.processes:
            process.kill()
            process.join()

    def close(self):
        if self.broken:
            return
        for pipe in self.pipes:
            pipe.send(None)
        self._answers()
        for process in self.processes:
            process.join()
            assert process.exitcode == 0


_worlds = {}


def world_of(size):
    """The world of a size; a new one if a test has broken the last."""
    if size not in _worlds or _worlds[size].broken:
        _worlds[size] = World(size)
    return _worlds[size]


def close_worlds():
    while _worlds:
        _worlds.popitem()[1].close()
