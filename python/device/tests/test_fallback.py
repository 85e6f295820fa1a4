"""Operators without a kernel of the device run PyTorch's CPU kernel on the device's own memory."""

import threading

import pytest
import torch
from chorus_device._device import handle_of
from slow import ALWAYS_BUSY, busy

D = torch.device("accinte:0")


def same(device, host):
    assert device.device.type == "accinte" and torch.equal(device.cpu(), host), (device, host)


def test_results():
    h = torch.randn(4, 5)
    x = h.to(D)
    same(x @ x.t(), h @ h.t())
    same(x.sum(1), h.sum(1))
    same(x.softmax(-1), h.softmax(-1))
    same(torch.cat([x, x], 1), torch.cat([h, h], 1))
    same(x > 0, h > 0)
    same(x[x > 0], h[h > 0])
    same(x.to(torch.float64), h.double())
    same(torch.nonzero(x), torch.nonzero(h))
    for got, want in zip(x.sort(1), h.sort(1)):
        same(got, want)
    same(torch.arange(10, device=D), torch.arange(10))
    same(torch.eye(3, device=D), torch.eye(3))
    same(torch.full((2, 3), 7, device=D), torch.full((2, 3), 7))
    same(torch.triu_indices(3, 3, device=D), torch.triu_indices(3, 3))
    assert x.sum().item() == h.sum().item() and bool((x == x).all())


def test_nothing_is_copied():
    """Neither arguments nor results are copied: an operator allocates its result and no more."""
    n = 1 << 20
    x = torch.ones(n, device=D)
    torch.accinte.reset_peak_memory_stats()
    before = torch.accinte.memory_allocated()
    x.sin_()
    assert torch.accinte.max_memory_allocated() == before
    y = x + 1
    assert torch.accinte.max_memory_allocated() <= before + 4 * n + 4096  # the scalar takes a little
    torch.add(x, y, out=y)
    assert torch.accinte.max_memory_allocated() <= before + 4 * n + 4096  # the scalar takes a little


def test_in_place():
    h = torch.randn(6, 6)
    x = h.to(D)
    at = x.data_ptr()
    y = x.add_(1)
    assert y is x and x.data_ptr() == at and x._version == 1
    same(x, h + 1)
    x[1:3].mul_(2)
    x.t()[0].zero_()
    want = h + 1
    want[1:3].mul_(2)
    want.t()[0].zero_()
    same(x, want)
    x.add_(x)
    same(x, want + want)
    x.resize_(2, 2).fill_(3)
    same(x, torch.full((2, 2), 3.0))


def test_out():
    h = torch.randn(3, 4)
    x, out = h.to(D), torch.empty(0, device=D)
    assert torch.add(x, 1, out=out) is out
    same(out, h + 1)
    wide = torch.zeros(3, 8, device=D)
    torch.mul(x, 2, out=wide[:, ::2])
    same(wide[:, ::2], h * 2)
    same(wide[:, 1::2], torch.zeros(3, 4))
    values, indices = torch.empty(0, device=D), torch.empty(0, dtype=torch.int64, device=D)
    torch.max(x, 1, out=(values, indices))
    same(values, h.max(1)[0])
    same(indices, h.max(1)[1])


def test_views_share_memory():
    x = torch.arange(24.0, device=D).view(2, 3, 4)
    for view in (x[1], x.transpose(0, 1), x.unfold(2, 2, 1), x.diagonal(), x.expand(5, 2, 3, 4), x.view(-1)[3:9],
                 x.detach(),
                 torch.as_strided(x, (2, 2), (1, 2), 3), torch.view_as_complex(x.view(2, 3, 2, 2)),
                 x.view(torch.int32)):  # fmt: skip
        assert (
            view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
            and view._base is not None
            or view.grad_fn is None
        )
    x.unfold(2, 2, 1)[0, 0, 0].fill_(-1)
    assert x[0, 0, :2].tolist() == [-1, -1]
    x.squeeze_().unsqueeze_(0).t if x.dim() == 2 else x.transpose_(0, 2)
    assert x.shape == (4, 3, 2)


