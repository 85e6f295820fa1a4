import datetime
import itertools
import time

import pytest
import torch
import torch.distributed as dist
from table import ANY, GLOO, LONG, REDUCIBLE, data, run, same, total

import chorus

OLD = tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 8)  # whose Gloo has no AVG


class AllReduce:
    dtypes = REDUCIBLE
    gloo = [t for t in GLOO if t != torch.bool]

    @staticmethod
    def tensors(rank, size, dtype, n):
        return [data(rank, dtype, n)], []

    @staticmethod
    def call(outs, ins, group, async_op):
        return dist.all_reduce(outs[0], group=group, async_op=async_op)

    @staticmethod
    def expected(rank, size, dtype, n):
        return [total([data(r, dtype, n) for r in range(size)])]


def test_table(world):
    assert min(world.run(run, AllReduce)) >= 5 * 3 * len(AllReduce.dtypes)


def _reductions(peers, op):
    rows = 0
    for dtype in REDUCIBLE + [torch.bool]:
        if (
            dtype.is_complex
            or (op.startswith("B") and dtype.is_floating_point)
            or (op == "AVG" and dtype == torch.bool)
        ):
            continue
        for n in (1, 5, 1000):
            x = data(peers.rank, dtype, n, salt=1)
            if op == "PRODUCT" and dtype.is_floating_point:
                x = torch.where(x.float() > 0, 1.0, -1.0).to(dtype)
            y = x.clone()
            dist.all_reduce(x, op=getattr(dist.ReduceOp, op))
            if dtype in GLOO and not (op == "AVG" and (not dtype.is_floating_point or OLD)):
                dist.all_reduce(y, op=getattr(dist.ReduceOp, op), group=peers.gloo)
                assert same(x, y), f"{op} {dtype} {n}: {x} is not {y}"
                rows += 1
            elif op == "AVG" and dtype.is_floating_point:
                want = total([data(r, torch.float64, n, salt=1) for r in range(peers.size)]) / peers.size
                torch.testing.assert_close(x.double(), want, rtol=0.25 if x.element_size() == 1 else 1e-2, atol=1e-2)
                rows += 1
    return rows


@pytest.mark.parametrize("op", ["PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG"])
def test_reductions_equal_gloos(world, op):
    assert min(world.run(_reductions, op)) >= 12


def _premul(peers):
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for factor in (2.0, torch.tensor([0.5], dtype=dtype)):
            x = data(peers.rank, dtype, 100)
            dist.all_reduce(x, op=dist._make_nccl_premul_sum(factor))
            want = total([data(r, dtype, 100) for r in range(peers.size)]) * factor
            assert same(x, want.to(dtype)), (dtype, factor)
    x = torch.ones(3)
    dist.all_reduce(x, op=dist._make_nccl_premul_sum(torch.complex(torch.zeros(1), torch.ones(1)).conj().imag))
    assert x.tolist() == [-float(peers.size)] * 3  # a view with the negative bit
    with pytest.raises(chorus.InvalidArgumentError, match="torch.float64; it must have the data's type, torch.float32"):
        dist.all_reduce(x, op=dist._make_nccl_premul_sum(torch.tensor([0.5], dtype=torch.float64)))


def test_premul_sum(world):
    world.run(_premul)


def _layouts(peers):
    """Tensors that are not contiguous get the results of Gloo's contiguous ones, in every mode."""
    base = data(peers.rank, torch.float32, 24).reshape(4, 6)
    want = base.clone()
    dist.all_reduce(want, group=peers.gloo)
    for async_op in (False, True):
        for view in (lambda b: b.t(), lambda b: b[:, ::2], lambda b: b[1:3, 2:4], lambda b: b[0, 0]):
            whole = base.clone()
            work = dist.all_reduce(view(whole), async_op=async_op)
            if work:
                work.wait()
            assert torch.equal(view(whole), view(want))
            view(whole).copy_(view(base))
            assert torch.equal(whole, base), "elements outside of the view were touched"
    dropped = base.clone()
    dist.all_reduce(dropped.t(), async_op=True)
    dist.barrier()
    from chorus import _comm

    while _comm._live:  # no thread waits for the work, and the copy back is made all the same
        _comm.sweep()
    assert torch.equal(dropped, want)
    z = torch.complex(data(peers.rank, torch.float32, 8), torch.ones(8))
    dist.all_reduce(z)
    assert torch.equal(z.imag, torch.full((8,), float(peers.size)))
    neg = torch.complex(torch.zeros(4), torch.ones(4)).conj().imag  # a view with the negative bit
    dist.all_reduce(neg)
    assert torch.equal(neg, torch.full((4,), -float(peers.size)))


