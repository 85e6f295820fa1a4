"""The shortcut of torch.distributed.all_reduce: when it's taken, and that a program sees no difference."""

import inspect
import logging
import pickle
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch.distributed import all_reduce as imported_by_name
from torch.distributed.c10d_logger import _c10d_logger
from torch.overrides import TorchFunctionMode

import chorus
from chorus import _fastcall

pytestmark = pytest.mark.skipif(not _fastcall.POSSIBLE, reason="this PyTorch can't tell the library what a tensor is")

# Of 1 and 2; integers truncate.
OPS = {"SUM": 3, "AVG": 1.5, "PRODUCT": 2, "MIN": 1, "MAX": 2, "BAND": 0, "BOR": 3, "BXOR": 3}


def _by_pytorch():
    """Count the calls of groups' methods by PyTorch's own function."""
    return mock.patch.object(chorus.ProcessGroup, "allreduce", autospec=True, side_effect=chorus.ProcessGroup.allreduce)


def _taken(peers):
    part = dist.new_group([0, 1])
    with _by_pytorch() as calls:
        for name, result in OPS.items():
            for dtype in (torch.float32, torch.int64, torch.bfloat16):
                if name.startswith("B") and dtype.is_floating_point:
                    continue
                for group in (None, dist.group.WORLD, part):
                    x = torch.full((3, 5), peers.rank + 1, dtype=dtype)
                    assert dist.all_reduce(x, getattr(dist.ReduceOp, name), group=group) is None
                    assert x.eq(result if dtype.is_floating_point else int(result)).all(), f"{name} of {dtype}: {x}"
                    x = torch.full((3, 5), peers.rank + 1, dtype=dtype)
                    work = dist.all_reduce(x, getattr(dist.ReduceOp, name), group=group, async_op=True)
                    assert work.wait() and work.is_success() and work.result()[0] is x
                    assert x.eq(result if dtype.is_floating_point else int(result)).all(), f"{name} of {dtype}: {x}"
        x = torch.ones(0)
        dist.all_reduce(x)
        imported_by_name(tensor=torch.ones(2), op=dist.ReduceOp.MAX, group=part, async_op=False)
        assert not calls.called


def test_taken(pair):
    pair.run(_taken)


class _Seen(TorchFunctionMode):
    def __init__(self):
        self.names = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.names.append(getattr(function, "__name__", ""))
        return function(*args, **(kwargs or {}))


class _Derived(torch.Tensor):
    pass


def _not_taken(peers):
    """Calls that go to PyTorch's function have the same results."""

    def counted(call, n=1):
        with _by_pytorch() as calls:
            result = call()
            assert calls.call_count == n, calls.mock_calls
            return result

    ones = torch.ones(4)
    by = dist.ReduceOp(dist.ReduceOp.SUM)  # the class, like premultiplied sums, instead of its enumeration
    counted(lambda: dist.all_reduce(ones, by))
    assert ones.tolist() == [2.0] * 4
    half = dist._make_nccl_premul_sum(0.5)
    counted(lambda: dist.all_reduce(ones, half))
    assert ones.tolist() == [2.0] * 4
    turned = torch.arange(6.0).reshape(2, 3).t()
    dist.all_reduce(turned)
    assert turned.equal(2 * torch.arange(6.0).reshape(2, 3).t())
    whole = torch.full((2,), 1 + 2j)
    dist.all_reduce(whole)
    assert whole.tolist() == [2 + 4j] * 2
    derived = torch.ones(2).as_subclass(_Derived)
    dist.all_reduce(derived)
    assert derived.tolist() == [2, 2]
    gloo = torch.ones(2)
    counted(lambda: dist.all_reduce(gloo, group=peers.gloo), 0)
    assert gloo.tolist() == [2, 2]


def test_what_pytorch_does(pair):
    pair.run(_not_taken)


def _seen(peers):
    with _Seen() as mode:
        x = torch.ones(2)
        dist.all_reduce(x)
    assert x.tolist() == [2, 2]
    return "all_reduce" in mode.names


def test_function_modes_see_it(pair):
    assert pair.run(_seen) == [True] * 2


def _coalesced(peers):
    a, b = torch.ones(3), torch.ones(3)
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(a)
        dist.all_reduce(b)
        assert a.tolist() == b.tolist() == [1, 1, 1]
    manager.wait()
    with dist.distributed_c10d._coalescing_manager(device=torch.device("cpu")):
        dist.all_reduce(a)
    assert (a.tolist(), b.tolist()) == ([4, 4, 4], [2, 2, 2])


def test_coalescing(pair):
    pair.run(_coalesced)


def _errors(peers):
    for call, error in (
        (lambda: dist.all_reduce(), TypeError),
        (lambda: dist.all_reduce([torch.ones(1)]), TypeError),
        (lambda: dist.all_reduce(torch.ones(1), op=0), TypeError),
        (lambda: dist.all_reduce(torch.ones(1), color="red"), TypeError),
        (lambda: dist.all_reduce(torch.ones(1), dist.ReduceOp.BAND), chorus.InvalidArgumentError),
    ):
        with pytest.raises(error):
            call()
    part = dist.new_group([1])
    x = torch.ones(1)
    if peers.rank == 0:
        with pytest.warns(UserWarning, match="does not belong"):
            assert dist.all_reduce(x, group=part) is None
    else:
        dist.all_reduce(x, group=part)
    assert x.item() == 1

    logged = []
    handler = logging.Handler()
    handler.emit = logged.append
    both = dist.new_group()
    level = _c10d_logger.level
    _c10d_logger.addHandler(handler)
    _c10d_logger.setLevel(logging.DEBUG)
    try:
        with pytest.raises(chorus.MismatchError) as raised:
            dist.all_reduce(torch.ones(1 + peers.rank), group=both)
    finally:
        _c10d_logger.removeHandler(handler)
        _c10d_logger.setLevel(level)
    assert set(raised.value.ranks) == {0, 1}
    assert any("all_reduce" in str(record.msg) for record in logged), "PyTorch logs what its functions raise"
    with pytest.raises(chorus.Error):
        dist.all_reduce(torch.ones(1), group=both)
    dist.barrier()


def test_errors(pair):
    pair.run(_errors)


def _same(peers):
    assert imported_by_name is dist.all_reduce is dist.distributed_c10d.all_reduce
    assert pickle.loads(pickle.dumps(dist.all_reduce)) is dist.all_reduce
    return list(inspect.signature(dist.all_reduce).parameters), dist.all_reduce.__doc__


def test_its_signature_and_documentation_are_unchanged(pair):
    for names, doc in pair.run(_same):
        assert names == ["tensor", "op", "group", "async_op"]
        assert "Reduces the tensor data" in doc
