"""Mixed precision, as on CUDA."""

import re
import warnings

import pytest
import torch
import torch.nn.functional as F

D = "accinte"
LOW = [torch.float16, torch.bfloat16]


def x(dtype=torch.float32):
    return torch.rand(4, 4, device=D, dtype=dtype)


LOWER = {
    "mm": lambda a: a @ a,
    "bmm": lambda a: torch.bmm(a[None], a[None]),
    "linear": lambda a: F.linear(a, a, a[0]),
    "conv2d": lambda a: F.conv2d(a[None, None], a[None, None]),
    "addmm": lambda a: torch.addmm(a, a, a),
    "einsum": lambda a: torch.einsum("ij,jk->ik", a, a),
    "prelu": lambda a: F.prelu(a, a[0]),
    "sdpa": lambda a: F.scaled_dot_product_attention(a[None], a[None], a[None]),
    "lstm_cell": lambda a: torch.nn.LSTMCell(4, 4, device=D)(a)[0],
}
FLOAT32 = {
    "asin": torch.asin,
    "exp": torch.exp,
    "pow": lambda a: a.pow(2),
    "layer_norm": lambda a: F.layer_norm(a, (4,)),
    "mse_loss": lambda a: F.mse_loss(a, a),
    "logsumexp": lambda a: a.logsumexp(0),
    "bce": lambda a: F.binary_cross_entropy_with_logits(a, a),
    "softmax": lambda a: a.softmax(0),
    "sum": lambda a: a.sum(),
    "cumsum": lambda a: a.cumsum(0),
    "norm": lambda a: torch.norm(a, 2),
    "norm_dim": lambda a: torch.norm(a, 2, (0,)),
}


@pytest.mark.parametrize("low", LOW)
@pytest.mark.parametrize("name", LOWER)
def test_lower(name, low):
    with torch.autocast(D, dtype=low):
        assert LOWER[name](x()).dtype == low
        assert LOWER[name](x(torch.float32).to(low)).dtype == low


@pytest.mark.parametrize("low", LOW)
@pytest.mark.parametrize("name", FLOAT32)
def test_float32(name, low):
    with torch.autocast(D, dtype=low):
        assert FLOAT32[name](x(low)).dtype == torch.float32


def test_an_explicit_dtype_is_kept():
    with torch.autocast(D):
        assert x(torch.float16).sum(dtype=torch.float16).dtype == torch.float16


def test_promote():
    a, h = x(), x(torch.float16)
    with torch.autocast(D):
        assert torch.addcmul(h, h, a).dtype == torch.float32
        assert torch.addcmul(h, h, h).dtype == torch.float16
        assert torch.dot(h[0], a[0]).dtype == torch.float32


def test_others_are_left_alone():
    with torch.autocast(D):
        assert (x() + 1).dtype == torch.float32 and (x(torch.float16) + 1).dtype == torch.float16
        assert (x(torch.float64) @ x(torch.float64)).dtype == torch.float64


def test_banned():
    with torch.autocast(D), pytest.raises(RuntimeError, match="unsafe to autocast.\nMany models use a sigmoid layer"):
        F.binary_cross_entropy(x(), x())


def test_unsupported_type():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with torch.autocast(D, dtype=torch.float64):
            assert not torch.is_autocast_enabled(D) and (x() @ x()).dtype == torch.float32
    says = "In accinte autocast, but the target dtype .*is not supported. Disabling autocast."
    assert re.search(says, str(told[0].message))


def test_scopes():
    assert torch.get_autocast_dtype(D) == torch.float16
    with torch.autocast(D, dtype=torch.bfloat16):
        with torch.autocast(D, enabled=False):
            assert (x() @ x()).dtype == torch.float32
        assert (x() @ x()).dtype == torch.bfloat16
    assert (x() @ x()).dtype == torch.float32 and torch.get_autocast_dtype(D) == torch.float16


def train(device, low, overflow=()):
    """Losses, scales and weights of some steps."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.ReLU(), torch.nn.Linear(16, 4)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler(device, init_scale=512.0, growth_interval=2)
    told = []
    for step in range(6):
        data, goal = torch.randn(4, 8).to(device), torch.randn(4, 4).to(device)
        optimizer.zero_grad()
        with torch.autocast(device, dtype=low):
            loss = F.mse_loss(model(data), goal)
        if step in overflow:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        told.append((loss.item(), scaler.get_scale()))
    return told, torch.cat([p.detach().flatten().cpu() for p in model.parameters()]), scaler.state_dict()


@pytest.mark.parametrize("low", LOW)
def test_training_is_the_cpus(low):
    (got, weights, state), (want, expected, wanted) = train(D, low, overflow=(3,)), train("cpu", low, overflow=(3,))
    assert [s for _, s in got] == [s for _, s in want] == [512.0, 1024.0, 1024.0, 512.0, 512.0, 1024.0]
    assert torch.allclose(weights, expected, atol=2e-3) and weights.isfinite().all() and state == wanted


@pytest.mark.parametrize("how", ["fused", "foreach"])
@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad])
def test_optimizers_of_many_tensors(make, how):
    got = []
    for d in ("cpu", D):
        torch.manual_seed(0)
        module, x = torch.nn.Linear(7, 3).to(d), torch.arange(14.0, device=d).reshape(2, 7)
        optimizer = make(module.parameters(), lr=0.1, **{how: True})
        for _ in range(3):
            optimizer.zero_grad()
            module(x).square().mean().backward()
            optimizer.step()
        got.append([p.detach().cpu() for p in module.parameters()])
    for a, b in zip(*got, strict=True):
        assert torch.equal(a, b)


def test_fused_optimizers_take_the_scale():
    weight = torch.nn.Parameter(torch.ones(4, device=D))
    optimizer, scaler = torch.optim.AdamW([weight], lr=0.1, fused=True), torch.amp.GradScaler(D, init_scale=16.0)
    for factor in (1.0, float("inf")):
        before = weight.detach().clone()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(weight, before) == (factor != 1.0)
        optimizer.zero_grad()
    assert scaler.get_scale() == 8.0


def test_what_goes_wrong():
    weight = torch.nn.Parameter(torch.ones(4, device=D))
    optimizer, scaler = torch.optim.SGD([weight], lr=0.1), torch.amp.GradScaler(D)
    with pytest.raises(AssertionError, match="No inf checks were recorded for this optimizer"):
        scaler.scale(torch.ones((), device=D))
        scaler.step(optimizer)
    scaler.scale(weight.sum()).backward()
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="has already been called on this optimizer since the last update"):
        scaler.unscale_(optimizer)


def test_names_of_torch_cuda_amp():
    """``torch.accinte.amp`` has what ``torch.cuda.amp`` has."""
    amp = torch.accinte.amp

    class Product(torch.autograd.Function):
        @staticmethod
        @amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            assert a.dtype == torch.float32 and not torch.is_autocast_enabled(D)
            return a @ b

        @staticmethod
        @amp.custom_bwd
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            return grad @ b.t(), a.t() @ grad

    a = x().requires_grad_()
    with amp.autocast():
        assert (a @ a).dtype == torch.float16
        Product.apply((a @ a), a).sum().backward()
    with amp.autocast(dtype=torch.bfloat16), amp.autocast(enabled=False):
        assert (a @ a).dtype == torch.float32
    scaler = amp.GradScaler(init_scale=4.0)
    assert scaler.scale(torch.ones(1, device=D)).item() == 4 and amp.autocast().device == D
