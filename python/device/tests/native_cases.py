"""Operators of a device whose driver compiles kernels, against the CPU's: values, types, sizes and strides.

    python native_cases.py FAMILY...       brief: a few operators and types of each family
    python native_cases.py --all FAMILY...

It prints what differs, how many cases there were, and which operators the fallback computed. Without such a device
it prints "no device:" and why.
"""

import functools
import itertools
import json
import os
import sys
import warnings

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
sys.path.insert(0, os.path.dirname(__file__))

import opencl_device
import sparse_cases
import torch
from chorus_device._device import c

DEVICE = "compiled"
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
WHOLES = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
TYPES = [*FLOATS, *WHOLES, torch.bool, torch.complex64]
BRIEF = [torch.float32, torch.int64]
FLOATS8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]

failures: list[str] = []
cases = 0


def tensor(dtype, *sizes, seed=0, low=-4.0, high=4.0):
    """A tensor of the CPU with few numbers of each kind."""
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(sizes, generator=g, dtype=torch.float64) * (high - low) + low
    if dtype.is_complex:
        return torch.complex(x, x.flip(0) if x.dim() else x).to(dtype)
    return (x > 0).to(dtype) if dtype == torch.bool else x.to(dtype)


def layouts(dtype, seed=0):
    """Tensors of one size in different layouts, then others."""
    x = tensor(dtype, 4, 5, seed=seed)
    yield "dense", x
    yield "transposed", tensor(dtype, 5, 4, seed=seed).t()
    yield "strided", tensor(dtype, 8, 10, seed=seed)[::2, 1::2]
    yield "broadcast", tensor(dtype, 4, 1, seed=seed).expand(4, 5)
    yield "empty", tensor(dtype, 0, 5, seed=seed)
    yield "zero dimensions", tensor(dtype, seed=seed)


def close(a, b, rough=None):
    if a.dtype in FLOATS8:
        a, b, rough = a.float(), b.float(), 1e-9
    if a.dtype.is_floating_point or a.dtype.is_complex:
        rough = rough or {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 2e-5, torch.complex64: 5e-5}.get(
            a.dtype, 1e-9
        )
        return torch.allclose(a, b, rtol=rough, atol=rough, equal_nan=True)
    return torch.equal(a, b)


def outcome(f, arguments):
    """The result of f, or its error, which may be that of work that f has enqueued."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = f(*arguments)
            opencl_device.synchronize()
            return result, None
    except Exception as error:
        c().recover(0, 0)
        return None, error


def moved(value):
    if isinstance(value, torch.Tensor):
        if value.dim() == 0 or value.numel() == 0 or value.is_contiguous():
            return value.to(DEVICE) if value.is_contiguous() else value.clone().to(DEVICE)
        out = torch.empty_strided((value.untyped_storage().nbytes() // value.itemsize,), (1,), dtype=value.dtype)
        whole = value.as_strided(out.shape, (1,), 0)
        return whole.to(DEVICE).as_strided(value.shape, value.stride(), value.storage_offset())
    return type(value)(moved(v) for v in value) if isinstance(value, (list, tuple)) else value


def compare(name, f, *arguments, rough=None):
    """Run f with tensors of the CPU and with those of the device. rough is a tolerance instead of the types' own."""
    global cases
    cases += 1
    theirs = [moved(a) for a in arguments]
    opencl_device.synchronize()  # on an idle stream errors are raised at once
    ours = [a.clone() if isinstance(a, torch.Tensor) and a.is_contiguous() else a for a in arguments]
    want, failed = outcome(f, ours)
    got, refused = outcome(f, theirs)
    if (failed is None) != (refused is None) or (failed is not None and type(failed) is not type(refused)):
        failures.append(f"{name}: CPU {failed!r}, device {refused!r}")
        return
    for w, g in zip(flat(want), flat(got), strict=True):
        if isinstance(w, torch.Tensor):
            g2 = g.cpu()
            if w.dtype != g.dtype or w.shape != g.shape or w.stride() != g.stride():
                failures.append(
                    f"{name}: {g.dtype} {tuple(g.shape)} {g.stride()}, not {w.dtype} {tuple(w.shape)} {w.stride()}"
                )
            elif not close(w, g2, rough):
                failures.append(f"{name}: {g2.flatten()[:6].tolist()}, not {w.flatten()[:6].tolist()}")
        elif w != g:
            failures.append(f"{name}: {g}, not {w}")


def flat(value):
    if isinstance(value, (list, tuple)):
        return [x for v in value for x in flat(v)]
    return [value]


UNARY = """neg sign sgn logical_not isnan isposinf isneginf signbit bitwise_not ceil floor trunc round frac exp exp2
expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sigmoid erf
erfc erfinv lgamma digamma i0 sinc logit nan_to_num relu abs square special.i0e special.i1 special.i1e
special.entr""".split()
ACTIVATIONS = """hardtanh hardsigmoid hardswish hardshrink softshrink leaky_relu elu silu mish gelu softplus celu selu
relu6 logsigmoid""".split()
BINARY = """add sub mul div floor_divide remainder fmod pow atan2 hypot copysign maximum minimum fmax fmin logaddexp
logaddexp2 xlogy special.xlog1py bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd lcm
logical_and logical_or logical_xor eq ne lt le gt ge heaviside rsub""".split()
# Integers divided by zero are an error of the CPU's, and a number on a device.
DIVIDES = {"floor_divide", "remainder", "fmod", "bitwise_left_shift", "bitwise_right_shift", "pow"}


def function(name):
    f = torch
    for part in name.split("."):
        f = getattr(f, part)
    return f


def note(*texts):
    """Count a case, with texts that say how it has failed."""
    global cases
    cases += 1
    failures.extend(texts)


