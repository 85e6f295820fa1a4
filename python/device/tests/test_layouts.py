"""Tensors that aren't plain: views in inference mode, nested and quantized ones."""

import copy

import pytest
import torch
import torch.nn.functional as F
from slow import busy, held

D = "accinte"

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


def complex_(*shape):
    return torch.arange(1.0 * torch.Size(shape).numel()).view(*shape) + 1j


VIEWS = {
    "alias": torch.ops.aten.alias,
    "as_strided": lambda x: x.as_strided((2, 2), (4, 1), 1),
    "chunk": lambda x: x.chunk(2),
    "conj": torch.conj,
    "detach": torch.detach,
    "diagonal": torch.diagonal,
    "expand": lambda x: x.expand(2, 4, 4),
    "imag": lambda x: x.imag,
    "narrow": lambda x: x.narrow(0, 1, 2),
    "neg_view": torch._neg_view,
    "permute": lambda x: x.permute(1, 0),
    "real": lambda x: x.real,
    "select": lambda x: x[1],
    "slice": lambda x: x[1:3],
    "split": lambda x: x.split(1),
    "squeeze": torch.squeeze,
    "t": torch.t,
    "unbind": torch.unbind,
    "unfold": lambda x: x.unfold(0, 2, 1),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "view": lambda x: x.view(-1),
    "view_as_complex": lambda x: torch.view_as_complex(torch.view_as_real(x)),
    "view_as_real": torch.view_as_real,
    "view_dtype": lambda x: x.view(torch.float64),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_and_inference_mode(name):
    """Results are inference tensors on the device if they are on the CPU, and have the same elements."""

    def of(device, mode_made, mode_viewed):
        with torch.inference_mode(mode_made):
            x = complex_(4, 4).to(device)
        with torch.inference_mode(mode_viewed):
            views = VIEWS[name](x)
            return [(v.is_inference(), v.resolve_conj().resolve_neg().cpu()) for v in
                    (views if isinstance(views, (tuple, list)) else (views,))]  # fmt: skip

    for mode_made, mode_viewed in ((False, True), (True, True), (True, False)):
        want, got = of("cpu", mode_made, mode_viewed), of(D, mode_made, mode_viewed)
        assert [w for w, _ in want] == [g for g, _ in got]
        assert all(torch.equal(w, g) for (_, w), (_, g) in zip(want, got, strict=True))


def test_windows():
    for name in ("bartlett", "blackman", "hamming", "hann", "kaiser"):
        for periodic in (True, False):
            make = getattr(torch, name + "_window")
            assert torch.equal(make(7, periodic=periodic, device=D).cpu(), make(7, periodic=periodic)), name
    assert torch.equal(torch.kaiser_window(5, True, 3.0, device=D).cpu(), torch.kaiser_window(5, True, 3.0))


# ---- nested ----


def parts(*lengths, width=(2, 4)):
    return [torch.randn(n, *width) for n in lengths]


def both(make, operate, *, layout=torch.strided):
    """Results and gradients of an operation on nested tensors of the same parts, on the CPU and on the device."""
    found = {}
    for device in ("cpu", D):
        torch.manual_seed(1)
        x = torch.nested.nested_tensor(make(), layout=layout, device=device, requires_grad=True)
        y = operate(x)
        pieces = list(y.unbind()) if y.is_nested else [y]
        sum((p * p).sum() for p in pieces).backward()
        found[device] = [p.detach().cpu() for p in pieces], [g.cpu() for g in x.grad.unbind()]
    for want, got in zip(found["cpu"], found[D], strict=True):
        for w, g in zip(want, got, strict=True):
            torch.testing.assert_close(g, w)


NESTED = {
    "add": lambda x: x + x,
    "attention": lambda x: F.scaled_dot_product_attention(*[x.transpose(1, 2).contiguous()] * 3),
    "padded": lambda x: x.to_padded_tensor(0.0),
    "softmax": lambda x: x.softmax(-1),
    "transpose": lambda x: x.transpose(1, 2).contiguous(),
}


@pytest.mark.parametrize("name", NESTED)
def test_nested(name):
    """Nested tensors of strided layout, with autograd."""
    both(lambda: parts(3, 5), NESTED[name])


def test_nested_by_a_layer():
    both(lambda: parts(3, 5, width=(4,)), lambda x: F.linear(x, torch.ones(3, 4, device=x.device)))


def test_nested_of_several_devices():
    for source, target in (("cpu", D), (D, "cpu"), (D, f"{D}:1")):
        x = torch.nested.nested_tensor(parts(3, 2), device=source, requires_grad=True)
        y = x.to(target)
        assert y.device.type == torch.device(target).type and y.is_nested
        for a, b in zip(x.unbind(), y.unbind(), strict=True):
            assert torch.equal(a.cpu(), b.cpu())
        sum(p.sum() for p in y.unbind()).backward()
        assert all(p.eq(1).all() for p in x.grad.unbind())
    assert "accinte" in repr(torch.nested.nested_tensor(parts(1), device=D))


def test_nested_on_a_busy_stream():
    with busy(D, 0.1):
        x = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], device=D)
        y = (x + x).to_padded_tensor(0.0)
    assert y.tolist() == [[[2, 2, 2]] * 2, [[2, 2, 2], [0, 0, 0]]]