def test_lists():
    h = [torch.randn(3), torch.randn(2, 2)]
    x = [t.to(D) for t in h]
    for got, want in zip(torch._foreach_add(x, 1), torch._foreach_add(h, 1)):
        same(got, want)
    torch._foreach_mul_(x, 2)
    for got, want in zip(x, h):
        same(got, want * 2)
    for got, want in zip(torch.split(x[0], 2), torch.split(h[0] * 2, 2)):
        same(got, want)
    m = torch.randn(4, 4)
    same(m.to(D)[[0, 2]], m[[0, 2]])
    same(m.to(D)[:, torch.tensor([1, 1])], m[:, [1, 1]])
    same(m.to(D)[None, torch.tensor([0], device=D), None], m[None, [0], None])


def test_undefined_tensors():
    x = torch.randn(2, 3, 8, 8, device=D, requires_grad=True)
    w = torch.randn(4, 3, 3, 3, device=D)  # needs no gradient
    torch.nn.functional.conv2d(x, w, bias=None).sum().backward()
    want = x.detach().cpu().requires_grad_()
    torch.nn.functional.conv2d(want, w.cpu()).sum().backward()
    assert torch.allclose(x.grad.cpu(), want.grad, atol=1e-5)


def test_scalars_of_the_host():
    x = torch.arange(3.0, device=D)
    same(x + torch.tensor(2.0), torch.arange(3.0) + 2)
    same(torch.tensor(2) * x, torch.arange(3.0) * 2)
    assert (x + torch.tensor(2.0, dtype=torch.float64)).dtype == torch.float32


def test_tensors_of_several_devices():
    x = torch.ones(3, device=D)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device.*accinte:0 and cpu"):
        x + torch.ones(3)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device.*accinte:0 and accinte:1"):
        x + torch.ones(3, device="accinte:1")


def test_errors_are_raised_by_the_call():
    x = torch.ones(3, device=D)
    with pytest.raises(RuntimeError, match="size of tensor a"):
        x + torch.ones(2, device=D)
    if not ALWAYS_BUSY:  # of data, which is later an error of the stream
        with pytest.raises(IndexError, match="out of range"):
            torch.nn.functional.embedding(torch.tensor([5], device=D), torch.ones(2, 2, device=D))
    same(x + 1, torch.full((3,), 2.0))  # the stream goes on


def test_block_list():
    from chorus_device import _C

    x = torch.ones(3, device=D)
    _C.block("aten::erfinv.out", True)
    try:
        told = "Operator 'aten::erfinv.out' is not implemented for device accinte. "
        told += "Could not run 'aten::erfinv.out' with arguments from the 'accinte' backend."  # PyTorch's own text
        with pytest.raises(NotImplementedError, match=told):
            x.erfinv()
    finally:
        _C.block("aten::erfinv.out", False)
    x.erfinv()


@pytest.mark.parametrize("index", [0, 1])
def test_devices_are_kept_apart(index):
    x = torch.ones(3, device=f"accinte:{index}")
    assert (x + 1).device.index == index and torch.zeros_like(x).device.index == index
    assert torch.accinte.current_device() == 0


def blocked(stream):
    """Make a stream wait until the returned function is called."""
    from chorus import _lib

    gate = threading.Event()

    @_lib.TASK_FN
    def wait(*_):
        gate.wait(60)
        return 0

    status = _lib.library.chorus_stream_task(handle_of(stream), b"gate", None, 0, wait, _lib.OVER_FN(), None)
    assert status == 0
    blocked.kept = wait
    return gate.set


