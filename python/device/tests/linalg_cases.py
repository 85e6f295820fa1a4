"""Calls of ``torch.linalg`` that a device's results are compared with the CPU's for."""

import torch

F32, F64, C64, C128 = torch.float32, torch.float64, torch.complex64, torch.complex128
linalg = torch.linalg


def data(sizes, dtype, definite=False):
    """Elements of a matrix that is far from singular, or of a definite Hermitian one."""
    g = torch.Generator().manual_seed(len(sizes))
    x = torch.randn(sizes, dtype=dtype, generator=g)
    n = min(x.shape[-2:])
    x[..., :n, :n] += 3 * torch.eye(n, dtype=dtype)
    return x @ x.mH + torch.eye(x.shape[-2], dtype=dtype) if definite else x


def whole(u, s, vh):
    """The matrix of an SVD, its values, and the products that are unit matrices for unit vectors."""
    k = s.shape[-1]
    return (u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], s, u.mH @ u, vh @ vh.mH


def eigen(w, v):
    return (v * w.unsqueeze(-2)) @ v.mH, w, v.mH @ v


def cases(n, dtype, batch=()):
    """Names of calls with their tensors, and functions of them: of matrices of n x n, and of such with two more rows or
    columns."""
    a, p, b = data((*batch, n, n), dtype), data((*batch, n, n), dtype, True), data((*batch, n, 2), dtype)
    tall = data((*batch, n + 2, n), dtype)
    wide = tall.mT.contiguous()
    yield "cholesky", (p,), linalg.cholesky
    yield "cholesky, upper", (p,), lambda p: linalg.cholesky(p, upper=True)
    yield "cholesky_ex", (p,), linalg.cholesky_ex
    yield "cholesky_solve", (b, p), lambda b, p: torch.cholesky_solve(b, linalg.cholesky(p))
    yield (
        "cholesky_solve, upper",
        (b, p),
        lambda b, p: torch.cholesky_solve(b, linalg.cholesky(p, upper=True), upper=True),
    )
    yield "cholesky_inverse", (p,), lambda p: torch.cholesky_inverse(linalg.cholesky(p))
    for name, x in (("square", a), ("tall", tall), ("wide", wide)):
        yield f"lu_factor, {name}", (x,), linalg.lu_factor
        yield f"lu, {name}", (x,), linalg.lu
        for mode in ("reduced", "complete", "r"):
            yield f"qr, {mode}, {name}", (x,), lambda x, m=mode: linalg.qr(x, mode=m)
        for full in (False, True):
            yield f"svd, full: {full}, {name}", (x,), lambda x, f=full: whole(*linalg.svd(x, full_matrices=f))
        yield f"svdvals, {name}", (x,), linalg.svdvals
        yield f"pinv, {name}", (x,), linalg.pinv
        yield f"geqrf, {name}", (x,), torch.geqrf
    yield "householder_product", (tall,), lambda x: linalg.householder_product(*torch.geqrf(x))
    for turned in (False, True):
        f = lambda a, b, turned=turned: torch.ormqr(*torch.geqrf(a), b, transpose=turned)  # noqa: E731
        yield f"ormqr, transposed: {turned}", (tall, data((*batch, n + 2, 2), dtype)), f
        f = lambda a, b, turned=turned: torch.ormqr(*torch.geqrf(a), b, left=False, transpose=turned)  # noqa: E731
        yield f"ormqr, on the right, transposed: {turned}", (tall, data((*batch, 3, n + 2), dtype)), f
    yield "solve", (a, b), linalg.solve
    yield "solve, a vector", (a, b), lambda a, b: linalg.solve(a, b[..., :1].squeeze(-1))
    yield "solve, on the right", (a, b), lambda a, b: linalg.solve(a, b.mT, left=False)
    yield "solve, transposed", (a, b), lambda a, b: linalg.solve(a.mT, b)
    yield "solve, several right sides", (a, b), lambda a, b: linalg.solve(a, b.expand(2, *b.shape))
    yield "solve, to a given tensor", (a, b), lambda a, b: linalg.solve(a, b, out=torch.empty_like(b))
    for left in (True, False):
        yield (
            f"lu_solve, left: {left}",
            (a, b),
            lambda a, b, f=left: linalg.lu_solve(*linalg.lu_factor(a), b if f else b.mT, left=f),
        )
        yield (
            f"lu_solve, left: {left}, adjoint",
            (a, b),
            lambda a, b, f=left: linalg.lu_solve(*linalg.lu_factor(a), b if f else b.mT, left=f, adjoint=True),
        )
    yield "solve_triangular", (a, b), lambda a, b: linalg.solve_triangular(a.triu(), b, upper=True)
    yield "inv", (a,), linalg.inv
    yield "det", (a,), linalg.det
    yield "slogdet", (a,), linalg.slogdet
    yield "eigh", (p,), lambda p: eigen(*linalg.eigh(p))
    yield "eigh, upper", (p,), lambda p: eigen(*linalg.eigh(p, UPLO="U"))
    yield "eigvalsh", (p,), linalg.eigvalsh
    yield "eigvals", (a,), lambda a: linalg.eigvals(a).abs().sort().values
    high = data((*batch, n + 2, 2), dtype)
    yield "lstsq", (tall, high), lambda a, b: linalg.lstsq(a, b).solution
    yield "lstsq, gels", (tall, high), lambda a, b: list(linalg.lstsq(a, b, driver="gels"))[:2]
    yield "lstsq, wide", (wide, b), lambda a, b: linalg.lstsq(a, b).solution
    yield "lstsq, square", (a, b), lambda a, b: linalg.lstsq(a, b, driver="gels").solution
    yield "lstsq, gelsd", (tall, high), lambda a, b: linalg.lstsq(a, b, driver="gelsd")
    yield "pinv of a Hermitian matrix", (p,), lambda p: linalg.pinv(p, hermitian=True)
    yield "matrix_rank", (tall,), linalg.matrix_rank
    for norm in (None, "fro", 1, 2):
        yield f"cond, {norm}", (a,), lambda a, norm=norm: linalg.cond(a, norm)
    yield "matrix_exp", (a,), linalg.matrix_exp


