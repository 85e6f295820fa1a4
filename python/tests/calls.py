"""Calls of torch.distributed, for tests that compare the results of two groups or two devices.

``CALLS[name](values, n, me, **options)`` makes a call of rank ``me`` of ``n``, on tensors of ``values(which, shape)``.
It returns the call's result, and the tensors that it fills.
"""

import torch
import torch.distributed as dist


def values(rank, shape, dtype, which=0):
    generator = torch.Generator().manual_seed(10 * rank + which)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(0, 4, shape, generator=generator).to(dtype)
    return torch.randn(shape, generator=generator).to(dtype)


def _all_gather(values, n, me, **options):
    out, x = [torch.zeros_like(values(0, (3, 5))) for _ in range(n)], values(0, (3, 5))
    return dist.all_gather(out, x, **options), out


def _single(call, outs, ins):
    def run(values, n, me, **options):
        out, x = values(1, (outs(n), 5)), values(0, (ins(n), 5))
        return call(out, x, **options), [out]

    return run


def _uneven(values, n, me, **options):
    """Rank r sends s + 1 rows to rank s."""
    out, x = values(1, (n * (me + 1), 2)), values(0, (n * (n + 1) // 2, 2))
    return dist.all_to_all_single(out, x, [me + 1] * n, list(range(1, n + 1)), **options), [out]


def _all_to_all(values, n, me, **options):
    out = [values(9, (2, 3)) for _ in range(n)]
    return dist.all_to_all(out, [values(i, (2, 3)) for i in range(n)], **options), out


def _gather(values, n, me, **options):
    out = [values(9, (4,)) for _ in range(n)] if me == 0 else None
    return dist.gather(values(0, (4,)), out, dst=0, **options), out or []


def _scatter(values, n, me, **options):
    out = values(9, (4,))
    return dist.scatter(out, [values(i, (4,)) for i in range(n)] if me == 1 else None, src=1, **options), [out]


def _reduce_scatter(values, n, me, **options):
    out = values(9, (4,))
    return dist.reduce_scatter(out, [values(i, (4,)) for i in range(n)], **options), [out]


def _transposed(values, n, me, **options):
    x = values(0, (6, 4)).t()
    return dist.all_reduce(x, **options), [x]


def _gathered_apart(values, n, me, **options):
    whole = values(9, (5, 2 * n))
    out = list(whole.split(2, 1))
    return dist.all_gather(out, values(0, (5, 2)), **options), [whole]


def _of_one(call):
    def run(values, n, me, **options):
        x = values(0, (3, 5))
        return call(x, **options), [x]

    return run


CALLS = {
    "all_reduce": _of_one(dist.all_reduce),
    "all_reduce max": _of_one(lambda x, **o: dist.all_reduce(x, dist.ReduceOp.MAX, **o)),
    "broadcast": _of_one(lambda x, **o: dist.broadcast(x, 1, **o)),
    "reduce": _of_one(lambda x, **o: dist.reduce(x, 1, **o)),
    "all_gather": _all_gather,
    "all_gather_into_tensor": _single(dist.all_gather_into_tensor, lambda n: 3 * n, lambda n: 3),
    "reduce_scatter_tensor": _single(dist.reduce_scatter_tensor, lambda n: 3, lambda n: 3 * n),
    "all_to_all_single": _single(dist.all_to_all_single, lambda n: 2 * n, lambda n: 2 * n),
    "all_to_all_single uneven": _uneven,
    "all_to_all": _all_to_all,
    "gather": _gather,
    "scatter": _scatter,
    "reduce_scatter": _reduce_scatter,
    "all_reduce of a transposed tensor": _transposed,
    "all_gather into slices": _gathered_apart,
}
