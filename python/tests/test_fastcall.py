"""Collectives that are one call into the library: which calls are, and that other calls have the same results."""

import pytest
import torch
import torch.distributed as dist
from worlds import free_port

import chorus
from chorus import _fastcall, _lib

pytestmark = pytest.mark.skipif(not _fastcall.POSSIBLE, reason="this PyTorch can't tell the library what a tensor is")

# Types of fewer bits than a byte, one element a byte.
NARROW = [getattr(torch, f"{kind}{bits}") for kind in ("uint", "int") for bits in range(1, 8)
    if hasattr(torch, f"{kind}{bits}")]  # fmt: skip

TENSORS = {
    # name: a tensor, whether it is taken
    "matrix": (lambda: torch.arange(12.0).reshape(3, 4), True),
    "turned": (lambda: torch.arange(12.0).reshape(3, 4).t(), False),
    "turned row": (lambda: torch.arange(3.0).reshape(3, 1).t(), True),
    "scalar": (lambda: torch.tensor(2.0), True),
    "empty": (lambda: torch.empty(0), True),
    "empty, turned": (lambda: torch.empty(0, 3).t(), True),
    "part": (lambda: torch.arange(8.0)[4:], True),
    "every second": (lambda: torch.arange(8.0)[::2], False),
    "expanded": (lambda: torch.arange(4.0).expand(3, 4), False),
    "complex": (lambda: torch.ones(2, dtype=torch.complex64), False),
    "sparse": (lambda: torch.ones(2, 2).to_sparse(), False),
    "meta": (lambda: torch.ones(2, device="meta"), False),
    "bits": (lambda: torch.ones(2).view(torch.uint8).view(torch.bits8), False),
    "no tensor": (lambda: 3, False),
    "requires grad": (lambda: torch.ones(2, requires_grad=True), True),
} | {
    str(dtype): (lambda dtype=dtype: torch.ones(5).to(dtype), True)
    for dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16,
        torch.uint32, torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn,
        torch.float8_e5m2)
} | {
    str(dtype): (lambda dtype=dtype: torch.ones(5, dtype=torch.uint8).view(dtype), False) for dtype in NARROW
}  # fmt: skip


@pytest.fixture(scope="module")
def group():
    chorus.register()
    dist.init_process_group("chorus", init_method=f"tcp://127.0.0.1:{free_port()}", rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.mark.parametrize("name", TENSORS)
def test_taken(group, name):
    make, taken = TENSORS[name]
    tensor = make()
    status = group.comm.submit(_lib.BROADCAST, 0, 0, 0, 0, False, tensor)
    assert status == (_lib.OK if taken else _fastcall.OTHERWISE)


def test_two_tensors(group):
    submit = group.comm.submit
    source, target = torch.arange(4), torch.zeros(4, dtype=torch.int64)
    assert submit(_lib.ALL_GATHER_SINGLE, 0, 0, 0, 0, False, target, source) == _lib.OK
    assert target.equal(source)
    assert submit(_lib.ALL_GATHER_SINGLE, 0, 0, 0, 0, False, target, torch.zeros(4)) == _fastcall.OTHERWISE
    strided = torch.zeros(8, dtype=torch.int64)[::2]
    assert submit(_lib.ALL_GATHER_SINGLE, 0, 0, 0, 0, False, target, strided) == _fastcall.OTHERWISE


@pytest.mark.parametrize(
    "arguments, error",
    [
        (("x", 0, 0, 0, 0, False), TypeError),
        ((_lib.BARRIER, 0, 0, 1.5, 0, False), TypeError),
        ((_lib.BARRIER, 0, 0, 0, None, False), TypeError),
        ((_lib.BARRIER, 0, 0, 0, 0, None), TypeError),
        ((1 << 70, 0, 0, 0, 0, False), OverflowError),
    ],
)
def test_arguments_that_are_no_integers(group, arguments, error):
    with pytest.raises(error):
        group.comm.submit(*arguments)
    assert group.comm.submit(_lib.BARRIER, 0, 0, 0, 0, False) == _lib.OK


@pytest.mark.parametrize(
    "arguments",
    [(), (_lib.BARRIER,), (_lib.BARRIER, 0, 0, 0, 0), (_lib.BROADCAST, 0, 0, 0, 0, False) + 3 * (torch.ones(1),)],
)
def test_numbers_of_arguments(group, arguments):
    assert group.comm.submit(*arguments) == _fastcall.OTHERWISE


@pytest.mark.parametrize(
    "arguments",
    [(99, 0, 0, 0, 0, False), (_lib.ALL_REDUCE, 99, 0, 0, 0, False, torch.ones(2)),
     (_lib.BROADCAST, 0, 5, 0, 0, False, torch.ones(2)), (_lib.BARRIER, 0, 0, -5, 0, False),
     (_lib.ALL_REDUCE, 1, 0, 0, 0, False)],
)  # fmt: skip
def test_refused(group, arguments):
    with pytest.raises(chorus.InvalidArgumentError):
        group.comm.handled(group.comm.submit(*arguments))
    assert group.failure is None


def _negative_view(peers):
    """A negative view's memory holds the negated values, which DLPack doesn't tell."""
    values = torch.arange(4.0) + peers.rank
    negated = values.clone()._neg_view()
    dist.all_reduce(negated)
    dist.all_reduce(values)
    return negated.resolve_neg().equal(-values), values.tolist()


def test_negative_views(pair):
    assert pair.run(_negative_view) == [(True, [1, 3, 5, 7])] * 2
