"""Operators of neural networks against the CPU's, forward and backward: families of native_cases.py."""

import functools
import itertools

import torch
from native_cases import FLOATS, WHOLES, compare, tensor
from torch.nn import functional

F32 = [torch.float32]


def spread(*sizes, dtype=torch.float32, seed=0):
    """A tensor whose elements differ in every type, so that a largest one is the same everywhere."""
    n = torch.Size(sizes).numel()
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return ((order - n / 2) / max(n / 8, 1)).to(dtype).view(sizes)


def trained(f):
    """f's result, and the gradients of all its floating-point arguments by an uneven gradient of the result."""

    def run(*xs):
        xs = [x.detach().requires_grad_() if x.is_floating_point() else x for x in xs]
        y = f(*xs)
        y = y[0] if isinstance(y, tuple) else y
        g = torch.linspace(-1, 1, max(y.numel(), 1), device=y.device)[: y.numel()].view(y.shape).to(y.dtype)
        y.backward(g)
        return [y.detach(), *(x.grad for x in xs if x.is_floating_point())]

    return run


def image_layouts(dtype, *sizes):
    """Images in different layouts, then without a batch."""
    x = spread(*sizes, dtype=dtype)
    yield "dense", x
    if len(sizes) > 3:
        last = torch.channels_last if len(sizes) == 4 else torch.channels_last_3d
        yield "channels last", x.contiguous(memory_format=last)
    yield "strided", spread(*sizes[:-1], 2 * sizes[-1], dtype=dtype)[..., ::2]
    yield "without a batch", x[0].clone()