def elementwise(full):
    for name in UNARY if full else ["neg", "exp", "isnan", "relu"]:
        f = function(name)
        for dtype in TYPES if full else BRIEF:
            for layout, x in itertools.islice(layouts(dtype), None if full else 3):
                compare(f"{name} {dtype} {layout}", f, x)
        x = tensor(torch.int32 if name == "bitwise_not" else torch.float32, 3, 4)
        if name == "isnan":  # has no out=
            continue
        compare(f"{name} out=", lambda x, y: f(x, out=y), x, f(x))
        compare(f"{name} out= resized", lambda x, y: f(x, out=y), x, f(x).new_empty(0))
        compare(f"{name} out= transposed", lambda x, y: f(x, out=y.t()), x, f(x).t().contiguous())
        if hasattr(torch.Tensor, name + "_"):
            compare(f"{name}_", lambda x: getattr(x, name + "_")(), x)
    for name in ACTIVATIONS if full else ["gelu", "silu"]:
        f = getattr(torch.nn.functional, name)
        for dtype in FLOATS if full else [torch.float32]:
            for layout, x in layouts(dtype):
                compare(f"{name} {dtype} {layout}", f, x)
            compare(f"{name} backward {dtype}", lambda x: gradient(f, x), tensor(dtype, 5, 6))
    for name in BINARY if full else ["add", "div", "lt", "bitwise_and"]:
        f = function(name)
        types = itertools.product(TYPES, TYPES) if full else [(a, b) for a in BRIEF for b in BRIEF]
        for k, (a, b) in enumerate(types):
            x, y = tensor(a, 4, 5), tensor(b, 4, 5, seed=1, low=1 if name in DIVIDES else -4)
            compare(f"{name} {a} {b}", f, x, y)
            if full and a != b and k % 7:
                continue
            y = tensor(b, 5, seed=1, low=1 if name in DIVIDES else -4)
            compare(f"{name} {a} {b} row", f, x, y)
            compare(f"{name} {a} {b} 0 dimensions", f, x, y[2])
            compare(f"{name} {a} {b} of the CPU", lambda x: f(x, y[2]), x)
            compare(f"{name} {a} number", lambda x: f(x, 3), x)
            compare(f"{name} {a} float", lambda x: f(x, 2.5), x)
        for layout, x in layouts(torch.float32):
            compare(f"{name} {layout}", f, x, tensor(torch.float32, seed=1))
            if x.dim() == 2 and x.numel():
                compare(f"{name} {layout}, strided", f, x, tensor(torch.float32, 4, 10, seed=1)[:, ::2])
        x = tensor(torch.float32, 3, 4)
        compare(f"{name} out=", lambda x, y: f(x, x, out=y), x, torch.empty(3, 4))
        y = torch.empty(3, 4, dtype=torch.float64)  # computed in float32
        compare(f"{name} out= of another type", lambda x, y: (f(x, x, out=y).float(), y.dtype), x, y)
        compare(f"{name} out= too narrow", lambda x, y: f(x, x, out=y), x, torch.empty(3, 4, dtype=torch.int32))
        if hasattr(torch.Tensor, name + "_"):
            compare(f"{name}_", lambda x, y: getattr(x, name + "_")(y), x, x.flip(0))
            compare(f"{name}_ of itself", lambda x: getattr(x, name + "_")(x), x)
            compare(f"{name}_ overlapping", lambda x: getattr(x[1:], name + "_")(x[:-1]), x)
    x, y, z = (tensor(torch.float32, 4, 5, seed=i) for i in range(3))
    mask = tensor(torch.bool, 4, 5, seed=9)
    for dtype in TYPES if full else [torch.float32]:
        a, b, w = (tensor(dtype, 4, 5, seed=i, low=1) for i in range(3))
        compare(f"add alpha {dtype}", lambda a, b: torch.add(a, b, alpha=2), a, b)
        compare(f"sub alpha {dtype}", lambda a, b: torch.sub(a, b, alpha=0.5), a, b)
        compare(f"where {dtype}", torch.where, mask, a, b)
        compare(f"where number {dtype}", lambda m, a: torch.where(m, a, 2), mask, a)
        compare(f"where types {dtype}", torch.where, mask, a, y)
        compare(f"masked_fill {dtype}", lambda a, m: a.masked_fill(m, 1), a, mask)
        compare(f"masked_fill_ {dtype}", lambda a, m: a.masked_fill_(m[0], 0), a, mask)
        compare(f"addcmul {dtype}", lambda a, b, w: torch.addcmul(a, b, w, value=2), a, b, w)
        compare(f"addcdiv {dtype}", lambda a, b, w: torch.addcdiv(a, b, w, value=2), a, b, w)
        compare(f"lerp {dtype}", torch.lerp, a, b, w)
        compare(f"lerp number {dtype}", lambda a, b: torch.lerp(a, b, 0.25), a, b)
        for lo, hi in ((1, None), (None, 2), (0, 1), (0.5, 1.5)):
            compare(f"clamp {lo} {hi} {dtype}", lambda a: a.clamp(lo, hi), a)
        compare(f"clamp tensors {dtype}", torch.clamp, a, b, w)
        for p in (0, 1, 2, 3, 0.5, -1, -0.5, -2, 2.5):
            compare(f"pow {p} {dtype}", lambda a: a.pow(p), a)
            compare(f"{p} pow {dtype}", lambda a: p**a, a)
        for mode in (None, "trunc", "floor"):
            compare(f"div {mode} {dtype}", lambda a, b: torch.div(a, b, rounding_mode=mode), a, b)
    for dtype in FLOATS if full else [torch.float16]:  # quotients that are whole numbers only when rounded to the type
        a, b = tensor(dtype, 8192, low=-40, high=40), tensor(dtype, 8192, seed=1)
        compare(f"div trunc, many {dtype}", lambda a, b: torch.div(a, b, rounding_mode="trunc"), a, b)
        compare(f"div trunc, a number {dtype}", lambda a: torch.div(a, 0.3125, rounding_mode="trunc"), a)
    for approximate in ("none", "tanh"):
        f = lambda x: torch.nn.functional.gelu(x, approximate=approximate)  # noqa: E731
        compare(f"gelu {approximate}", lambda x: (f(x), gradient(f, x)), x)
    losses = torch.nn.functional.mse_loss, torch.nn.functional.smooth_l1_loss, torch.nn.functional.huber_loss
    for loss, how in itertools.product(losses, ("none", "mean", "sum")):
        compare(f"{loss.__name__} {how}", lambda x, y: gradient(lambda x: loss(x, y, reduction=how), x), x, y)
    doors(full)
    inf = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-40])
    for name in UNARY if full else ["relu", "isnan"]:
        compare(f"{name} of special numbers", function(name), inf)
    for name in BINARY if full else ["maximum"]:
        compare(f"{name} of special numbers", function(name), inf, inf.flip(0))


def doors(full):
    """Operators whose arguments say more than the table of elementwise operators."""
    functional = torch.nn.functional
    for dtype in TYPES if full else [torch.float32]:
        x = tensor(dtype, 5, 4)
        for n in (0, 2, -1):
            compare(f"round {n} {dtype}", lambda x: torch.round(x, decimals=n), x)
        for n in (0, 1):
            compare(f"polygamma {n} {dtype}", lambda x: torch.polygamma(n, x), x)
        compare(f"angle {dtype}", torch.angle, x)
        compare(f"angle out= {dtype}", lambda x, y: torch.angle(x, out=y), x, torch.empty(5, 4))
        compare(f"conj_physical_ {dtype}", lambda x: x.conj_physical_(), x)
        compare(f"nan_to_num {dtype}", torch.nan_to_num, x)
        compare(f"relu6 {dtype}", functional.relu6, x)
        compare(f"clamp by a tensor {dtype}", lambda x: (x.clamp(min=x[0]), x.clamp(max=x[0])), x)
        compare(f"masked_fill by a tensor {dtype}", lambda x: x.masked_fill(x.ne(x[0, 0]), x[1, 1]), x)
        compare(f"complex {dtype}", lambda x: torch.complex(x, x + 1), x)
        compare(f"polar {dtype}", lambda x: torch.polar(x, x + 1), x)
    for dtype in [torch.complex64, torch.complex128] if full else [torch.complex64]:
        z = tensor(dtype, 5, 4)
        for f in (torch.sigmoid, torch.tanh, functional.silu):
            compare(f"{f.__name__} backward {dtype}", lambda z: gradient(f, z), z)
    for dtype in FLOATS if full else [torch.float32]:
        x, w = tensor(dtype, 3, 4, 2), tensor(dtype, 4, seed=1)
        compare(f"prelu {dtype}", lambda x, w: (gradient(lambda x: functional.prelu(x, w), x),
                                                gradient(lambda w: functional.prelu(x, w), w)), x, w)  # fmt: skip
        x, y, w = tensor(dtype, 5, 4, low=0, high=1), tensor(dtype, 5, 4, seed=1, low=0, high=1), tensor(dtype, 4)
        for how in ("none", "mean", "sum"):
            loss = functools.partial(functional.binary_cross_entropy, reduction=how)
            f = lambda x, y, w: (loss(x, y, w), gradient(lambda x: loss(x, y), x))  # noqa: E731
            compare(f"binary_cross_entropy {how} {dtype}", f, x, y, w.abs())
        compare(f"binary_cross_entropy beyond 1 {dtype}", functional.binary_cross_entropy, x * 3, y)
        compare(f"binary_cross_entropy of nothing {dtype}", functional.binary_cross_entropy, x[:0], y[:0])


def gradient(f, x):
    x = x.detach().requires_grad_()
    y = f(x)
    y.backward(torch.ones_like(y) * 0.5)
    return x.grad


def reductions(full):
    names = """sum mean prod nansum all any amax amin argmax argmin max min aminmax var std var_mean std_mean
    count_nonzero logsumexp""".split()
    for name in names if full else ["sum", "amax", "argmax", "var"]:
        f = function(name)
        for dtype in TYPES if full else BRIEF:
            for layout, x in layouts(dtype):
                if name not in ("logsumexp",):
                    compare(f"{name} {dtype} {layout}", f, x)
                for dim in (0, -1, 5):
                    compare(f"{name} {dtype} {layout} {dim}", lambda x: f(x, dim=dim), x)
                if name not in ("count_nonzero",):
                    compare(f"{name} {dtype} {layout} kept", lambda x: f(x, dim=0, keepdim=True), x)
                if name in ("sum", "mean", "amax", "var", "all", "any", "count_nonzero", "logsumexp"):
                    compare(f"{name} {dtype} {layout} both", lambda x: f(x, dim=(0, 1)), x)
        x = tensor(torch.float32, 3, 4, 5)
        compare(f"{name} of 3 dimensions", lambda x: f(x, dim=1), x)
        if name in ("sum", "mean", "amax"):
            compare(f"{name} out=", lambda x, y: f(x, dim=1, out=y), x, torch.empty(3, 5))
            compare(f"{name} out= resized", lambda x, y: f(x, dim=1, out=y), x, torch.empty(0))
            compare(f"{name} out= of another size", lambda x, y: f(x, dim=1, out=y), x, torch.empty(2, 2))
        if name in ("sum", "mean", "prod"):
            for to in TYPES if full else [torch.float64]:
                compare(f"{name} to {to}", lambda x: f(x, dtype=to), x)
                compare(f"{name} to {to} of a dimension", lambda x: f(x, 1, dtype=to), x)
    for dtype in [torch.float32, torch.complex64] if full else [torch.float32]:
        for p in (0, 1, 2, 3, 0.5, float("inf"), -float("inf")):
            x = tensor(dtype, 4, 5)
            compare(f"norm {p} {dtype}", lambda x: torch.linalg.vector_norm(x, p), x)
            compare(f"norm {p} {dtype} of a dimension", lambda x: torch.linalg.vector_norm(x, p, dim=1), x)
    for correction in (0, 1, 2.5):
        compare(f"var {correction}", lambda x: torch.var(x, 1, correction=correction), tensor(torch.float32, 4, 5))
    for name in ("sum", "amax", "argmax", "var") if full else ("sum",):
        for sizes in ((70000,), (300, 300), (3, 40000), (40000, 3)):
            x = tensor(torch.float32, *sizes)
            compare(f"{name} of {sizes}", function(name), x)
            compare(f"{name} of {sizes} 0", lambda x: function(name)(x, dim=0), x)
    for name in ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin") if full else ("cumsum",):
        for dtype in TYPES if full else BRIEF:
            for layout, x in layouts(dtype):
                compare(f"{name} {dtype} {layout}", lambda x: function(name)(x, -1), x)
        compare(f"{name} of many", lambda x: function(name)(x, 1), tensor(torch.float32, 3, 1000, low=0.9, high=1.1))