def test_operators_do_not_wait_for_a_busy_stream():
    """On a busy stream operators are enqueued, and give the same results, in order."""
    h = torch.randn(64, 64)
    s = torch.Stream(D)
    with s:
        x = h.to(D)
        release = blocked(s)
        try:
            y = x @ x
            y.add_(1)
            out = torch.empty(0, device=D)
            torch.mul(y, 2, out=out)
            z = torch.softmax(out, 1)
            values, indices = z.max(1)
            copy = z.clone()
            parts = torch._foreach_add([x, y], 1)
            view = y.t()[3]
            view.zero_()
            x.transpose_(0, 1)
            assert not s.query()
            with pytest.raises(RuntimeError):
                x @ torch.ones(3, 3, device=D)
        finally:
            release()
    a = h @ h + 1
    b = torch.softmax(a * 2, 1)
    with s:
        assert torch.equal(z.cpu(), b) and torch.equal(copy.cpu(), b)
        assert torch.equal(values.cpu(), b.max(1)[0]) and torch.equal(indices.cpu(), b.max(1)[1])
        assert torch.equal(parts[0].cpu(), h + 1) and torch.equal(parts[1].cpu(), a + 1)
        assert y[:, 3].eq(0).all() and torch.equal(x.cpu(), h.t())
    torch.accelerator.synchronize()


def test_a_later_failure_is_the_streams_error():
    s = torch.Stream(D)
    with s:
        weight = torch.ones(2, 2, device=D)
        at = torch.tensor([5], device=D)
        release = blocked(s)
        torch.nn.functional.embedding(at, weight)
        release()
        with pytest.raises(RuntimeError, match="accinte:0.*index_select failed: index out of range"):
            s.synchronize()
    with pytest.raises(RuntimeError, match="index out of range"):
        s.synchronize()  # each time
    assert "index out of range" in torch.accinte.clear_error(s) and torch.accinte.clear_error(s) == ""
    s.synchronize()
    with s:
        same(weight + 1, torch.full((2, 2), 2.0))


def test_meta_kernels_of_python():
    """torch.compile brings some along that refuse; what they are asked for is then done when the stream gets there."""
    import torch._meta_registrations

    h = torch.randn(100)
    x, mask = h.to(D), (h > 0).to(D)
    out = torch.empty(int(mask.sum()), device=D)
    with busy(D, 0.05):
        torch.ops.aten.index.Tensor_out(x, [mask], out=out)
    same(out, h[h > 0])


TWO = {name: getattr(torch, name) for name in (
    "logical_and", "logical_or", "logical_xor", "copysign", "floor_divide", "heaviside", "logaddexp", "xlogy", "eq",
    "add",
)}  # fmt: skip
ONE = {name: getattr(torch, name) for name in ("logical_not", "isnan", "signbit")}
LAID_OUT = {
    **TWO,
    **{name: lambda a, b, f=f: f(a) for name, f in ONE.items()},
    "div, floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "div, trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "xlog1py": torch.special.xlog1py,
    "copysign of a number": lambda a, b: torch.copysign(a, -1.0),
    "floor_divide by a number": lambda a, b: a // 2,
    "logical_and, out": lambda a, b: torch.logical_and(a, b, out=torch.empty(0, dtype=torch.bool, device=a.device)),
    "logical_and, in place": lambda a, b: a.clone().logical_and_(b),
}


def _pairs(device):
    torch.manual_seed(0)
    x, y = (torch.rand(4, 6, 5) + 0.5 for _ in range(2))
    pairs = [
        (x.transpose(0, 1), y.transpose(0, 1)),
        (x.transpose(0, 1), y[0, :, :1].unsqueeze(1)),
        (x.transpose(0, 2), y[0, 0, 0]),
        (x.transpose(0, 1).unsqueeze(-1), y.transpose(0, 1).unsqueeze(-1)),
    ]
    return [
        *([t.to(device) for t in pair] for pair in pairs),
        [t.to(device)[:, ::2].transpose(0, 1) for t in (x, y)],
    ]


F = torch.nn.functional


def _gradient(f):
    """The gradient of a function's argument, which is what lies in memory as the argument does."""

    def call(x, y):
        x = x.detach().requires_grad_()
        f(x, y).backward(gradient=y if f(x, y).shape == y.shape else None)
        return x.grad

    return call


def _ones(n, x):
    return torch.ones(n, dtype=x.dtype, device=x.device)