def convolutions(full):
    conv = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
    back = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}
    forms = [
        {},
        {"stride": 2, "padding": 1},
        {"dilation": 2, "padding": 2},
        {"groups": 2},
        {"groups": 4, "padding": 1},
    ]
    for dtype in FLOATS if full else F32:
        rough = in_16_bits(dtype)
        for d, form in itertools.product((1, 2, 3) if full else (2,), forms if full else forms[1:5:3]):
            g = form.get("groups", 1)
            for layout, x in itertools.islice(image_layouts(dtype, 2, 4, *(9, 8, 7)[:d]), None if full else 2):
                w, b = spread(8, 4 // g, *[3] * d, dtype=dtype, seed=1) / 4, spread(8, dtype=dtype, seed=2)
                compare(
                    f"conv{d}d {form} {dtype} {layout}",
                    trained(lambda x, w, b: conv[d](x, w, b, **form)),
                    x,
                    w,
                    b,
                    rough=rough,
                )
            w, b = spread(4, 8 // g, *[3] * d, dtype=dtype, seed=1) / 4, spread(8, dtype=dtype, seed=2)
            compare(
                f"conv_transpose{d}d {form} {dtype}",
                trained(lambda x, w, b: back[d](x, w, b, **form)),
                x,
                w,
                b,
                rough=rough,
            )
        x, w = spread(2, 4, 6, 6, dtype=dtype), spread(4, 1, 3, 3, dtype=dtype, seed=1)
        compare(
            f"depthwise {dtype}",
            trained(lambda x, w: functional.conv2d(x, w, groups=4, padding="same")),
            x,
            w,
            rough=rough,
        )
        compare(
            f"conv_transpose2d {dtype} output_padding",
            trained(lambda x, w: functional.conv_transpose2d(x, w, stride=2, output_padding=1, groups=4)),
            x,
            w,
            rough=rough,
        )
        compare(f"conv2d {dtype} 1 by 1", trained(functional.conv2d), x, spread(6, 4, 1, 1, dtype=dtype))
        compare(f"conv2d {dtype} of nothing", lambda x, w: functional.conv2d(x[:0], w, groups=4), x, w)
    x, w = spread(1, 2, 4, 4), spread(3, 2, 3, 3)
    compare("conv2d of int32", functional.conv2d, x.int(), w.int())
    compare("conv2d of wrong channels", lambda x, w: functional.conv2d(x[:, :1], w), x, w)
    compare("conv2d of a small image", lambda x, w: functional.conv2d(x[..., :2], w), x, w)
    compare("conv2d of two types", lambda x, w: functional.conv2d(x, w.double()), x, w)


def pools(full):
    for dtype in FLOATS if full else F32:
        for d in (1, 2, 3) if full else (2,):
            largest = getattr(functional, f"max_pool{d}d")
            average = getattr(functional, f"avg_pool{d}d")
            to = (3, 2, 2)[:d]
            for layout, x in itertools.islice(image_layouts(dtype, 2, 3, *(9, 8, 7)[:d]), None if full else 2):
                name = f"pool{d}d {dtype} {layout}"
                compare("max_" + name, trained(lambda x: largest(x, 2)), x)
                compare("max_" + name + " padded", trained(lambda x: largest(x, 3, 2, 1, ceil_mode=True)), x)
                compare("max_" + name + " dilated", lambda x: largest(x, 3, 1, 1, 2, return_indices=True), x)
                compare("avg_" + name, trained(lambda x: average(x, 2)), x)
                for ceil, counts in itertools.product((False, True), (False, True)) if full else [(True, False)]:
                    compare(f"avg_{name} {ceil} {counts}", trained(lambda x: average(x, 3, 2, 1, ceil, counts)), x)
                if d > 1:
                    compare(f"avg_{name} divided", trained(lambda x: average(x, 2, divisor_override=3)), x)
                for n in (to, (1,) * d):
                    f = getattr(functional, f"adaptive_avg_pool{d}d")
                    compare(f"adaptive_avg_{name} {n}", trained(lambda x: f(x, n)), x)
                    f = getattr(functional, f"adaptive_max_pool{d}d")
                    compare(f"adaptive_max_{name} {n}", trained(lambda x: f(x, n)), x)
        x = spread(2, 3, 6, 4, dtype=dtype)
        y, at = functional.max_pool2d(x, 2, return_indices=True)
        compare(f"max_unpool2d {dtype}", trained(lambda y, at: functional.max_unpool2d(y, at, 2)), y, at)
    x = spread(1, 2, 4, 4)
    compare("max_pool2d of nothing", lambda x: functional.max_pool2d(x[:0], 2), x)
    for dtype, d in itertools.product(WHOLES, (1, 2, 3)) if full else [(torch.int64, 2)]:
        largest = getattr(functional, f"max_pool{d}d")
        for layout, y in image_layouts(dtype, 2, 3, *(5, 4, 5)[:d]):
            f = lambda y: largest(y, 3, 2, 1, return_indices=True)  # noqa: E731
            compare(f"max_pool{d}d {dtype} {layout}", f, y)
    for d, window in itertools.product((1, 2, 3) if full else (2,), (1, 2, 3, 5) if full else (3,)):
        average = getattr(functional, f"avg_pool{d}d")
        for layout, y in image_layouts(torch.int64, 2, 3, *(7, 6, 5)[:d]):
            for ceil, counts in itertools.product((False, True), (False, True)):
                f = lambda y: average(10 * y, window, max(window - 1, 1), window // 2, ceil, counts)  # noqa: E731
                compare(f"avg_pool{d}d of int64 {window} {ceil} {counts} {layout}", f, y)
            if d > 1:
                f = lambda y: average(10 * y, window, divisor_override=-3)  # noqa: E731
                compare(f"avg_pool{d}d of int64 {window} divided {layout}", f, y)
    compare("max_pool2d of bool", lambda x: functional.max_pool2d(x, 2), x > 0)
    compare("avg_pool2d of a large window", lambda x: functional.avg_pool2d(x, 9), x)
    compare("max_pool2d with wide padding", lambda x: functional.max_pool2d(x, 2, padding=2), x)


def in_float(f):
    """A function that the CPU computes in float32, as the device does."""
    return lambda *x: f(*(t.float() for t in x)).to(x[0].dtype) if x[0].is_cpu else f(*x)


def interpolations(full):
    sizes = {1: (7,), 2: (5, 7), 3: (3, 4, 5)}
    modes = {"nearest": (1, 2, 3), "nearest-exact": (1, 2, 3), "linear": (1,), "bilinear": (2,), "trilinear": (3,)}
    modes["bicubic"] = (2,)
    for dtype in FLOATS if full else F32:
        for mode, dims in modes.items():
            for d in dims if full else set(dims) & {2}:
                corners = (None,) if "nearest" in mode else (False, True)
                for (layout, x), align in itertools.product(
                    itertools.islice(image_layouts(dtype, 2, 3, *sizes[d]), 3 if full else 1), corners
                ):
                    for how in ({"size": (9, 4, 8)[:d]}, {"scale_factor": 2.0}, {"scale_factor": 0.6}):
                        f = lambda x: functional.interpolate(x, mode=mode, align_corners=align, **how)  # noqa: E731
                        compare(f"interpolate {mode} {d} {align} {how} {dtype} {layout}", trained(f), x)
                if mode in ("bilinear", "bicubic"):
                    f = lambda x: functional.interpolate(x, (3, 10), mode=mode, antialias=True)  # noqa: E731
                    compare(f"interpolate {mode} antialias {dtype}", trained(f), spread(2, 3, 5, 7, dtype=dtype))
        for mode, d in itertools.product(("reflect", "replicate", "circular", "constant"), (1, 2, 3) if full else (2,)):
            for layout, x in image_layouts(dtype, 2, 3, *sizes[d]):
                border = (1, 2, 2, 1, 0, 1)[: 2 * d]
                f = lambda x: functional.pad(x, border, mode)  # noqa: E731
                compare(f"pad {mode} {d} {dtype} {layout}", trained(f), x)
        x, y = spread(2, 3, 5, 6, dtype=dtype), tensor(dtype, 2, 4, 3, 2, low=-1.2, high=1.2)
        for mode, border, align in itertools.product(
            ("bilinear", "nearest", "bicubic") if full else ("bilinear",),
            ("zeros", "border", "reflection") if full else ("zeros",),
            (False, True),
        ):
            f = lambda x, y: functional.grid_sample(x, y, mode, border, align)  # noqa: E731
            volume, places = spread(2, 3, 4, 5, 6, dtype=dtype), tensor(dtype, 2, 3, 2, 4, 3, low=-1.2, high=1.2)
            if dtype.itemsize == 2:  # the CPU has the places in 16 bits, and the device in 32
                f = in_float(f)
                if mode != "bicubic":
                    compare(f"grid_sample {mode} {border} {align} {dtype}", f, x, y)
                    compare(f"grid_sample of volumes {mode} {border} {align} {dtype}", f, volume, places)
                continue
            compare(f"grid_sample {mode} {border} {align} {dtype}", trained(f), x, y)
            if mode != "bicubic":
                compare(f"grid_sample of volumes {mode} {border} {align} {dtype}", trained(f), volume, places)
        for layout, x in image_layouts(dtype, 2, 3, 6, 8):
            f = lambda x: functional.unfold(x, (2, 3), dilation=(1, 2), padding=1, stride=2)  # noqa: E731
            compare(f"unfold {dtype} {layout}", trained(f), x)
        f = lambda x: functional.fold(x, (6, 7), (2, 3), padding=1, stride=(2, 1))  # noqa: E731
        compare(f"fold {dtype}", trained(f), spread(2, 3 * 6, 4 * 7, dtype=dtype))
        compare(f"fold {dtype} without a batch", trained(f), spread(3 * 6, 4 * 7, dtype=dtype))
    x = spread(1, 2, 3, 4)
    compare("pad too wide", lambda x: functional.pad(x, (5, 5, 0, 0), "reflect"), x)
    compare("interpolate of int64", lambda x: functional.interpolate(x, scale_factor=2), x.long())
    compare("unfold of nothing", lambda x: functional.unfold(x[:0], 2), x)


def networks(full):
    for dtype in FLOATS if full else F32:
        normalizations(dtype)
        attentions(dtype, full)
        losses(dtype)
        margins(dtype)
        bags(dtype, full)
        for dim in (0, 1, -1):
            compare(f"glu {dtype} {dim}", trained(lambda x: functional.glu(x, dim)), tensor(dtype, 4, 6, 8))
        x, y = tensor(dtype, 2, 5, 3), tensor(dtype, 2, 4, 3, seed=1)
        for p in (0.0, 1.0, 2.0, 1.5, float("inf")):
            compare(f"cdist {p} {dtype}", trained(lambda x, y: torch.cdist(x, y, p)), x, y)
            compare(f"pdist {p} {dtype}", trained(lambda x: functional.pdist(x, p)), x[0].clone())
        compare(f"cdist {dtype} broadcast", torch.cdist, x, y[:1].clone())
        compare(f"pdist {dtype} of one", lambda x: functional.pdist(x[0, :1]), x)
        compare(f"rrelu {dtype}", trained(lambda x: functional.rrelu(x, 0.1, 0.4)), x)
        compare(f"rrelu_ {dtype}", lambda x: torch.rrelu_(x, 0.1, 0.4), x)
        compare(f"dropout {dtype}", trained(lambda x: functional.dropout(x, 0.0)), x)
        compare(f"dropout {dtype} of all", trained(lambda x: functional.dropout(x, 1.0)), x)


def in_16_bits(dtype):
    """The tolerance for sums that the CPU adds in 16 bits, and the device in 32."""
    return {torch.float16: 4e-2, torch.bfloat16: 0.12}.get(dtype)


def normalizations(dtype):
    rough = in_16_bits(dtype)
    for layout, x in itertools.chain(
        itertools.islice(image_layouts(dtype, 3, 4, 5, 6), 3),
        [("rows", spread(5, 4, dtype=dtype)), ("lines", spread(3, 4, 7, dtype=dtype)),
         ("volumes", spread(2, 4, 3, 2, 3, dtype=dtype))],
    ):  # fmt: skip
        w, b = tensor(dtype, 4, seed=1), tensor(dtype, 4, seed=2)
        mean, var = tensor(dtype, 4, seed=3), tensor(dtype, 4, seed=4, low=0.5)

        def normalized(x, w, b, mean, var, training):
            mean, var = mean.clone(), var.clone()  # as they are changed
            f = trained(lambda x, w, b: functional.batch_norm(x, mean, var, w, b, training, 0.25))
            return [*f(x, w, b), mean, var]

        name = f"{dtype} {layout}"
        for training in (True, False):
            compare(
                f"batch_norm {name} {training}", lambda *a: normalized(*a, training), x, w, b, mean, var, rough=rough
            )
        compare(
            f"batch_norm {name} without statistics",
            trained(lambda x: functional.batch_norm(x, None, None, training=True)),
            x,
        )
        if dtype in (torch.float16, torch.bfloat16):
            f = lambda x, w, b, m, v: normalized(x, w.float(), b.float(), m.float(), v.float(), True)  # noqa: E731
            compare(f"batch_norm {name} with float32", f, x, w, b, mean, var, rough=rough)
        for groups in (1, 2, 4) if x.dim() > 2 else (1, 2):  # of more than one element
            f = lambda x, w, b: functional.group_norm(x, groups, w, b)  # noqa: E731
            compare(f"group_norm {groups} {name}", trained(f), x, w, b, rough=rough)
        compare(f"group_norm {name} without weights", trained(lambda x: functional.group_norm(x, 2)), x)
        if x.dim() > 2:
            compare(
                f"instance_norm {name}", trained(lambda x, w, b: functional.instance_norm(x, None, None, w, b)), x, w, b
            )
    x, w = tensor(dtype, 3, 5, 8), tensor(dtype, 8, seed=1)
    compare(f"rms_norm {dtype}", trained(lambda x, w: functional.rms_norm(x, (8,), w)), x, w)
    compare(f"batch_norm {dtype} of nothing", lambda x: functional.batch_norm(x[:0], None, None, training=True), x)


def attentions(dtype, full):
    attend = functional.scaled_dot_product_attention
    q, k, v = (tensor(dtype, 2, 3, n, 16, seed=i, low=-1, high=1) for i, n in enumerate((5, 7, 7)))
    compare(f"attention {dtype}", trained(attend), q, k, v)
    compare(f"attention {dtype} causal", trained(lambda q, k, v: attend(q, k, v, is_causal=True)), q, k, v)
    compare(f"attention {dtype} scaled", trained(lambda q, k, v: attend(q, k, v, scale=0.5)), q, k, v)
    heads = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    compare(f"attention {dtype} of strided heads", trained(attend), *heads)
    for sizes in ((5, 7), (2, 1, 5, 7), (1, 3, 1, 7)):
        mask = tensor(torch.bool, *sizes, seed=5)
        mask[..., 0] = True
        compare(f"attention {dtype} {sizes} of bool", trained(lambda *a: attend(*a[:3], attn_mask=a[3])), q, k, v, mask)
        add = tensor(dtype, *sizes, seed=6)
        f = lambda q, k, v, m: trained(lambda q, k, v: attend(q, k, v, attn_mask=m))(q, k, v)  # noqa: E731
        compare(f"attention {dtype} {sizes} added", f, q, k, v, add)
    if full:
        compare(
            f"attention {dtype} of shared heads",
            trained(lambda q, k, v: attend(q, k[:, :1], v[:, :1], enable_gqa=True)),
            q,
            k,
            v,
        )
        long = [tensor(dtype, 1, 2, 70, 40, seed=i, low=-1, high=1) for i in range(3)]
        compare(f"attention {dtype} of 70 rows", trained(lambda *a: attend(*a, is_causal=True)), *long)
    compare(f"attention {dtype} of nothing", lambda q, k, v: attend(q[:, :, :0], k, v), q, k, v)
    compare(f"attention {dtype} of wrong sizes", lambda q, k, v: attend(q, k[..., :8], v), q, k, v)


def losses(dtype):
    for sizes in ((6, 5), (5,), (2, 5, 3), (2, 5, 3, 4)):
        x = tensor(dtype, *sizes)
        rest = sizes[:1] + sizes[2:] if len(sizes) > 1 else ()
        y = torch.arange(torch.Size(rest).numel()).view(rest) % 5
        w = tensor(dtype, 5, seed=1, low=0.5)
        for reduction in ("mean", "sum", "none"):
            name = f"{dtype} {sizes} {reduction}"
            f = lambda x, y: functional.cross_entropy(x, y, reduction=reduction)  # noqa: E731
            compare(f"cross_entropy {name}", trained(f), x, y, rough=in_16_bits(dtype))
            f = lambda x, y, w: trained(  # noqa: E731
                lambda x: functional.nll_loss(x, y, w, ignore_index=1, reduction=reduction)
            )(x)
            compare(f"nll_loss {name} weighted", f, x, y, w, rough=in_16_bits(dtype))
        f = lambda x, y: functional.cross_entropy(x, y, label_smoothing=0.1)  # noqa: E731
        compare(f"cross_entropy {dtype} {sizes} smoothed", trained(f), x, y)
    x, y = tensor(dtype, 4, 5, low=0.1, high=0.9), tensor(dtype, 4, 5, seed=1, low=0, high=1)
    for f in functional.binary_cross_entropy, functional.binary_cross_entropy_with_logits:
        compare(f"{f.__name__} {dtype}", lambda x, y: trained(lambda x: f(x, y))(x), x, y)


def margins(dtype):
    """Losses by margins between the scores of classes."""
    for sizes in ((6, 5), (1, 1), (5,)):
        x, w = tensor(dtype, *sizes), tensor(dtype, sizes[-1], seed=1, low=0.5)
        y = torch.arange(torch.Size(sizes[:-1]).numel()) % sizes[-1]
        y = y.view(sizes[:-1])
        labels = (torch.arange(x.numel()) * 5 % 7 - 1).clamp(max=sizes[-1] - 1).view(sizes)
        for how in ("mean", "sum", "none"):
            for p, margin, weight in ((1, 1, None), (2, 0.5, w)):
                f = functools.partial(functional.multi_margin_loss, p=p, margin=margin, reduction=how)
                name = f"multi_margin_loss {p} {how} {sizes} {dtype}"
                if weight is None:
                    compare(name, trained(f), x, y)
                else:
                    compare(name, lambda x, y, w: trained(lambda x: f(x, y, weight=w))(x), x, y, w)
            f = functools.partial(functional.multilabel_margin_loss, reduction=how)
            compare(f"multilabel_margin_loss {how} {sizes} {dtype}", trained(f), x, labels)
    compare(f"multi_margin_loss {dtype} of wrong sizes", functional.multi_margin_loss, x, torch.tensor([1, 2]))
    compare(f"multi_margin_loss {dtype} by a cubic", lambda x, y: functional.multi_margin_loss(x, y, p=3), x, y)


def bags(dtype, full):
    table, weights = tensor(dtype, 7, 5), tensor(dtype, 8, seed=1)
    at, ends = torch.tensor([1, 5, 5, 0, 6, 2, 1, 3]), torch.tensor([0, 2, 2, 8])
    for mode in ("sum", "mean", "max"):
        for form in ({}, {"padding_idx": 5}, {"include_last_offset": True}):
            f = lambda t, at, ends: functional.embedding_bag(at, t, ends, mode=mode, **form)  # noqa: E731
            compare(f"embedding_bag {mode} {form} {dtype}", trained(f), table, at, ends)
        compare(
            f"embedding_bag {mode} {dtype} of rows",
            trained(lambda t, at: functional.embedding_bag(at.view(2, 4), t, mode=mode)),
            table,
            at,
        )
    f = lambda t, w, at, ends: functional.embedding_bag(at, t, ends, mode="sum", per_sample_weights=w)  # noqa: E731
    compare(f"embedding_bag weighted {dtype}", trained(f), table, weights, at, ends)
    for frequency in (False, True):
        f = lambda t, at: functional.embedding(at, t, 5, scale_grad_by_freq=frequency)  # noqa: E731
        compare(f"embedding {dtype} {frequency}", trained(f), table, at)