def rows(full):
    for name in ("softmax", "log_softmax"):
        f = getattr(torch.nn.functional, name)
        for dtype in FLOATS if full else [torch.float32]:
            for layout, x in layouts(dtype):
                for dim in (0, -1):
                    compare(f"{name} {dtype} {layout} {dim}", lambda x: f(x, dim=dim), x)
                    compare(
                        f"{name} {dtype} {layout} {dim} backward",
                        lambda x: (
                            gradient(lambda x: f(x, dim=dim) * torch.linspace(0, 1, 20).view(4, 5).to(x), x)
                            if x.numel() == 20
                            else x
                        ),
                        x,
                    )
            compare(f"{name} {dtype} of many", lambda x: f(x, dim=1), tensor(dtype, 3, 1000))
        compare(f"{name} of int64", lambda x: f(x, dim=0), tensor(torch.int64, 4, 5))
    for dtype in FLOATS if full else [torch.float32]:
        x, w, b = tensor(dtype, 3, 7, 33), tensor(dtype, 33, seed=1), tensor(dtype, 33, seed=2)
        f = torch.nn.functional.layer_norm

        def normalized(x, w, b):
            x, w, b = (t.detach().requires_grad_() for t in (x, w, b))
            y = f(x, (33,), w, b)
            (y * y).sum().backward()
            return y.detach(), x.grad, w.grad, b.grad

        compare(f"layer_norm {dtype}", lambda x: f(x, (33,)), x)
        compare(f"layer_norm {dtype} of 2 dimensions", lambda x: f(x, (7, 33)), x)
        compare(f"layer_norm {dtype} transposed", lambda x: f(x.transpose(0, 1), (33,)), x)
        if dtype in (torch.float32, torch.float64):
            compare(f"layer_norm {dtype} with weights", normalized, x, w, b)
        compare(f"layer_norm {dtype} of wrong weights", lambda x, w: f(x, (33,), w), x, w[:5].clone())
        f = torch.nn.functional.rms_norm

        def scaled(x, w):
            x, w = (t.detach().requires_grad_() for t in (x, w))
            y = torch.nn.functional.rms_norm(x, (33,), w)
            (y * y).sum().backward()
            return y.detach(), x.grad, w.grad

        compare(f"rms_norm {dtype}", lambda x: f(x, (33,)), x)
        compare(f"rms_norm {dtype} of 2 dimensions", lambda x: f(x, (7, 33), eps=1e-3), x)
        compare(f"rms_norm {dtype} transposed", lambda x: f(x.transpose(0, 1), (33,)), x)
        compare(f"rms_norm {dtype} backward", lambda x: gradient(lambda x: f(x, (7, 33)), x), x)
        if dtype in (torch.float32, torch.float64):
            compare(f"rms_norm {dtype} with a weight", scaled, x, w)
        compare(f"rms_norm {dtype} of a wrong weight", lambda x, w: f(x, (33,), w), x, w[:5].clone())
        compare(f"rms_norm {dtype} of none", lambda x: f(x[:0], (33,)), x)


def products(full):
    for dtype in [*FLOATS, torch.complex64, torch.int64] if full else [torch.float32]:
        a, b, v = tensor(dtype, 5, 7), tensor(dtype, 7, 6, seed=1), tensor(dtype, 7, seed=2)
        q, r, s = tensor(dtype, 3, 5, 7), tensor(dtype, 3, 7, 6, seed=1), tensor(dtype, 5, 6, seed=4)
        compare(f"mm {dtype}", torch.mm, a, b)
        compare(f"mm {dtype} transposed", lambda a, b: torch.mm(b.t(), a.t()), a, b)
        compare(f"mm {dtype} out=", lambda a, b, s: torch.mm(a, b, out=s), a, b, s)
        compare(f"mm {dtype} of wrong sizes", torch.mm, a, a)
        compare(f"mv {dtype}", torch.mv, a, v)
        compare(f"dot {dtype}", torch.dot, v, v)
        compare(f"bmm {dtype}", torch.bmm, q, r)
        compare(f"matmul {dtype}", torch.matmul, q, b)
        compare(f"addmm {dtype}", lambda s, a, b: torch.addmm(s, a, b, beta=2, alpha=3), s, a, b)
        compare(f"addmm {dtype} beta 0", lambda s, a, b: torch.addmm(s, a, b, beta=0), s, a, b)
        compare(f"addmm {dtype} row", lambda s, a, b: torch.addmm(s[0], a, b), s, a, b)
        compare(f"addmm_ {dtype}", lambda s, a, b: s.addmm_(a, b), s, a, b)
        compare(f"baddbmm {dtype}", torch.baddbmm, s, q, r)
        compare(f"addmv {dtype}", torch.addmv, a[:, 0].clone(), a, v)
        compare(f"linear {dtype}", torch.nn.functional.linear, a, b.t().contiguous(), b[0].clone())
        compare(f"mm {dtype} of nothing", lambda a, b: torch.mm(a[:, :0], b[:0]), a, b)
    for dtype in WHOLES if full else [torch.int64]:  # which lose the fractions of factors
        c, q, r = tensor(dtype, 5, 6, low=0), tensor(dtype, 3, 5, 7, low=0), tensor(dtype, 3, 7, 6, seed=1, low=0)
        for beta, alpha in ((0.6, 2.7), (2.5, 1.0)):
            f = lambda op: lambda c, a, b: op(c, a, b, beta=beta, alpha=alpha)  # noqa: E731
            compare(f"baddbmm {dtype} {beta} {alpha}", f(torch.baddbmm), c, q, r)
            compare(f"addbmm {dtype} {beta} {alpha}", f(torch.addbmm), c, q, r)
            compare(f"addmv {dtype} {beta} {alpha}", f(torch.addmv), c[:, 0].clone(), q[0], r[0, :, 0].clone())
    for n in (64, 100) if full else (70,):
        x = tensor(torch.float32, n, n)
        compare(f"mm {n}", torch.mm, x, x)


def small_products(full):
    """Products of int8 and of float8."""
    with torch.backends.mkldnn.flags(enabled=False):  # which has fewer types, and writes results as if they were dense
        scaled_products(full)
    a, b = tensor(torch.int8, 5, 7, low=-128), tensor(torch.int8, 7, 6, seed=1, low=-128)
    out = torch.zeros(5, 6, dtype=torch.int32)
    for x in (a, a.to(torch.uint8)):
        compare(f"_int_mm {x.dtype}", torch._int_mm, x, b)
    compare("_int_mm transposed", lambda a, b: torch._int_mm(b.t(), a.t()), a, b)
    compare("_int_mm of nothing", lambda a, b: torch._int_mm(a[:, :0], b[:0]), a, b)
    compare("_int_mm of no rows", lambda a, b: torch._int_mm(a[:0], b), a, b)
    compare("_int_mm out=", lambda a, b, out: torch._int_mm(a, b, out=out), a, b, out)
    compare("_int_mm of wrong sizes", torch._int_mm, a, a)
    compare("_int_mm of wrong types", torch._int_mm, a, b.to(torch.uint8))
    compare("_int_mm to a wrong size", lambda a, b, out: torch._int_mm(a, b, out=out), a, b, out[:4].clone())
    compare("_int_mm to wrong types", lambda a, b, out: torch._int_mm(a, b, out=out), a, b, out.float())


