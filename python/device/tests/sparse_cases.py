"""Operators on sparse tensors, of any device against the CPU's: results, layouts, order, gradients."""

import functools
import io
import itertools
import pickle
import warnings

import torch
import torch.nn.functional as F

WHOLES = [torch.int64, torch.bool]
FLOATS = [torch.float32, torch.float64, torch.complex64]
MORE = [torch.float16, torch.bfloat16, torch.complex128, torch.int32, torch.uint8]
SIZES = [(0, 0), (1, 1), (5, 3), (3, 0)]
LAYOUTS = {layout: str(layout).split("_")[1] for layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)}
OF_VALUES = "abs asinh ceil erf expm1 isnan neg relu round sgn sin sqrt".split()
ROUGH = {torch.float16: 1e-2, torch.bfloat16: 5e-2}


def dense(dtype, *sizes, seed=0):
    """Small numbers, of which about half are 0, and a row of zeros."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randint(-3, 4, sizes, generator=g) * torch.randint(0, 2, sizes, generator=g)
    if x.dim() > 1 and x.size(0) > 2:
        x[2] = 0
    return x.abs().to(dtype) if dtype in (torch.uint8, torch.bool) else x.to(dtype)


def uncoalesced(dtype, rows, columns, *rest, n=7):
    """A sparse tensor with several elements in one place."""
    n = n if rows * columns else 0
    g = torch.Generator().manual_seed(n)
    places = torch.stack([torch.randint(0, max(most, 1), (n,), generator=g) for most in (rows, columns)])
    return torch.sparse_coo_tensor(places, dense(dtype, n, *rest, seed=1), (rows, columns, *rest))


def saved(x):
    memory = io.BytesIO()
    torch.save(x, memory)
    memory.seek(0)
    return torch.load(memory)


def parts(x):
    if x.layout == torch.sparse_coo:
        return [x._indices(), x._values()]
    if x.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [x.crow_indices(), x.col_indices(), x.values()]
    return [x.ccol_indices(), x.row_indices(), x.values()]


def gradients(f, *inputs):
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    result = f(*inputs)
    result = result if result.layout == torch.strided else result.to_dense()
    (result * result).sum().backward()
    return [x.grad.coalesce() if x.grad.layout == torch.sparse_coo else x.grad for x in inputs]


def made(dtype, sizes):
    """Making tensors, their parts, and conversions between layouts."""
    x, loose = dense(dtype, *sizes), uncoalesced(dtype, *sizes)
    yield "uncoalesced", lambda s: s, [loose]
    yield "coalesced", lambda s: s.coalesce(), [loose]
    yield "to_dense", lambda s: s.to_dense(), [loose]
    yield "of parts", lambda i, v: torch.sparse_coo_tensor(i, v, sizes), parts(loose)
    yield "hybrid", lambda s: s.coalesce(), [uncoalesced(dtype, *sizes, 2)]
    yield "hybrid to_dense", lambda s: s.to_dense(), [uncoalesced(dtype, *sizes, 2)]
    yield "t", lambda s: s.t(), [loose]
    yield "number", lambda s: s * 2, [loose]
    yield "to_sparse of one dimension", lambda d: d.to_sparse(1), [x]
    for layout, name in LAYOUTS.items():
        yield f"to_sparse {name}", lambda d, layout=layout: d.to_sparse(layout=layout), [x]
        s = x.to_sparse(layout=layout)
        yield f"{name} moved", lambda s: [s, *parts(s)], [s]
        yield f"{name} to_dense", lambda s: s.to_dense(), [s]
        yield f"{name} clone", lambda s: s.clone(), [s]
        yield f"{name} saved", saved, [s]
        zeros = functools.partial(torch.zeros, sizes, dtype=dtype, layout=layout)
        yield f"{name} zeros", lambda d, zeros=zeros: zeros(device=d.device), [x]
        if dtype not in MORE:
            yield f"uncoalesced to {name}", lambda s, layout=layout: s.to_sparse(layout=layout), [loose]
            for other in LAYOUTS:
                yield f"{name} to {LAYOUTS[other]}", lambda s, other=other: s.to_sparse(layout=other), [s]


def operators(dtype, sizes):
    x, loose = dense(dtype, *sizes), uncoalesced(dtype, *sizes)
    y = dense(dtype, sizes[1], 4, seed=2)
    to = dense(dtype, sizes[0], 4, seed=3)
    many = [uncoalesced(dtype, *sizes, n=4), uncoalesced(dtype, *sizes, n=9)]
    yield "coo + coo", lambda a, b: (a + b).coalesce(), many
    yield "coalesced + coalesced", lambda a, b: a.coalesce() + b.coalesce(), many
    yield "dense + coo", lambda d, s: d + s, [x, loose]
    yield "dense + 2 * coo", lambda d, s: torch.add(d, s, alpha=2, out=torch.empty_like(d)), [x, loose]
    yield "dense.add_", lambda d, s: d.add_(s, alpha=3), [x, loose]
    yield "coo * coo", lambda a, b: a * b, many
    yield "coo * dense", lambda s, d: s.coalesce() * d, [loose, x]
    yield "sparse_mask", lambda d, s: d.sparse_mask(s.coalesce()), [x, loose]
    yield "sum", lambda s: s.sum(), [loose]
    yield "sum of a dimension", lambda s: torch.sparse.sum(s, 0).to_dense(), [loose]
    yield "index_select", lambda s, i: s.index_select(0, i).to_dense(), [loose, torch.arange(sizes[0]).flip(0)]
    if dtype == torch.bool:
        return
    yield "mm uncoalesced", torch.sparse.mm, [loose, y]
    yield "addmm uncoalesced", lambda d, s, y: torch.addmm(d, s, y, alpha=2, beta=3), [to, loose, y]
    yield "addmm of a row", lambda d, s, y: torch.sparse.addmm(d, s, y), [to[:1], loose, y]
    yield "addmm_", lambda d, s, y: d.addmm_(s, y), [to, loose, y]
    yield "mv", lambda s, v: s @ v, [loose, y[:, 0].contiguous()]
    for layout, name in LAYOUTS.items():
        s = x.to_sparse(layout=layout)
        yield f"{name} mm", torch.sparse.mm, [s, y]
        yield f"{name} mm transposed", torch.sparse.mm, [s, dense(dtype, 4, sizes[1]).t()]
        yield f"dense @ {name}", torch.mm, [dense(dtype, 4, sizes[0]), s]
        yield f"{name} mv", torch.mv, [s, y[:, 0].contiguous()]
        if dtype not in MORE:
            yield f"{name} addmm", lambda d, s, y: torch.addmm(d, s, y, alpha=2), [to, s, y]
        if dtype in FLOATS and layout != torch.sparse_csc:
            for op in OF_VALUES if dtype == torch.float32 else ["abs", "neg", "sin"]:
                yield f"{name} {op}", getattr(torch, op), [s]
                if op != "isnan" and dtype == torch.float32:
                    yield f"{name} {op}_", lambda s, op=op: getattr(s, op + "_")(), [s]
            yield f"{name} / 2", lambda s: s / 2, [s]


def trained(dtype, sizes):
    """Gradients."""
    x, loose = dense(dtype, *sizes), uncoalesced(dtype, *sizes)
    y = dense(dtype, sizes[1], 4, seed=2)
    yield "to_dense", lambda s: gradients(lambda s: s.to_dense(), s), [loose]
    yield "coo mm", lambda s, y: gradients(torch.sparse.mm, s, y), [loose.coalesce(), y]
    yield "coo mm, of the dense one", lambda s, y: gradients(lambda y: torch.sparse.mm(s, y), y), [loose, y]
    yield "coo values", lambda s: gradients(lambda s: s.sin() * 2, s), [loose.coalesce()]
    yield "sparse_mask", lambda d, s: gradients(lambda d: d.sparse_mask(s), d), [x, loose.coalesce()]
    yield "to_sparse", lambda d: gradients(lambda d: d.to_sparse() * 2, d), [x]
    yield "coo + coo", lambda a: gradients(lambda a: a + a, a), [loose.coalesce()]
    if sizes[0] * sizes[1]:
        yield "csr mm", lambda s, y: gradients(torch.sparse.mm, s, y), [x.to_sparse_csr(), y]
        yield "csr mm, of the dense one", lambda s, y: gradients(lambda y: s @ y, y), [x.to_sparse_csr(), y]


def embeddings(optimizer, **options):
    """A model with sparse gradients, trained for some steps: losses and weights."""

    def train(place):
        model = torch.nn.Module()
        torch.manual_seed(0)
        model.words = torch.nn.Embedding(20, 4, sparse=True)
        model.bags = torch.nn.EmbeddingBag(20, 4, mode="sum", sparse=True)
        model.to(place.device)
        steps, losses = optimizer(model.parameters(), **options), []
        for step in range(4):
            at = torch.randint(0, 20, (3, 5), generator=torch.Generator().manual_seed(step)).to(place.device)
            loss = F.mse_loss(model.words(at).sum(1), model.bags(at)) + model.words(at).mean()
            steps.zero_grad()
            loss.backward()
            assert model.words.weight.grad.is_sparse and model.bags.weight.grad.is_sparse
            assert model.words.weight.grad.device == place.device
            steps.step()
            losses.append(loss.detach())
        return [*losses, model.words.weight.detach(), model.bags.weight.detach()]

    return train


def pickled(s):
    return pickle.loads(pickle.dumps(s))


def single():
    """Cases that need no other types and sizes."""
    loose, x = uncoalesced(torch.float32, 4, 6), dense(torch.float32, 4, 6)
    csr, coo = x.to_sparse_csr(), loose.coalesce()
    square, two = uncoalesced(torch.float32, 5, 5), torch.stack([x, x])
    yield "pickled", pickled, [loose]
    for name, block in (("bsr", (2, 3)), ("bsc", (2, 3))):
        convert = lambda t, name=name, block=block: getattr(t, "to_sparse_" + name)(block)  # noqa: E731
        yield name, lambda d, f=convert: [f(d), *parts(f(d)), f(d).to_dense(), f(d).to_sparse()], [x]
        yield f"{name} moved", lambda s: s, [convert(x)]
    yield "of lists", lambda d: torch.sparse_csr_tensor([0, 1, 2], [0, 1], [1.0, 2.0], device=d.device), [x]
    yield "batches of csr", lambda d: [d.to_sparse_csr(), d.to_sparse_csr().to_dense()], [two]
    yield "values are shared", lambda s: [s.values().mul_(2), s], [coo]
    yield "csr values are shared", lambda s: [s.values().mul_(2), s], [csr]
    yield "copy_", lambda s, t: s.copy_(t), [coo, loose.abs()]
    yield "csr copy_", lambda s, t: s.copy_(t), [csr, csr * 2]
    yield "copy_ from the CPU", lambda s: s.copy_(uncoalesced(torch.float32, 4, 6, n=3)), [coo]
    yield "csr copy_ from the CPU", lambda s: s.copy_(csr * 2), [csr]
    yield "out= of a product", lambda a, b: torch.mul(a, b, out=a), [coo, coo.abs()]
    yield "out= of a sum", lambda a, b: [torch.add(a, b, out=a), a], [coo, coo.abs()]
    yield "sspaddmm", lambda s, y: torch.sspaddmm(s, s, y), [square, square.to_dense()]
    yield "hspmm", torch.hspmm, [loose, x.t()]
    yield "bmm", torch.bmm, [two.to_sparse(), two.mT]
    yield "sparse @ sparse", torch.sparse.mm, [coo, coo.t().coalesce()]
    yield "csr @ csr", torch.sparse.mm, [csr, csr.t().to_sparse_csr()]
    yield "softmax", lambda s: torch.sparse.softmax(s, 1), [coo]
    yield "log_softmax", lambda s: gradients(lambda s: torch.sparse.log_softmax(s, 1), s), [coo]
    yield "sampled_addmm", torch.sparse.sampled_addmm, [csr, x, dense(torch.float32, 6, 6)]
    for how in ("sum", "mean", "amax"):
        yield f"mm, {how}", lambda s, y, how=how: torch.sparse.mm(s, y, how), [csr, x.t().contiguous()]
    yield "resize", lambda s: torch.sparse_coo_tensor((2, 3), device=s.device).sparse_resize_((4, 5), 2, 0), [coo]
    yield "resize_as", lambda s: torch.sparse_coo_tensor((0, 0), device=s.device).resize_as_sparse_(s), [coo]
    yield "row", lambda s: [s[1], s.to_sparse_csr()[1]], [coo]
    yield "cat", lambda s: [torch.cat([s, s]), torch.cat([s, s], 1)], [coo]
    yield "norms", lambda s: [s.norm(), s.any(), s.pow(2)], [coo]
    yield "types", lambda s: [s.double(), s.to(torch.complex64), s.is_sparse, s.layout, s.shape, s._nnz()], [coo]
    yield "equal", lambda s: [torch.equal(s, s), torch.allclose(s.to_dense(), s.to_dense())], [coo]
    yield "a bad index", lambda i, v: torch.sparse_coo_tensor(i + 9, v, (4, 6), check_invariants=True), parts(coo)
    yield "a bad row", lambda r, c, v: torch.sparse_csr_tensor(r - 1, c, v, (4, 6), check_invariants=True), parts(csr)
    yield "a bad product", torch.sparse.mm, [coo, x]
    for optimizer in (torch.optim.SparseAdam, torch.optim.SGD, torch.optim.Adagrad):
        yield optimizer.__name__, embeddings(optimizer, lr=0.1), [x]
    yield "SGD with momentum", embeddings(torch.optim.SGD, lr=0.1, momentum=0.9), [x]


def cases(full):
    yield from (("single: " + name, f, arguments) for name, f, arguments in single())
    for family in (made, operators, trained):
        types = FLOATS if family is trained else FLOATS + WHOLES + MORE * full
        brief = [(types[0], SIZES[0]), (types[0], SIZES[2]), (types[-1], SIZES[2])]
        for dtype, sizes in itertools.product(types, SIZES) if full else brief:
            for name, f, arguments in family(dtype, sizes):
                yield f"{family.__name__} {dtype} {sizes}: {name}", f, arguments


def flat(value):
    return [x for v in value for x in flat(v)] if isinstance(value, (list, tuple)) else [value]


def unlike(want, got, device):
    """The difference between two results; empty if there is none."""
    if not isinstance(want, torch.Tensor):
        return "" if want == got else f"{got}, not {want}"
    facts = [(t.layout, t.dtype, t.shape, t.layout == torch.sparse_coo and t.is_coalesced()) for t in (want, got)]
    if facts[0] != facts[1]:
        return f"{facts[1]}, not {facts[0]}"
    if got.device.type != device:
        return f"a tensor of {got.device}"
    if want.layout != torch.strided:
        if any(p.device.type != device for p in parts(got)):
            return "parts elsewhere"
        pairs = zip(parts(want), parts(got), strict=True)
        return next((text for text in (unlike(w, g, device) for w, g in pairs) if text), "")
    rough = ROUGH.get(want.dtype, 1e-5)
    if torch.allclose(want, got.cpu(), rtol=rough, atol=rough, equal_nan=True):
        return ""
    return f"{got.flatten()[:8].tolist()}, not {want.flatten()[:8].tolist()}"


def tried(f, arguments):
    try:
        return f(*arguments), None
    except Exception as error:
        return None, error


def by_others(f, arguments):
    """The CPU's result in a wider type, as the arguments' own."""
    type_of = arguments[0].dtype
    wide = torch.complex128 if type_of.is_complex else torch.float64
    want, failed = tried(f, [t.to(wide) for t in arguments])
    return want if failed else want.to(type_of), failed


def differences(device, full=False, every=1):
    """How results of a device differ from the CPU's, in one case of so many, and how many cases there were."""
    found, n = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, f, arguments in itertools.islice(cases(full), None, None, every):
            n += 1
            theirs = [t.to(device) for t in arguments]
            want, failed = tried(f, [t.clone() for t in arguments])
            got, refused = tried(f, theirs)
            if isinstance(failed, NotImplementedError) and refused is None:  # kernels have more types than the CPU
                want, failed = by_others(f, arguments)
            if type(failed) is not type(refused):
                found.append(f"{name}: CPU {failed!r}, device {refused!r}")
            elif failed is None:
                pairs = zip(flat(want), flat(got), strict=True)
                found += [f"{name}: {text}" for w, g in pairs if (text := unlike(w, g, device))]
    return found, n