NETS = {
    "conv2d": lambda x, y: F.conv2d(x, _ones((3, 4, 2, 2), x)),
    "conv2d, backward": _gradient(lambda x, y: F.conv2d(x, _ones((4, 4, 1, 1), x))),
    "group_norm": lambda x, y: F.group_norm(x, 2),
    "batch_norm": lambda x, y: F.batch_norm(x, _ones(4, x), _ones(4, x)),
    "batch_norm, backward": _gradient(lambda x, y: F.batch_norm(x, _ones(4, x), _ones(4, x), training=True)),
    "layer_norm, backward": _gradient(lambda x, y: F.layer_norm(x, (6,))),
    "log_softmax, backward": _gradient(lambda x, y: F.log_softmax(x, 1)),
    "roll": lambda x, y: torch.roll(x, 1, 1),
    "channel_shuffle": lambda x, y: F.channel_shuffle(x, 2),
    "reflection_pad": lambda x, y: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "replication_pad, backward": _gradient(lambda x, y: F.pad(x, (1, 1, 1, 1), mode="replicate").sum()),
    "max_unpool2d": lambda x, y: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
    "mse_loss, backward": _gradient(lambda x, y: F.mse_loss(x, y, reduction="none")),
    "huber_loss, backward": _gradient(lambda x, y: F.huber_loss(x, y, reduction="none")),
    "smooth_l1_loss, backward": _gradient(lambda x, y: F.smooth_l1_loss(x, y, reduction="none")),
    "logsigmoid": lambda x, y: F.logsigmoid(x),
    "a number's power": lambda x, y: 2.0**x,
    "binary_cross_entropy": lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction="none"),
    "hardtanh, backward": _gradient(lambda x, y: F.hardtanh(x) if y.is_contiguous() else F.hardtanh(x + 0)),
    "glu, backward": _gradient(lambda x, y: F.glu(x, 1).sum()),
    "nll_loss2d": lambda x, y: F.nll_loss(x, torch.zeros(2, 6, 6, dtype=torch.long, device=x.device), reduction="none"),
    "svd": lambda x, y: torch.linalg.svd(x)[0].abs(),
    "eig": lambda x, y: torch.linalg.eig(x)[1].abs(),
    "complex": lambda x, y: torch.complex(x, x).abs(),
    "qr, out": lambda x, y: torch.linalg.qr(x, out=(x.new_empty(0), x.new_empty(0)))[0].abs(),
    "sub, out": lambda x, y: torch.sub(x, y, out=x.new_empty(0)),
    "irfft": lambda x, y: torch.fft.irfft(torch.complex(x, x), dim=1),
    "expanded, in bfloat16": lambda x, y: _ones((), x.bfloat16()).expand(x.shape) * x.bfloat16(),
}


def _images(device):
    torch.manual_seed(0)
    x, y = torch.rand(2, 4, 6, 6), torch.rand(2, 4, 6, 6)
    layouts = (lambda t: t, lambda t: t.contiguous(memory_format=torch.channels_last), lambda t: t.permute(1, 0, 3, 2)
        .contiguous().permute(1, 0, 3, 2), lambda t: torch.stack([t, t], -1)[..., 0])  # fmt: skip
    return [(f(x.to(device)), g(y.to(device))) for f in layouts for g in layouts[:2]]


def _laid_out_as_on_the_cpu(call, samples, seconds, **closeness):
    """Some Meta kernels return other strides, and a busy stream uses those unless it waits."""
    d = torch.device("accinte", 0)
    for on_cpu, own in zip(samples("cpu"), samples(d), strict=True):
        want, idle = call(*on_cpu), call(*own)
        with busy(d, seconds):
            deferred = call(*own)
        assert idle.stride() == want.stride() and deferred.stride() == want.stride()
        torch.testing.assert_close(deferred.cpu(), want, **closeness)


@pytest.mark.parametrize("name", NETS)
def test_strides_of_nets(name):
    _laid_out_as_on_the_cpu(NETS[name], _images, 0.01)


@pytest.mark.parametrize("name", LAID_OUT)
def test_strides_are_the_cpus_on_any_stream(name):
    _laid_out_as_on_the_cpu(LAID_OUT[name], _pairs, 0.02, rtol=0, atol=0, equal_nan=True)