WITH_GRADIENTS = {"cholesky", "solve", "inv", "qr, reduced, tall", "svd, full: False, tall", "eigh", "det", "lstsq"}

# Calls that the library, or PyTorch, refuses.
BAD = {
    "not definite": (linalg.cholesky, -torch.eye(3)),
    "one isn't definite": (linalg.cholesky, torch.stack([torch.eye(3), -torch.eye(3)])),
    "singular": (linalg.inv, torch.zeros(3, 3)),
    "no solution": (lambda x: linalg.solve(x, x), torch.zeros(2, 3, 3)),
    "without pivots": (lambda x: linalg.lu_factor(x, pivot=False), torch.eye(3)),
    "not square": (linalg.det, torch.ones(3, 4)),
    "integers": (linalg.inv, torch.eye(3, dtype=torch.int64)),
    "half precision": (linalg.cholesky, torch.eye(3).half()),
    "a driver": (lambda x: linalg.svd(x, driver="gesvd"), torch.eye(3)),
}


def gradients(f, tensors):
    leaves = [t.clone().requires_grad_() for t in tensors]
    results = f(*leaves)
    results = (results,) if isinstance(results, torch.Tensor) else results
    sum(r.abs().sum() for r in results).backward()
    return [t.grad.cpu() for t in leaves]


def tell(f, x):
    try:
        f(x)
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return "it works"


def compare(device, sizes=(1, 3), batches=((), (2,)), dtypes=(F32, F64, C64, C128), then=lambda: None):
    """Check that results, the arguments afterwards and gradients are the CPU's. It returns the number of calls, and
    calls ``then`` before those that no library does."""
    n = 0
    for batch in batches:
        for size in sizes:
            for dtype in dtypes:
                for name, tensors, f in cases(size, dtype, batch):
                    on = [t.to(device) for t in tensors]
                    want, got = f(*tensors), f(*on)
                    want, got = ([x] if isinstance(x, torch.Tensor) else list(x) for x in (want, got))
                    about = f"{name}, {size}, {dtype}, {batch}"
                    most = 3e-4 if dtype in (F32, C64) else 1e-9
                    for w, g in zip(want, got, strict=True):
                        assert g.device.type == torch.device(device).type, about
                        torch.testing.assert_close(
                            g.cpu(), w, rtol=most, atol=most * 10, msg=lambda m, about=about: f"{about}: {m}"
                        )
                    for t, x in zip(on, tensors, strict=True):
                        assert torch.equal(t.cpu(), x), f"{about} changes its argument"
                    if name in WITH_GRADIENTS and size > 1 and dtype == F64:
                        torch.testing.assert_close(gradients(f, on), gradients(f, tensors), msg=about)
                    n += 1
    then()
    empty = torch.zeros(2, 0, 0)
    for f in (linalg.cholesky, linalg.inv, linalg.det, linalg.lu_factor, linalg.eigvalsh, linalg.svdvals, linalg.qr):
        want, got = f(empty), f(empty.to(device))
        for w, g in zip(*([x] if isinstance(x, torch.Tensor) else x for x in (want, got)), strict=True):
            assert torch.equal(g.cpu(), w), f
    for name, (f, x) in BAD.items():
        here, there = tell(f, x), tell(f, x.to(device))
        assert there.replace(torch.device(device).type, "cpu") == here, (name, there, here)
    return n