def scaled_products(full):
    """Products of float8, whose numbers and scales are such that all sums are exact."""
    mm, mm2 = torch._scaled_mm, torch._scaled_mm_v2
    p, q, r = torch.tensor(0.5), torch.tensor([[4.0]]), torch.tensor(0.25)
    rows, columns = 2.0 ** torch.arange(-2, 3).view(5, 1), 2.0 ** torch.arange(-3, 3).view(1, 6)
    bias = torch.arange(-3.0, 3)
    pairs = [(x, y) for x in FLOATS8 for y in FLOATS8] if full else [(FLOATS8[1], FLOATS8[2])]
    for x, y in pairs:
        a, b, name = tensor(x, 5, 7), tensor(y, 6, 7, seed=1).t(), f"{x} {y}"
        for to in (torch.float32, torch.bfloat16, torch.float16, *FLOATS8) if full else (torch.float32, FLOATS8[0]):
            for plus in (None, bias, bias.bfloat16(), bias.half()) if full else (bias.bfloat16(),):
                what = f"{name} {to} {plus.dtype if plus is not None else None}"
                compare(f"_scaled_mm {what}", lambda *v: mm(*v, out_dtype=to), a, b, p, q, plus, r)
                compare(f"_scaled_mm by rows {what}", lambda *v: mm(*v, out_dtype=to), a, b, rows, columns, plus)
                whole = lambda a, b, p, q, c: mm2(a, b, [p], [0], [0], [q], [0], [0], c, to)  # noqa: E731
                compare(f"_scaled_mm_v2 {what}", whole, a, b, p, q, plus)
                lines = lambda a, b, p, q, c: mm2(a, b, [p], [1], [], [q], [1], [], c, to)  # noqa: E731
                compare(f"_scaled_mm_v2 by rows {what}", lines, a, b, rows, columns, plus)
        compare(f"_scaled_mm {name} without a type", lambda *v: mm(*v, None, r.to(v[0].device)), a, b, p, q)
        for sizes in ((0,), (6, 5)):  # which is resized, and which isn't dense
            out = lambda a, b, p, q, c: mm(a, b, p, q, c, out=torch.empty(sizes, device=a.device).t())  # noqa: E731
            compare(f"_scaled_mm {name} out= of {sizes}", out, a, b, p, q, bias)
        compare(f"_scaled_mm {name} of nothing", lambda a, b, *v: mm(a[:, :0], b[:0], *v), a, b, p, q, bias)
        compare(f"_scaled_mm {name} of no rows", lambda a, b, *v: mm(a[:0], b, *v), a, b, p, q, bias)
        nothing = lambda a, b, p, q, c: mm2(a[:, :0], b[:0], [p], [0], [0], [q], [0], [0], c, torch.float32)  # noqa: E731
        compare(f"_scaled_mm_v2 {name} of nothing", nothing, a, b, p, q, bias)
        for fault, of in {
            "wrong sizes": (a, a, p, q), "a vector": (a[0].clone(), b, p, q), "two kinds of scales": (a, b, rows, q),
            "scales of vectors": (a, b, rows.view(-1), columns.view(-1)), "double scales": (a, b, p.double(), q),
            "float32": (a.float(), b, p, q), "a long bias": (a, b, p, q, rows.view(-1)),
            "two scales of the result": (a, b, p, q, None, rows),
        }.items():  # fmt: skip
            compare(f"_scaled_mm {name} of {fault}", mm, *of)
        blocks = lambda a, b, p: mm2(a, b, [p], [3], [0], [p], [3], [0], None, None)  # noqa: E731
        compare(f"_scaled_mm_v2 {name} in blocks", blocks, a, b, p)


def places(full):
    for dtype in TYPES if full else [torch.float32]:
        x, at = tensor(dtype, 5, 4), torch.tensor([[1, 0, 3, 2], [4, 4, 0, 1]])
        y = tensor(dtype, 2, 4, seed=1)
        compare(f"gather {dtype}", lambda x, i: torch.gather(x, 0, i), x, at)
        compare(f"index_select {dtype}", lambda x, i: torch.index_select(x, 0, i[1]), x, at)
        compare(f"index_select {dtype} 1", lambda x, i: torch.index_select(x.t(), 1, i[1]), x, at)
        compare(f"index {dtype}", lambda x, i: x[i], x, at)
        compare(f"index {dtype} 1", lambda x, i: x[:, i % 4], x, at)
        compare(f"index {dtype} two", lambda x, i: x[i, i % 4], x, at)
        compare(f"index {dtype} negative", lambda x, i: x[-i], x, at)
        compare(f"index {dtype} mask", lambda x: x[x == x[0, 0]], x)
        compare(f"embedding {dtype}", lambda x, i: torch.nn.functional.embedding(i, x), x, at)
        compare(f"scatter {dtype}", lambda x, i, y: x.scatter(0, i[:1], y), x, at, y)
        compare(f"scatter {dtype} number", lambda x, i: x.scatter(0, i, 1), x, at)
        compare(f"scatter_add {dtype}", lambda x, i, y: x.scatter_add(0, i, y), x, at, y)
        compare(f"index_add {dtype}", lambda x, i, y: x.index_add(0, i[0, :2], y), x, at, y)
        compare(f"index_copy {dtype}", lambda x, i, y: x.index_copy(0, i[0, :2], y), x, at, y)
        compare(f"index_fill {dtype}", lambda x, i: x.index_fill(0, i[0], 1), x, at)
        compare(f"index_put {dtype}", lambda x, i: x.index_put((i,), x[0]), x, at)
        compare(f"index_put_ {dtype} added", lambda x, i: x.index_put_((i,), x[0].clone(), True), x, at)
        compare(f"setitem {dtype}", lambda x, i: x.__setitem__(i[1, :2], 1) or x, x, at)
        for name in ("tril", "triu"):
            for k in (-1, 0, 2):
                compare(f"{name} {k} {dtype}", lambda x: getattr(torch, name)(x, k), x)
            compare(f"{name}_ {dtype}", lambda x: getattr(x, name + "_")(), x)
        compare(f"cat {dtype}", lambda x, y: torch.cat((x, y, x[:0])), x, y)
        compare(f"cat {dtype} 1", lambda x: torch.cat((x, x), 1), x)
        compare(f"stack {dtype}", lambda x: torch.stack((x, x)), x)
        compare(f"flip {dtype}", lambda x: x.flip(0, 1), x)
        for to in TYPES if full else BRIEF:
            signed = dtype.is_signed and not dtype.is_complex
            compare(f"{dtype} to {to}", lambda x: (x.abs() if signed else x).to(to), x)
            compare(f"{dtype} to {to} transposed", lambda x: x.t().to(to) > 0 if not x.is_complex() else x, x)
            compare(f"cat of {dtype} and {to}", lambda x: torch.cat((x, x.to(to))) if not x.is_complex() else x, x)
        compare(f"contiguous {dtype}", lambda x: x.t().contiguous(), x)
        compare(f"fill_ {dtype}", lambda x: x.fill_(3), x)
        compare(f"fill_ {dtype} strided", lambda x: x[::2, 1:3].fill_(1.5) if x.is_floating_point() else x, x)
        compare(f"zero_ {dtype}", lambda x: x.zero_(), x)
        for n in (4, 1):
            compare(f"fill_ of {n} on the host {dtype}", lambda x: torch.zeros(n, dtype=x.dtype).fill_(x[0, 0]), x)
        compare(f"fill_ of one on the host, {dtype}", lambda x: torch.zeros(3, dtype=x.dtype)[1].fill_(x[0, 0]), x)
        compare(f"copy_ {dtype} broadcast", lambda x, y: x.copy_(y[0]), x, y)

        def made(what, *numbers):
            return lambda x: what(*numbers, dtype=x.dtype, device=x.device)

        compare(f"arange {dtype}", made(torch.arange, 7), x)
        compare(f"arange {dtype} steps", made(torch.arange, 1, 10, 3), x)
        compare(f"arange {dtype} fractions", made(torch.arange, 0.5, 3, 0.25), x)
        compare(f"eye {dtype}", made(torch.eye, 3, 4), x)
        compare(f"ones {dtype}", made(torch.ones, 3, 4), x)
    compare(
        "embedding backward",
        lambda x, i: gradient(lambda x: torch.nn.functional.embedding(i, x, padding_idx=4), x),
        tensor(torch.float32, 5, 4),
        torch.tensor([1, 4, 1, 0]),
    )
    x = tensor(torch.float32, 5, 4).to(DEVICE)
    y = x[torch.tensor([7], device=DEVICE)]
    try:
        y.cpu()
        failures.append("an index out of range has no error")
    except IndexError as error:
        if "index out of range" not in str(error):
            failures.append(f"an index out of range: {error}")
    compare("after an index out of range", lambda x: x + 1, tensor(torch.float32, 2))