def test_nested_views_while_memory_is_waited_for():
    """Sizes of a view are on the host immediately, and take no memory to which earlier work still writes."""
    x = torch.nested.nested_tensor(parts(3, 5), device=D)
    with held(D):
        written = [torch.ones(6, device=D) + 1 for _ in range(20)]
        del written
        y = x.transpose(1, 2)
        assert y._nested_tensor_size().tolist() == [[2, 3, 4], [2, 5, 4]]
    assert y._nested_tensor_size().tolist() == [[2, 3, 4], [2, 5, 4]]


def test_jagged_attention():
    both(
        lambda: parts(3, 5),
        lambda x: F.scaled_dot_product_attention(*[x.transpose(1, 2)] * 3).transpose(1, 2),
        layout=torch.jagged,
    )


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_an_encoder_with_padding(mode):
    """PyTorch's fast path packs elements that aren't padding into nested tensors, and leaves zeros for the rest."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    host = torch.nn.TransformerEncoder(layer, 2).eval()
    own = copy.deepcopy(host).to(D)
    x, mask = torch.randn(3, 5, 8), torch.zeros(3, 5, dtype=torch.bool)
    aligned, other = mask.clone(), mask.clone()
    aligned[1, 3:] = aligned[2, 1:] = True
    other[1, :2] = True
    with mode():
        for m in (mask, aligned, other):
            want = host(x, src_key_padding_mask=m)
            got = own(x.to(D), src_key_padding_mask=m.to(D))
            torch.testing.assert_close(got.cpu(), want)


def test_missing_nested_operators():
    x = torch.nested.nested_tensor(parts(3, 5), device=D)
    with pytest.raises(NotImplementedError, match="is not implemented for nested tensors of device accinte"):
        torch.sort(x)


# ---- quantized ----


def test_quantized():
    h = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    want = torch.quantize_per_tensor(h, 0.1, 10, torch.quint8)
    got = torch.quantize_per_tensor(h.to(D), 0.1, 10, torch.quint8)
    assert got.is_quantized and got.device.type == D and (got.q_scale(), got.q_zero_point()) == (0.1, 10)
    for f in (
        torch.dequantize, torch.int_repr, lambda q: q[1].dequantize(), lambda q: q.t().contiguous().dequantize(),
        lambda q: torch.relu(q).dequantize(), lambda q: torch.cat([q, q]).dequantize(), lambda q: q.clone().int_repr(),
    ):  # fmt: skip
        assert torch.equal(f(got).cpu(), f(want))
    sums = [torch.ops.quantized.add(q, q, 0.2, 5).int_repr().cpu() for q in (want, got)]
    assert torch.equal(*sums)
    for moved in (got.cpu(), want.to(D).cpu(), want.to(f"{D}:1").cpu()):
        assert moved.device.type == "cpu" and torch.equal(moved.int_repr(), want.int_repr()) and moved.q_scale() == 0.1
    assert "quantization_scheme=torch.per_tensor_affine" in repr(got)


def test_quantized_by_channel():
    h, scales, zeros = torch.randn(3, 4), torch.tensor([0.1, 0.2, 0.05]).double(), torch.tensor([1, 0, 3])
    want = torch.quantize_per_channel(h, scales, zeros, 0, torch.qint8)
    got = torch.quantize_per_channel(h.to(D), scales.to(D), zeros.to(D), 0, torch.qint8)
    for _ in range(3):
        torch.zeros(100, device=D)  # would overwrite the scales if these weren't kept alive
    assert torch.equal(got.dequantize().cpu(), want.dequantize())
    assert torch.equal(got.q_per_channel_scales().cpu(), scales) and got.q_per_channel_axis() == 0


def test_quantized_on_a_busy_stream():
    with busy(D, 0.1):
        q = torch.quantize_per_tensor(torch.ones(4, device=D) + 1, 0.5, 0, torch.quint8)
    assert q.dequantize().tolist() == [2] * 4
