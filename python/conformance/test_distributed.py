"""PyTorch's own tests of its backends, with the backend "chorus".

``make conformance`` runs them all; a few, which take half a minute, run with the other tests.
The tests are those of ``torch.testing._internal.distributed.distributed_test``, which PyTorch's wheels
carry. Most of them say for which backends they are, by comparing the name ``BACKEND``. They are taken here
as they are for Gloo, which is for CPU tensors too; all-to-all, which Gloo hadn't long, as for MPI.
What fails is in ``expected.py``, with reasons: it must fail, or the list is out of date.
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
    "test_DistributedDataParallelCPU", "test_all_gather", "test_all_gather_coalesced_with_empty",
    "test_all_reduce_coalesced_sum", "test_all_reduce_sum", "test_all_reduce_sum_async",
    "test_all_to_all_single_equal_split", "test_all_to_all_single_equal_split_group",
}  # fmt: skip


class Name(str):
    """What groups are made with; and where a test asks, as it runs, it is for another backend."""

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
    """The module of the tests, with the decisions that it makes for a backend as it's loaded."""
    os.environ["BACKEND"] = backend
    spec = importlib.util.find_spec("torch.testing._internal.distributed.distributed_test")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.BACKEND = Name("chorus", backend)
    return module


mpi, gloo = _written_for("mpi"), _written_for("gloo")
sys.modules[gloo.__name__] = gloo  # where what the tests pickle is looked for

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload([__name__])


def _process(target, name, args, kwargs):
    """A rank. It's forked, where PyTorch's own would load PyTorch first."""
    return context.Process(target=_rank, name=name, args=(dict(os.environ), target, args, kwargs))


def _rank(environ, target, args, kwargs):
    os.environ.update(environ)
    torch.set_num_threads(1)
    target(*args, **kwargs)


class TestDistributed(gloo.TestDistBackend, gloo.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(_process)

    def _barrier(self, wait_for=None, timeout=120):  # theirs, of files, takes a machine for stuck after 10 s
        gloo.Barrier.sync(wait_for, timeout)


for _name in dir(mpi.DistributedTest._DistTestBase):
    if _name.startswith("test_all_to_all"):
        setattr(TestDistributed, _name, getattr(mpi.DistributedTest._DistTestBase, _name))

for _name in dir(TestDistributed):
    if _name.startswith("test_") and not (LONG or _name in FEW):
        # Not removed: PyTorch's setUp looks at some of them.
        setattr(TestDistributed, _name, unittest.skip("make conformance runs it")(getattr(TestDistributed, _name)))
    elif _name in FAILS:
        setattr(TestDistributed, _name, unittest.expectedFailure(getattr(TestDistributed, _name)))