def composed(full):
    """Operators that join elements at indexes, and those that are made of others."""
    for dtype in TYPES if full else [torch.float32]:
        x, y, at = tensor(dtype, 5, 4), tensor(dtype, 6, 4, seed=1), torch.arange(24).view(6, 4) * 7 % 5
        rough = {torch.float16: 2e-2, torch.bfloat16: 6e-2}.get(dtype)  # the CPU rounds more often
        for how, with_self in itertools.product(("sum", "prod", "mean", "amax", "amin"), (True, False)):
            f = lambda x, i, y: x.scatter_reduce(0, i, y, how, include_self=with_self)  # noqa: E731
            compare(f"scatter_reduce {how} {with_self} {dtype}", f, x, at, y, rough=rough)
            f = lambda x, i, y: x.t().scatter_reduce_(1, i.t(), y.t(), how, include_self=with_self)  # noqa: E731
            compare(f"scatter_reduce_ {how} {with_self} {dtype} strided", f, x, at, y, rough=rough)
            f = lambda x, i, y: x.index_reduce(0, i[:, 0], y, how, include_self=with_self)  # noqa: E731
            compare(f"index_reduce {how} {with_self} {dtype}", f, x, at, y, rough=rough)
        for how in ("add", "multiply"):
            compare(f"scatter {how} {dtype}", lambda x, i, y: x.scatter(0, i, y, reduce=how), x, at, y, rough=rough)
            compare(f"scatter {how} {dtype} number", lambda x, i: x.scatter(0, i, 2, reduce=how), x, at, rough=rough)
        f = lambda x, i, y: x.index_add(0, i[:, 0], y, alpha=2)  # noqa: E731
        compare(f"index_add alpha {dtype}", f, x, at, y, rough=rough)
        compare(f"index_fill of a tensor {dtype}", lambda x, i, y: x.index_fill(0, i[:2, 0], y[0, 0]), x, at, y)
        few = torch.tensor([[3, -1, 0]])
        compare(f"take {dtype}", lambda x, i: x.t().take(i), x, few)
        for added in (False, True):
            compare(f"put {added} {dtype}", lambda x, i, y: x.put(i, y[:1, :3], added), x, few, y)
            compare(f"put_ {added} {dtype} strided", lambda x, i, y: x.t().put_(i, y[:1, :3], added), x, few, y)
        for name in ("gather", "index_select"):
            f = lambda x, i: getattr(x, name)(0, i)  # noqa: E731
            compare(f"{name} of zero dimensions {dtype}", f, x[0, 0], torch.tensor(0))
        for name in ("scatter", "scatter_add", "index_copy", "index_add"):
            f = lambda x, i: getattr(x, name)(0, i, x * 1)  # noqa: E731
            compare(f"{name} of zero dimensions {dtype}", f, x[0, 0], torch.tensor(0))
        compare(f"index_fill of zero dimensions {dtype}", lambda x, i: x.index_fill(0, i, 1), x[0, 0], torch.tensor(0))
        compare(f"index_put at a mask {dtype}", lambda x, m: x.index_put((m,), x[0, :1], True), x, x.ne(x[0, 0]))
        compare(f"equal {dtype}", lambda x, y: (x.equal(x), x.equal(y), x.equal(y[:5]), x[:0].equal(y[:0])), x, y)
        compare(f"all of dimensions {dtype}", lambda x: (x.all((0, 1)), x.any((0,)), x.any((0, 1), True)), x)
        compare(f"all of no dimensions {dtype}", lambda x: torch.all(x, dim=()), x)
        compare(f"trace {dtype}", torch.trace, x)
        compare(f"trace {dtype} of a line", torch.trace, x[0])
        compare(f"vdot {dtype}", torch.vdot, x[0], y[0], rough=rough)
        compare(f"addr {dtype}", lambda x, y: torch.addr(x, x[:, 0], y[0], beta=2, alpha=3), x, y, rough=rough)
        a, b, c = tensor(dtype, 2, 5, 3), tensor(dtype, 2, 3, 4, seed=1), tensor(dtype, 5, 4, seed=2)
        f = lambda c, a, b: torch.addbmm(c, a, b, beta=2, alpha=3)  # noqa: E731
        wide = {torch.float16: 4e-2, torch.bfloat16: 0.12}.get(dtype)  # it adds in 16 bits
        compare(f"addbmm {dtype}", f, c, a, b, rough=wide)
        compare(f"addbmm {dtype} of zero dimensions", f, c[0, 0], a, b, rough=wide)
        compare(f"addbmm_ {dtype}", lambda c, a, b: c.addbmm_(a, b), c, a, b, rough=wide)
        compare(f"cross {dtype}", lambda x, y: torch.linalg.cross(x[:3], y[1:4], dim=0), x, y, rough=wide)
        compare(f"cross {dtype} broadcast", lambda x, y: torch.linalg.cross(x[:, :3], y[:1, 1:]), x, y, rough=wide)
        for step in (1, 2, 3, 5):
            grad = tensor(dtype, 8 // step + 1, 2, 3)
            f = lambda g: torch.ops.aten.unfold_backward(g, [11, 2], 0, 3, step)  # noqa: E731
            if dtype != torch.bool:
                compare(f"unfold_backward {step} {dtype}", f, grad, rough=rough)
        for n in (3, 30):
            compare(f"nonzero_static {n} {dtype}", lambda x: torch.nonzero_static(x, size=n, fill_value=7), x)
        compare(f"nonzero of zero dimensions {dtype}", lambda x: torch.nonzero(x[0, 0]), x)
        compare(f"renorm {dtype}", lambda x: torch.renorm(x, 2, 0, 1.5), x, rough=rough)
        ranges = (0, 2, 7, 10), (0, 6, 7, 2), (0.5, 2.5, 3, 3), (-3, 4.9, 30, 2.5), (2, 0, 1, 7), (0, 9, 5, 9)
        for start, end, n, base in ranges:
            f = lambda x: torch.logspace(start, end, n, base, dtype=dtype, device=x.device)  # noqa: E731
            if dtype not in (torch.bool, torch.int8, torch.uint8) or abs(base**end) < 128:  # others are undefined
                compare(f"logspace {start} {end} {n} {base} {dtype}", f, x)
        for p in (1, 2, float("inf")):
            f = lambda x, i: (torch.embedding_renorm_(x, i, 2, p), x)  # noqa: E731
            compare(f"embedding_renorm_ {p} {dtype}", f, x, at[:2] % 4, rough=rough)
        for sizes, f in (
            ((1, 20, 1, 1), lambda x: torch.pixel_shuffle(x, 2)),
            ((1, 5, 2, 2), lambda x: torch.pixel_unshuffle(x, 2)),
            ((1, 10, 2, 1), lambda x: torch.channel_shuffle(x, 2)),
        ):
            compare(f"shuffle {sizes} {dtype}", f, x.view(sizes))
    z, w = tensor(torch.complex64, 4, 3), tensor(torch.complex64, 4, 3, seed=1)
    for dims, keep in (((0,), False), ((0, 1), True), ((-1,), True)):
        compare(f"logsumexp of complex64 {dims} {keep}", lambda z: torch.logsumexp(z, dims, keep), z)
    compare("logsumexp of nothing", lambda z: torch.logsumexp(z[:0], 0), z)
    compare("logsumexp out=", lambda z, w: torch.logsumexp(z, 0, out=w), z, torch.empty(3, dtype=z.dtype))
    compare("logsumexp of infinities", lambda z: torch.logsumexp(z * float("inf"), 0), z.real.abs().to(z.dtype))
    lazy = lambda z, w: (z @ w.mH, z.conj() + w, z.conj().equal(z), -z.conj().imag, z.conj().imag + 1)  # noqa: E731
    compare("conjugates", lazy, z, w)
    for dtype in (torch.int64, torch.int32):
        compare(f"repeat_interleave {dtype}", torch.repeat_interleave, torch.tensor([2, 0, 3], dtype=dtype))
        compare(f"repeat_interleave {dtype} negative", torch.repeat_interleave, torch.tensor([2, -1], dtype=dtype))
        for f, k in itertools.product((torch.tril_indices, torch.triu_indices), (-2, 0, 1)):
            compare(f"{f.__name__} {k} {dtype}", lambda x: f(4, 5, k, dtype=dtype, device=x.device), z)


def weights(full):
    """Norms of weights and simulated quantization, shifts by numbers, and indexes of the host."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16) if full else [torch.float32]:
        for sizes, dim in (((4, 3, 5), 0), ((4, 3, 5), 2), ((6,), 0), ((1, 1), 1)):
            v = tensor(dtype, *sizes, low=0.5)
            g = tensor(dtype, *(n if d == dim else 1 for d, n in enumerate(sizes)), seed=1)
            compare(f"weight_norm {dtype} {sizes} {dim}", lambda v, g: torch._weight_norm(v, g, dim), v, g)
            f = lambda v, g: torch._weight_norm_interface(v, g, dim)  # noqa: E731
            compare(f"_weight_norm_interface {dtype} {sizes} {dim}", f, v, g)
            f = lambda v, g: both_gradients(torch._weight_norm(v, g, dim), v, g)  # noqa: E731
            compare(f"weight_norm backward {dtype} {sizes} {dim}", f, v.requires_grad_(), g.requires_grad_())
    for dtype in (torch.float32, torch.float16) if full else [torch.float32]:
        for first, last, zero in ((-128, 127, 0), (0, 255, 17), (0, 15, 3)):
            for x in (tensor(dtype, 4, 6, low=-30, high=30), tensor(dtype), tensor(dtype, 0, 3)):
                f = lambda x: torch.fake_quantize_per_tensor_affine(x, 0.125, zero, first, last)  # noqa: E731
                compare(f"fake_quantize {dtype} {first} {last} {zero} {tuple(x.shape)}", f, x)
                masked = torch.ops.aten.fake_quantize_per_tensor_affine_cachemask
                f = lambda x: masked(x, 0.3, zero, first, last)  # noqa: E731
                compare(f"fake_quantize {dtype} {first} {last} {zero} {tuple(x.shape)} with its mask", f, x)
            x, scales = tensor(dtype, 4, 6, low=-30, high=30), torch.tensor([0.25, 0.5, 1, 2])
            zeros = torch.arange(4).int()
            f = lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s, z, 0, first, last)  # noqa: E731
            compare(f"fake_quantize by channel {dtype} {first} {last}", f, x, scales, zeros)
            compare(f"fake_quantize by channel {dtype} with a bad zero", f, x, scales, zeros + 300)
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e30, -1e30, -0.0, 0.0625])
    compare("fake_quantize of no numbers", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.125, 0, -8, 7), x)
    for dtype in WHOLES if full else [torch.int64, torch.uint8]:
        x, y = tensor(dtype, 3, 5, low=0, high=9), tensor(dtype, 5, low=0, high=3)
        compare(f"<< {dtype}", lambda x, y: (x << 2, x << y, x >> 1, x >> y, x << 0), x, y)
        compare(f"<<= {dtype}", lambda x, y: (x.__ilshift__(1), x.__irshift__(2), x.__ilshift__(y)), x, y)
    for dtype in TYPES if full else BRIEF:
        x, at, mask = tensor(dtype, 4, 5), torch.tensor([2, 0]), torch.tensor([True, False, True, False])
        compare(f"indexes of the host {dtype}", lambda x: (x[at], x[:, at], x[at, at], x[mask], x[[1, 3]]), x)
        f = lambda x: (x.index_put_((at,), x[2:]), x.index_put((mask,), x[0]), x.index_put((at, at), x[0, :2], True))  # noqa: E731
        compare(f"index_put at indexes of the host {dtype}", f, x)


def conversions(full):
    """To and from numbers of 8 bits: each number of float16, those of float32 around the places where results change,
    and each number of 8 bits, by their bits."""
    half = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.float16)
    for to in FLOATS8:
        every = torch.arange(256, dtype=torch.uint8).view(to)
        known = every.float()[every.float().isfinite()].sort().values
        between = (known[1:] + known[:-1]) / 2
        ends = torch.tensor(
            [464.0, 480, 57344, 61440, 65536, 240, 248, 256, 1e9, 3e38, 1e-40, 2e-10, float("inf"), float("nan")]
        )
        edges = torch.cat([known, between, ends, -ends])
        edges = torch.cat([edges, edges.nextafter(torch.tensor(0.0)), edges.nextafter(edges * 2)])
        for x in (half, edges) + ((edges.double(), edges.bfloat16(), edges[::2]) if full else ()):
            f = lambda x: x.to(to).view(torch.uint8)  # noqa: E731
            compare(f"{tuple(x.shape)} of {x.dtype} to {to}", f, x)
        for wide in (*FLOATS, torch.int64, torch.bool) if full else (torch.float16, torch.float32):
            finite = every[every.float().isfinite()] if not wide.is_floating_point else every
            f = lambda x: x.view(to).to(wide)  # noqa: E731
            compare(f"{to} to {wide}", f, finite.view(torch.uint8))
        f = lambda x: x.view(to).view(16, 16).t().contiguous().view(torch.uint8)  # noqa: E731
        compare(f"{to}, transposed", f, every.view(torch.uint8))


def both_gradients(y, *leaves):
    grad = torch.arange(y.numel(), dtype=torch.float64).view(y.shape).to(y) + 1
    return torch.autograd.grad(y, leaves, grad)


def distinct(dtype, *sizes, seed=0):
    """A tensor without equal elements, whose places in an order are all the same everywhere."""
    n = torch.Size(sizes).numel()
    x = torch.randperm(n, generator=torch.Generator().manual_seed(seed)).view(sizes) - n // 2
    return x.to(dtype) if dtype is torch.uint8 or not dtype.is_floating_point else (x / 4).to(dtype)


def orders(full):
    ordered = [*FLOATS, *WHOLES] if full else BRIEF
    for dtype in ordered:
        for layout, x in [("dense", distinct(dtype, 6, 7)), ("transposed", distinct(dtype, 7, 6).t()),
                          ("empty", distinct(dtype, 0, 5)), ("zero dimensions", distinct(dtype))]:  # fmt: skip
            case = f"{dtype} {layout}"
            for dim in (0, -1):
                for down in (False, True):
                    compare(f"sort {case} {dim} {down}", lambda x: torch.sort(x, dim=dim, descending=down), x)
                    compare(f"topk {case} {dim} {down}", lambda x: torch.topk(x, 3, dim, down), x)
                compare(f"argsort {case} {dim}", lambda x: torch.argsort(x, dim=dim), x)
                compare(f"kthvalue {case} {dim}", lambda x: torch.kthvalue(x, 2, dim), x)
                for name in ("median", "nanmedian", "mode"):
                    compare(f"{name} {case} {dim}", lambda x: getattr(torch, name)(x, dim), x)
            compare(f"kthvalue kept {case}", lambda x: torch.kthvalue(x, 1, 0, keepdim=True), x)
            compare(f"median of all {case}", torch.median, x)
            compare(f"nanmedian of all {case}", torch.nanmedian, x)
        x, line = distinct(dtype, 5, 6), distinct(dtype, 12).sort()[0]
        for right in (False, True):
            compare(f"searchsorted {dtype} {right}", lambda s, x: torch.searchsorted(s, x, right=right), line, x)
            f = functools.partial(torch.bucketize, out_int32=True, right=right)
            compare(f"bucketize {dtype} {right}", f, x, line)
        compare(f"searchsorted rows {dtype}", lambda s, x: torch.searchsorted(s.sort(1)[0], x, side="right"), x, x)
        compare(f"searchsorted sorter {dtype}", lambda s, x: torch.searchsorted(s, x, sorter=s.argsort()), x[0], x)
        compare(f"searchsorted number {dtype}", lambda s: torch.searchsorted(s, 2), line)
        compare(f"searchsorted of types {dtype}", lambda s, x: torch.searchsorted(s, x), line, x.to(torch.complex64))
        repeated = tensor(dtype, 60, low=0, high=9)
        compare(f"sort equal {dtype}", lambda x: torch.sort(x, stable=True), repeated.round())
        compare(f"unique {dtype}", lambda x: torch.unique(x, return_inverse=True, return_counts=True), repeated.round())
        compare(f"unique values {dtype}", torch.unique, repeated.view(6, 10).round())
        f = functools.partial(torch.unique_consecutive, return_inverse=True, return_counts=True)
        compare(f"unique_consecutive {dtype}", f, repeated.round().sort()[0])
        compare(f"_unique {dtype}", lambda x: torch.ops.aten._unique(x, True, True), repeated.round())
        every = {"return_inverse": True, "return_counts": True}
        slices = tensor(dtype, 12, 2, 3, low=0, high=2)
        for dim in (0, 1, -1):
            compare(f"unique of slices {dim} {dtype}", lambda x: torch.unique(x, dim=dim, **every), slices.round())
            f = functools.partial(torch.unique_consecutive, dim=dim, **every)
            compare(f"unique_consecutive of slices {dim} {dtype}", f, slices.round().sort(0)[0])
        compare(f"unique of long slices {dtype}", lambda x: torch.unique(x, dim=0), tensor(dtype, 3, 100).round())
        compare(f"unique of no slices {dtype}", lambda x: torch.unique(x, dim=0), slices[:0])
        compare(f"isin {dtype}", torch.isin, repeated, repeated[:5])
        compare(f"isin inverted {dtype}", lambda x, y: torch.isin(x, y, invert=True), repeated, repeated[:5])
        if dtype not in WHOLES:  # which the CPU refuses
            compare(f"histc {dtype}", lambda x: torch.histc(x, 7), repeated)
            compare(f"histc of a range {dtype}", lambda x: torch.histc(x, 5, 1, 6), repeated)
        if dtype in WHOLES:
            compare(f"bincount {dtype}", torch.bincount, repeated)
            compare(f"bincount more {dtype}", lambda x: torch.bincount(x, minlength=20), repeated)
            compare(f"bincount weights {dtype}", lambda x, w: torch.bincount(x, w), repeated, tensor(torch.float32, 60))
            compare(f"bincount negative {dtype}", torch.bincount, repeated - 5)
        many = distinct(dtype if dtype.itemsize > 2 else torch.float32, 3, 3000)
        compare(f"sort many {dtype}", lambda x: torch.sort(x, 1), many)
        compare(f"topk many {dtype}", lambda x: torch.topk(x, 10, 1), many)
        compare(f"median many {dtype}", lambda x: torch.median(x, 1), many)
    for dtype in TYPES if full else BRIEF:
        for layout, x in layouts(dtype):
            mask = tensor(torch.bool, *x.shape, seed=3)
            compare(f"nonzero {dtype} {layout}", lambda x, m: torch.nonzero(x * m), x, mask)
            compare(f"masked_select {dtype} {layout}", torch.masked_select, x, mask)
            compare(f"x[mask] {dtype} {layout}", lambda x, m: x[m], x, mask)
            compare(f"roll {dtype} {layout}", lambda x: x.roll(2, 0), x)
            compare(f"roll of all {dtype} {layout}", lambda x: x.roll(-3), x)
        x = tensor(dtype, 4, 5)
        compare(f"roll of two {dtype}", lambda x: x.roll((1, -2), (0, 1)), x)
        compare(f"masked_select row {dtype}", lambda x, m: torch.masked_select(x, m[0]), x, tensor(torch.bool, 4, 5))
        mask = tensor(torch.bool, 4, 5)
        compare(f"masked_scatter {dtype}", lambda x, m: x.clone().masked_scatter_(m, x.flip(0)), x, mask)
        compare(f"masked_scatter too few {dtype}", lambda x, m: x.clone().masked_scatter_(m | ~m, x[0, :1]), x, mask)
        for n in (0, 1, 2, 9):
            compare(f"linspace {n} {dtype}", lambda x: torch.linspace(-1, 3, n, dtype=x.dtype, device=x.device), x)
            compare(f"logspace {n} {dtype}", lambda x: torch.logspace(0, 1, n, dtype=x.dtype, device=x.device), x)
        for low, high, n in ((0, 100, 37), (0, 3, 10), (2, 77, 31), (5.7, 1.2, 6), (0, 1000, 11), (0, 90, 1001)):
            f = lambda x: torch.linspace(low, high, n, dtype=x.dtype, device=x.device)  # noqa: E731
            compare(f"linspace {low} to {high} {n} {dtype}", f, x)
    for n in (1, 3):
        seeds = lambda x: torch.multinomial(x, n, generator=torch.Generator(x.device).manual_seed(4))  # noqa: E731
        compare(f"multinomial {n}", seeds, tensor(torch.float32, 3, 8, low=0.1, high=1))
        compare(f"multinomial {n} of zeros", seeds, torch.zeros(8))


def draws(full):
    """CUDA's numbers by kernels: those of PyTorch with the seeds 0 and 42, and moments of each distribution."""
    global cases
    opencl_device.use_philox()
    near = functools.partial(torch.allclose, atol=0.51e-4, rtol=0)
    x = torch.empty(20_000, device=DEVICE)
    for seed, rand, randn in (
        (0, (0.3990, 0.5167, 0.0249, 0.9401, 0.9459), (-0.9247, -0.4253, -2.6438, 0.1452, -0.1209)),
        (42, (0.6130, 0.0101, 0.3984, 0.0403, 0.1563), (0.1940, 2.1614, -0.1721, 0.8491, -1.9244)),
    ):
        for f, want in ((torch.rand, rand), (torch.randn, randn)):
            cases += 1
            torch.manual_seed(seed)
            got = f(5, device=DEVICE).cpu()
            if not near(got, torch.tensor(want)):
                failures.append(f"{f.__name__} of seed {seed}: {got.tolist()}, not {want}")
    for name, numbers, low, high in (
        ("uniform_", (2, 4), 2.98, 3.02), ("normal_", (1, 2), 0.95, 1.05), ("exponential_", (2,), 0.48, 0.52),
        ("bernoulli_", (0.3,), 0.28, 0.32), ("geometric_", (0.25,), 3.9, 4.1), ("random_", (3, 8), 4.9, 5.1),
        ("log_normal_", (0, 0.1), 1.0, 1.01), ("random_", (), 8.2e6, 8.6e6),
        ("bernoulli_", (torch.full_like(x, 0.7),), 0.68, 0.72),
    ):  # fmt: skip
        cases += 1
        before = c().kernel_counts(0)["launched"]
        getattr(x, name)(*numbers)
        launched, mean = c().kernel_counts(0)["launched"] - before, x.mean().item()
        if not low < mean < high or launched != 1:
            failures.append(f"{name}: mean {mean}, {launched} launches")
    permutations(full)
    for dtype in FLOATS if full else [torch.float32]:
        dropouts(dtype)
    opencl_device.use_philox(False)


def told(name, right):
    global cases
    cases += 1
    if not right:
        failures.append(name)


def permutations(full):
    """Permutations, with islands of equal keys, and draws that are composed of others."""
    for n in (0, 1, 2, 1000, 40_000) if full else (0, 1, 1000, 40_000):  # keys of 32 bits, then of 64
        for dtype in (torch.int64, torch.float32, torch.int32):
            got = torch.randperm(n, dtype=dtype, device=DEVICE).cpu()
            told(f"randperm {n} {dtype}", got.dtype == dtype and torch.equal(got.long().sort()[0], torch.arange(n)))
    first = [torch.randperm(3, device=DEVICE).tolist() for _ in range(300)]
    told("randperm isn't uniform", all(25 < first.count(list(p)) < 80 for p in itertools.permutations(range(3))))
    weights = torch.tensor([[1.0, 0.0, 3.0], [2.0, 2.0, 0.0]], device=DEVICE)
    for f in (lambda: torch.multinomial(weights, 4000, True), lambda: torch.multinomial(weights, 2)):
        before = c().operator_calls().get("aten::multinomial", (0, 0))[1]
        got = f().cpu()
        told("multinomial", c().operator_calls()["aten::multinomial"][1] == before and not (got[0] == 1).any())
    x = torch.linspace(-1, 1, 4001, device=DEVICE).requires_grad_()
    y = torch.nn.functional.rrelu(x, 0.1, 0.3, training=True)
    y.sum().backward()
    slopes = x.grad.cpu()
    told("rrelu", torch.equal((x * x.grad).detach(), y.detach()) and slopes[2001:].eq(1).all())
    slopes = slopes[:2000]
    told("slopes of rrelu", slopes.min() >= 0.1 and slopes.max() <= 0.3 and abs(slopes.mean() - 0.2) < 0.01)


def dropouts(dtype):
    """A mask of one kernel, which is that of bernoulli_, also in attention, forward and backward."""
    x = tensor(dtype, 30, 40).to(DEVICE).requires_grad_()
    for layout in (lambda x: x, lambda x: x.t()):
        torch.manual_seed(5)
        mask = torch.empty_like(layout(x), dtype=torch.bool).bernoulli_(0.75)
        torch.manual_seed(5)
        before = c().kernel_counts(0)["launched"]
        y = torch.nn.functional.dropout(layout(x), 0.25)
        told(f"dropout of {dtype} is no kernel", c().kernel_counts(0)["launched"] == before + 1)
        told(f"dropout {dtype}", close((layout(x) * mask / 0.75).detach().cpu(), y.detach().cpu()))
        (grad,) = torch.autograd.grad(y, x, torch.ones_like(y))
        told(f"dropout backward {dtype}", close(grad.cpu(), (layout(mask) / 0.75).to(dtype).cpu()))
    shape = 2, 3, 33, 20  # batches, heads, queries and keys, elements
    for how in ({}, {"is_causal": True}, {"attn_mask": tensor(torch.bool, 33, 33, seed=9).to(DEVICE)}):
        q, k, v = (tensor(dtype, *shape, seed=i, low=-1, high=1).to(DEVICE).requires_grad_() for i in range(3))
        torch.manual_seed(6)
        kept = torch.empty(2, 3, 33, 33, dtype=torch.bool, device=DEVICE).bernoulli_(0.6)
        torch.manual_seed(6)
        got = torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.4, **how)
        at = torch.zeros(33, 33, dtype=torch.float64)
        allowed = how["attn_mask"].cpu() if "attn_mask" in how else torch.ones(33, 33, dtype=torch.bool)
        at = at.masked_fill(~(allowed.tril() if "is_causal" in how else allowed), -torch.inf)
        a, b, d = (t.detach().cpu().double().requires_grad_() for t in (q, k, v))
        weights = (a @ b.mT / 20**0.5 + at).softmax(-1).nan_to_num(0) * kept.cpu() / 0.6
        want = weights @ d
        rough = 3e-2 if dtype.itemsize == 2 else 1e-4
        told(f"attention with dropout {dtype} {list(how)}", close(want.detach().to(dtype), got.detach().cpu(), rough))
        want.backward(torch.ones_like(want))
        got.backward(torch.ones_like(got))
        for name, t, u in (("q", q, a), ("k", k, b), ("v", v, d)):
            told(f"gradient of {name}, dropout {dtype} {list(how)}", close(u.grad.to(dtype), t.grad.cpu(), rough * 2))
        name = "aten::_scaled_dot_product_attention_math"
        told("attention is composed", c().operator_calls().get(name, (0, 0)) == (0, 0))