def test_layouts(world):
    world.run(_layouts)


def _sparse(peers):
    i = torch.tensor([[peers.rank, 3, 4], [1, 0, peers.rank]])
    for dense_dims in ((), (2,)):
        x = torch.sparse_coo_tensor(i, torch.ones(3, *dense_dims) * (peers.rank + 1), (6, 6, *dense_dims))
        y = x.clone()
        dist.all_reduce(x)
        dist.all_reduce(y, group=peers.gloo)
        assert torch.equal(x.to_dense(), y.to_dense())
    if peers.size > 1:
        shorter = torch.sparse_coo_tensor(i[:, :1], torch.ones(1), (6 if peers.rank else 4, 6))
        with pytest.raises(chorus.InvalidArgumentError, match=r"\[4, 6\] in 2|\[6, 6\] in 2"):
            dist.all_reduce(shorter)


def test_sparse(world):
    world.run(_sparse)


def _late_sparse(peers):
    group = dist.new_group()
    dist.barrier(peers.gloo)  # all have it
    if peers.rank == 0:
        opts = dist.AllreduceOptions()
        opts.timeout = datetime.timedelta(milliseconds=200)
        began = time.monotonic()
        with pytest.raises(chorus.TimeoutError):
            group.allreduce([torch.ones(3).to_sparse()], opts)
        assert time.monotonic() - began < 10  # the group's own timeout is a minute
    dist.barrier(peers.gloo)
    dist.destroy_process_group(group)


def test_sparse_keeps_its_timeout(pair):
    pair.run(_late_sparse)


def _coalesced(peers):
    for async_op, device in itertools.product((False, True), (None, torch.device("cpu"))):
        xs = [data(peers.rank, torch.float32, n) for n in (1, 100, 0, 5000)]
        ys = [x.clone() for x in xs]
        with dist._coalescing_manager(device=device, async_ops=async_op) as cm:
            for x in xs:
                dist.all_reduce(x)
        if async_op:
            cm.wait()
        for y in ys:
            dist.all_reduce(y, group=peers.gloo)
        assert all(same(x, y) for x, y in zip(xs, ys, strict=True))
    xs = [data(peers.rank, torch.float64, 7), data(peers.rank, torch.float64, 9)]
    dist.all_reduce_coalesced(xs)
    assert same(xs[1], total([data(r, torch.float64, 9) for r in range(peers.size)]))


@pytest.mark.filterwarnings("ignore:.*all_reduce_coalesced.*")
def test_coalesced(world):
    world.run(_coalesced)


def test_every_type_is_in_some_table():
    known = {getattr(torch, n) for n in ("bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 "
             "float8_e4m3fn float8_e5m2 float32 float64 complex64 complex128").split()}  # fmt: skip
    assert set(ANY) == known and isinstance(LONG, bool)


def _nans(peers):
    """The bits of reductions of NaN with several payloads, of infinities and of zeros, on shared memory and TCP."""
    tcp = dist.new_group(pg_options={"fabric": "tcp"})
    rows = []
    for group in (None, tcp):
        for dtype, bits, payload in ((torch.float32, torch.int32, 0x7FC00000), (torch.bfloat16, torch.int16, 0x7FC0)):
            inf = 0x7F800000 if dtype == torch.float32 else 0x7F80
            sign = -(1 << (31 if dtype == torch.float32 else 15))
            nan = payload + peers.rank + 1
            mine = [nan, nan + sign, inf + sign * (peers.rank % 2), nan if peers.rank == 1 else 0, sign]
            for op in ("SUM", "AVG", "PRODUCT", "MIN", "MAX"):
                x = torch.tensor(mine, dtype=bits).repeat(41).view(dtype)
                dist.all_reduce(x, op=getattr(dist.ReduceOp, op), group=group)
                assert x[:2].isnan().all() and x[3].isnan()
                rows.append((str(dtype), op, x.view(bits).tolist(), payload))
    dist.destroy_process_group(tcp)
    return rows


def test_every_rank_has_the_same_nan(world):
    if world.size == 1:
        return  # nothing is reduced in a world of one
    ranks = world.run(_nans)
    for row in zip(*ranks):
        assert all(other == row[0] for other in row)
        dtype, op, got, payload = row[0]
        assert got[:2] == [payload] * 2 and got[3] == payload, f"{dtype} {op}"
