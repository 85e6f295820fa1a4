import pytest
import torch

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
          torch.float32,
          torch.float64, torch.complex64, torch.complex128]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_there_and_back(dtype):
    h = torch.randint(0, 2, (5, 7)).to(dtype)
    x = h.to("accinte")
    assert x.dtype == dtype and torch.equal(x.cpu(), h)
    for other in DTYPES:
        if not (dtype.is_complex and not other.is_complex):
            assert torch.equal(x.to(other).cpu(), h.to(other))


def test_strides():
    h = torch.randn(4, 6, 8)
    for view in (
        lambda t: t.permute(2, 0, 1),
        lambda t: t[:, ::2],
        lambda t: t[1].t(),
        lambda t: t.to(memory_format=torch.contiguous_format),
    ):
        x = h.to("accinte")
        assert torch.equal(view(x).cpu(), view(h))
        y = torch.zeros_like(x)
        view(y).copy_(view(h))
        z = torch.zeros_like(h)
        view(z).copy_(view(h))
        assert torch.equal(y.cpu(), z)
        back = torch.zeros_like(h)
        view(back).copy_(view(x))
        assert torch.equal(back, z)
    x = torch.randn(2, 3, 4, 5, device="accinte").to(memory_format=torch.channels_last)
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(torch.ones(1, device="accinte").expand(3).cpu(), torch.ones(3))
    c = torch.randn(3, dtype=torch.complex64)
    assert torch.equal(c.to("accinte").conj().cpu(), c.conj())
    assert torch.equal(c.to("accinte").conj().imag.cpu(), c.conj().imag)


def test_between_devices():
    h = torch.randn(1000)
    x = h.to("accinte:0")
    y = x.to("accinte:1")
    assert y.device.index == 1 and torch.equal(y.cpu(), h) and torch.equal(y.to("accinte:0").cpu(), h)
    assert torch.equal(x.view(10, 100).t().to("accinte:1").cpu(), h.view(10, 100).t())
    assert torch.equal(x.to("accinte:1", torch.float64).cpu(), h.double())
    y[::2].copy_(x[1::2])
    assert torch.equal(y[::2].cpu(), h[1::2])


def test_between_devices_in_order():
    """A copy runs after earlier work of both devices, and before their later work."""
    for _ in range(20):
        x = torch.zeros(100_000, device="accinte:0")
        y = torch.empty(100_000, device="accinte:1")
        x.add_(1)
        y.copy_(x, non_blocking=True)
        x.add_(1)
        y.add_(1)
        assert y.eq(2).all()


def test_pinned_memory():
    h = torch.randn(1000)
    p = h.pin_memory()
    assert p.is_pinned() and not h.is_pinned() and torch.equal(p, h) and p.untyped_storage().is_pinned("accinte")
    x = p.to("accinte", non_blocking=True)
    y = x * 2
    back = torch.empty(1000, pin_memory=True)
    back.copy_(y, non_blocking=True)
    torch.accinte.current_stream().synchronize()
    assert torch.equal(back, h * 2)
    for i in range(50):  # the memory must be reused only after the copy
        q = torch.full((100_000,), float(i)).pin_memory()
        z = q.to("accinte", non_blocking=True)
        del q
        assert z.eq(i).all()


@pytest.mark.parametrize("where", ["", "accinte"])
@pytest.mark.filterwarnings("ignore:.*pin_memory_device")
def test_data_loader(where):
    data = torch.utils.data.TensorDataset(torch.arange(64.0))
    seen = [
        b.to("accinte", non_blocking=True).sum()
        for (b,) in torch.utils.data.DataLoader(data, batch_size=8, pin_memory=True, pin_memory_device=where)
    ]
    assert sum(s.item() for s in seen) == 63 * 32