LISTED = """abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg round
reciprocal rsqrt sigmoid sign sin sinh sqrt tan tanh trunc""".split()


def lists(full):
    def several(dtype, seed=0):
        return [tensor(dtype, *s, seed=seed + k) for k, s in enumerate([(3, 4), (5,), (0, 2), (), (2, 3, 2)])]

    for dtype in [*FLOATS, torch.int64, torch.complex64] if full else [torch.float32]:
        x, y, z = several(dtype), several(dtype, 10), several(dtype, 20)
        x[0] = x[0].t().contiguous().t()
        for name in LISTED if full else ["neg", "sqrt"]:
            f, g = getattr(torch, f"_foreach_{name}"), getattr(torch, f"_foreach_{name}_")
            compare(f"foreach {name} {dtype}", f, x)
            compare(f"foreach {name}_ {dtype}", lambda x: g(x) or x, [t.clone() for t in x])
        for name in ("add", "sub", "mul", "div", "maximum", "minimum", "clamp_min", "clamp_max", "pow"):
            f, g = getattr(torch, f"_foreach_{name}"), getattr(torch, f"_foreach_{name}_")
            compare(f"foreach {name} {dtype}", f, x, y)
            compare(f"foreach {name}_ {dtype}", lambda x, y: g(x, y) or x, [t.clone() for t in x], y)
            compare(f"foreach {name} number {dtype}", lambda x: f(x, 1.5), x)
            compare(f"foreach {name} integer {dtype}", lambda x: f(x, 2), x)
            compare(f"foreach {name} numbers {dtype}", lambda x: f(x, [1, 2, 3, 4, 5]), x)
            compare(f"foreach {name} of none {dtype}", lambda x: f(x[:0], 2), x)
            compare(f"foreach {name} of other sizes {dtype}", lambda x, y: f(x, y[::-1]), x, y)
            compare(f"foreach {name} of other types {dtype}", lambda x, y: f(x, y), x, several(torch.float64, 10))
            if name in ("add", "mul", "div"):
                compare(f"foreach {name} tensor {dtype}", lambda x, t: f(x, t), x, tensor(dtype, seed=5))
            if name in ("add", "sub"):
                compare(f"foreach {name} alpha {dtype}", lambda x, y: f(x, y, alpha=2), x, y)
        for name in ("addcmul", "addcdiv"):
            f = getattr(torch, f"_foreach_{name}")
            compare(f"foreach {name} {dtype}", lambda x, y, z: f(x, y, z, value=2), x, y, z)
            compare(f"foreach {name} numbers {dtype}", lambda x, y, z: f(x, y, z, [1, 2, 3, 4, 5]), x, y, z)
        compare(f"foreach lerp {dtype}", torch._foreach_lerp, x, y, z)
        compare(f"foreach lerp number {dtype}", lambda x, y: torch._foreach_lerp(x, y, 0.25), x, y)
        for p in (0, 1, 2, 3, float("inf")):
            compare(f"foreach norm {p} {dtype}", lambda x: torch._foreach_norm(x, p), [x[k] for k in (0, 1, 3, 4)])
        compare(f"foreach zero {dtype}", lambda x: torch._foreach_zero_(x) or x, [t.clone() for t in x])
    many = [tensor(torch.float32, 300 + k, seed=k) for k in range(40)]
    compare("foreach add many", torch._foreach_add, many, many)
    compare("foreach norm many", torch._foreach_norm, many)
    for dtype in FLOATS if full else [torch.float32]:
        for name, options in (("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
                              ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1}),
                              ("SGD", {"lr": 0.1, "maximize": True}),
                              ("Adam", {"lr": 0.01}), ("Adam", {"lr": 0.01, "amsgrad": True, "weight_decay": 0.1}),
                              ("AdamW", {"lr": 0.01, "weight_decay": 0.1}), ("AdamW", {"lr": 0.01, "maximize": True}),
                              ("Adagrad", {"lr": 0.1, "lr_decay": 0.1})):  # fmt: skip
            compare(f"{name} {options} {dtype}", lambda x: steps(name, options, x), several(dtype)[:2])
            compare(f"{name} {options} {dtype} scaled", lambda x: steps(name, options, x, True), several(dtype)[:2])
    for bad in (1.0, float("inf"), float("nan")):

        def unscaled(x, found, inverse):
            torch._amp_foreach_non_finite_check_and_unscale_(x, found, inverse)
            return [t for t in x if t.isfinite().all()], found

        x = [tensor(torch.float32, 4, 5), tensor(torch.float32, 3, seed=1)]
        x[0][1, 2] = bad
        compare(f"unscale {bad}", unscaled, x, torch.zeros(1), torch.full((1,), 0.5))
    for found, tracker in ((0.0, 0), (0.0, 2), (1.0, 2)):
        compare(f"update scale {found} {tracker}",
                lambda s, t, f: (torch._amp_update_scale_(s, t, f, 2.0, 0.5, 3), t),
                torch.full((1,), 8.0), torch.tensor([tracker], dtype=torch.int32), torch.tensor([found]))  # fmt: skip


