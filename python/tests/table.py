"""The table of tests of every collective: mode x dtype x size, on every world.

A collective is an object with two methods:

``tensors(rank, size, dtype, n)`` returns the lists of its inputs and of its outputs on a
rank; a collective that works in place has outputs only.
``call(outputs, inputs, group, async_op)`` issues it and returns the Work.
``expected(rank, size, dtype, n)`` is optional and returns the outputs in closed form. Results of
types that Gloo lacks are compared with it, and Gloo's own results, too.
"""

import torch
import torch.distributed as dist
from worlds import LONG

SIZES = [0, 4, 1024, 1 << 20]

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SMALL_FLOATS = [torch.float8_e4m3fn, torch.float8_e5m2]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
COMPLEX = [torch.complex64, torch.complex128]
REDUCIBLE = INTEGERS + FLOATS + SMALL_FLOATS + COMPLEX
ANY = [torch.bool] + REDUCIBLE + UNSIGNED
GLOO = [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64] + FLOATS


def data(rank, dtype, n, salt=0):
    """Small whole numbers that differ between ranks: sums of four are exact in every type."""
    values = (torch.arange(n) * 5 + rank * 3 + salt) % 5
    if dtype == torch.bool:
        return values > 2
    if dtype.is_signed and not dtype.is_complex:
        values = values - 2
    return values.to(dtype)


def total(tensors):
    """The sum, computed in a type that can hold it."""
    wide = torch.complex128 if tensors[0].is_complex() else torch.float64
    return torch.stack([t.to(wide) for t in tensors]).sum(0).to(tensors[0].dtype)


def same(a, b):
    """Whether two tensors have the same bits."""
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))


def bits(t):
    t = t.contiguous().reshape(-1)
    return t.view(torch.uint8) if t.numel() else t.to(torch.uint8)


def churn():
    """Reuse memory that was freed."""
    for n in (4, 1024, 1 << 18):
        torch.full((n,), 7.0)


def _sync(what, tensors, group):
    outs, ins = tensors()
    what.call(outs, ins, group, False)
    return outs


def _sync_work_dropped(what, tensors, group):
    """A synchronous call on the group itself, which returns a work all the same; the test drops it."""
    outs, ins = tensors()
    what.call(outs, ins, group, False)
    del ins
    churn()
    return outs


def _async_wait(what, tensors, group):
    outs, ins = tensors()
    work = what.call(outs, ins, group, True)
    assert work.wait()
    assert work.is_completed() and work.is_success() and work.exception() is None
    return outs


def _async_dropped(what, tensors, group):
    outs, ins = tensors()
    what.call(outs, ins, group, True)
    churn()
    dist.barrier(group)  # collectives run in order, so it is done after this one
    return outs


def _input_deleted(what, tensors, group):
    outs, ins = tensors()
    work = what.call(outs, ins, group, True)
    del ins[:]
    churn()
    work.wait()
    return outs


MODES = {
    "sync": _sync,
    "sync, work dropped": _sync_work_dropped,
    "async": _async_wait,
    "async, work dropped": _async_dropped,
    "input deleted": _input_deleted,
}


def run(peers, what):
    """The whole table of a collective on this rank; returns how many rows it had."""
    rows = 0
    world = dist.group.WORLD
    for dtype in what.dtypes:
        for n in SIZES:
            if n > 1 << 10 and not LONG and dtype not in (torch.float32, torch.bfloat16):
                continue
            reference = what.expected(peers.rank, peers.size, dtype, n)
            if dtype in what.gloo and n and (LONG or n <= 1024):
                outs, ins = what.tensors(peers.rank, peers.size, dtype, n)
                what.call(outs, ins, peers.gloo, False)
                for i, (a, b) in enumerate(zip(outs, reference, strict=True)):
                    assert same(a, b), f"Gloo: {dtype}, {n} elements, output {i}: {a} is not {b}"
            for mode, run_mode in MODES.items():
                if n > 1 << 10 and not LONG and mode.endswith("dropped"):
                    continue

                def tensors():
                    return what.tensors(peers.rank, peers.size, dtype, n)

                outs = run_mode(what, tensors, world)
                for i, (a, b) in enumerate(zip(outs, reference, strict=True)):
                    assert same(a, b), f"{mode}, {dtype}, {n} elements, output {i}: {a} is not {b}"
                rows += 1
    return rows
