"""PyTorch's own tests of its backends, with the backend "chorus".

``make conformance`` runs them all; a few, which take half a minute, run with the other tests.
The tests are those of ``torch.testing._internal.distributed.distributed_test``, which PyTorch's wheels
contain. Most of them choose by the name ``BACKEND`` for which backends they run. Here they run as for
Gloo, which is for CPU tensors, too, and those of all-to-all, which older tests don't run for Gloo, as for
MPI. The failing tests are in ``expected.py``, with reasons. A test in the list must fail, or the list is
out of date.
"""

import importlib.util
import multiprocessing
import os
import sys
import unittest

import torch

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["WORLD_SIZE"] = "3"
os.environ["TEMP_DIR"] = ""
sys.path.insert(0, os.path.dirname(__file__))

from expected import FAILS

LONG = os.environ.get("CHORUS_TEST_LONG") == "1"
FEW = {
    "test_DistributedDataParallelCPU", "test_all_gather", "test_all_reduce_coalesced_sum", "test_all_reduce_sum",
    "test_all_to_all_single_equal_split_group",
}  # fmt: skip


class Name(str):
    """The backend's name for making groups. A running test that compares it sees the name of another backend."""

    def __new__(cls, name, like):
        self = super().__new__(cls, name)
        self.like = like
        return self

    def __eq__(self, other):
        return other in (str(self), self.like)

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


def _written_for(backend):
    """The module of the tests, loaded with its choices for a backend."""
    os.environ["BACKEND"] = backend
    spec = importlib.util.find_spec("torch.testing._internal.distributed.distributed_test")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.BACKEND = Name("chorus", backend)
    return module


mpi, gloo = _written_for("mpi"), _written_for("gloo")
sys.modules[gloo.__name__] = gloo  # unpickling looks the tests' functions up there

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload([__name__])


def _process(target, name, args, kwargs):
    """A rank, forked from this process: PyTorch's own would load PyTorch first."""
    return context.Process(target=_rank, name=name, args=(dict(os.environ), target, args, kwargs))


def _rank(environ, target, args, kwargs):
    os.environ.update(environ)
    torch.set_num_threads(1)
    target(*args, **kwargs)


class TestDistributed(gloo.TestDistBackend, gloo.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(_process)

    def _barrier(self, wait_for=None, timeout=120):  # PyTorch's, based on files, times out after 10 s
        gloo.Barrier.sync(wait_for, timeout)


for _name in dir(mpi.DistributedTest._DistTestBase):
    if _name.startswith("test_all_to_all"):
        setattr(TestDistributed, _name, getattr(mpi.DistributedTest._DistTestBase, _name))

for _name in dir(TestDistributed):
    if _name.startswith("test_") and not (LONG or _name in FEW):
        # Not removed: PyTorch's setUp reads some of them.
        setattr(TestDistributed, _name, unittest.skip("make conformance runs it")(getattr(TestDistributed, _name)))
    elif _name in FAILS:
        setattr(TestDistributed, _name, unittest.expectedFailure(getattr(TestDistributed, _name)))