def steps(name, options, parameters, scaled=False):
    """Three steps of a fused optimizer; with scaling the second finds infinite gradients."""
    parameters = [p.detach().clone().requires_grad_() for p in parameters]
    optimizer = getattr(torch.optim, name)(parameters, fused=True, **options)
    for k in range(3):
        for p in parameters:
            p.grad = p.detach() * 0.5 + k
        if scaled:
            optimizer.grad_scale = torch.full((), 4.0, device=parameters[0].device)
            optimizer.found_inf = torch.full((), float(k == 1), device=parameters[0].device)
        optimizer.step()
    states = [v for p in parameters for v in optimizer.state[p].values() if isinstance(v, torch.Tensor)]
    return [p.detach() for p in parameters], [v for v in states if v.dim() > 0]


def sparse(full):
    global cases
    found, n = sparse_cases.differences(DEVICE, full, every=1 if full else 8)
    failures.extend(found)
    cases += n


def family(name):
    """A family of cases, which is here, in network_cases.py or in refusal_cases.py."""
    import network_cases
    import refusal_cases

    return globals().get(name) or getattr(network_cases, name, None) or getattr(refusal_cases, name)


def main():
    try:
        torch.ones(1, device=DEVICE)
        on = os.environ.get("CHORUS_DEVICE_KERNELS") != "false"
        if (
            (on and not c().native_operators())
            or (torch.ones(1, device=DEVICE) + 1).item() != 2
            or c().kernel_counts(0)["refused"]
        ):
            raise RuntimeError("its driver compiles no kernels")
    except RuntimeError as error:
        print("no device:", error)
        return
    full = "--all" in sys.argv
    calls = None
    for name in sys.argv[1:]:
        if name == "refusals":  # whose calls the fallback computes
            calls = c().operator_calls()
        if not name.startswith("-"):
            family(name)(full)
    calls = c().operator_calls() if calls is None else calls
    print(json.dumps({
        "cases": cases,
        "failures": failures,
        "native": sum(n for n, _ in calls.values()),
        "fallback": {name: n for name, (_, n) in sorted(calls.items()) if n},
        "kernels": c().kernel_counts(0),
    }))  # fmt: skip


if __name__ == "__main__":
    import native_cases  # the module that network_cases.py knows

    native_cases.main()
