"""Calls of ``torch.fft`` that a device's results are compared with the CPU's for."""

import torch

F32, F64, C64, C128 = torch.float32, torch.float64, torch.complex64, torch.complex128


def data(sizes, dtype):
    g = torch.Generator().manual_seed(len(sizes))
    return torch.randn(sizes, dtype=dtype, generator=g)


def cases(sizes):
    """Names of calls with the tensors that they take, and functions of them. ``sizes`` are two lengths."""
    a, b = sizes
    f = torch.fft
    for norm in ("backward", "ortho", "forward"):
        for dtype in (C64, C128):
            yield f"fft {norm} {dtype}", data((a, b), dtype), lambda x, n=norm: f.fft(x, norm=n)
            yield f"ifft {norm} {dtype}", data((a, b), dtype), lambda x, n=norm: f.ifft(x, dim=0, norm=n)
        yield f"rfft {norm}", data((a, b), F64), lambda x, n=norm: f.rfft(x, norm=n)
        yield f"fft of real numbers {norm}", data((a, b), F32), lambda x, n=norm: f.fft(x, norm=n)
        yield f"irfft {norm}", data((a, b), C64), lambda x, n=norm: f.irfft(x, n=b, norm=n)
        yield f"hfft {norm}", data((a, b), C64), lambda x, n=norm: f.hfft(x, n=a, dim=0, norm=n)
        yield f"ihfft {norm}", data((a, b), F32), lambda x, n=norm: f.ihfft(x, norm=n)
    yield "fft2", data((2, a, b), C64), lambda x: f.fft2(x)
    yield "fft2 of other dimensions", data((a, 2, b), C64), lambda x: f.fft2(x, dim=(2, 0))
    yield "rfft2", data((2, a, b), F32), lambda x: f.rfft2(x)
    yield "irfft2", data((2, a, b), C64), lambda x: f.irfft2(x, s=(a, b))
    yield "both halves", data((2, a, b), F64), lambda x: torch._fft_r2c(x, [1, 2], 0, False)
    yield "fftn", data((a, b, a), C64), lambda x: f.fftn(x)
    yield "fftn of four dimensions", data((a, b, a, b), C64), lambda x: f.fftn(x)
    yield "rfftn of four dimensions", data((a, b, a, b), F32), lambda x: f.rfftn(x)
    yield "both halves of four", data((a, b, a, b), F32), lambda x: torch._fft_r2c(x, [0, 1, 2, 3], 1, False)
    yield "irfftn of four dimensions", data((a, b, a, b), C64), lambda x: f.irfftn(x, s=(a, b, a, b))
    yield "a batch in the middle", data((a, 3, b), C64), lambda x: f.fftn(x, dim=(0, 2))
    yield "transposed", data((a, b), C64), lambda x: f.fft(x.t())
    yield "every other", data((a, 2 * b), C64), lambda x: f.fft(x[:, ::2])
    yield "every other row", data((2 * a, b), F32), lambda x: f.rfft(x[::2])
    yield "from the second element on", data((a * b + 1,), F32), lambda x: f.rfft(x[1:].view(a, b))
    yield "expanded", data((1, b), C64), lambda x: f.fft(x.expand(3, b))
    yield "conjugated", data((a, b), C64), lambda x: f.fft(x.conj())
    yield "batches without a common distance", data((a, 3, 2, b), C64), lambda x: f.fft(x[:, :2])
    yield "no batch", data((0, b), C64), lambda x: f.fft(x)
    yield "no batch of real numbers", data((0, b), F32), lambda x: f.fft(x)
    yield "shorter and longer", data((a, b), C64), lambda x: f.fft(f.fft(x, n=b + 1), n=b)
    yield "to a given tensor", data((a, b), C64), lambda x: f.fft(x, out=torch.empty_like(x))
    yield "to a real tensor", data((a, b), C64), lambda x: f.irfft(x, n=b, out=torch.empty((a, b), device=x.device))
    yield "there and back", data((a, b), F64), lambda x: f.irfft(f.rfft(x), n=b)
    yield (
        "stft",
        data((1, 8 * b), F32),
        lambda x: torch.stft(x, b, 1, window=torch.ones(b).to(x.device), return_complex=True),
    )


def compare(device, sizes):
    """Check that results, their strides and the arguments afterwards are the CPU's. It returns the number of calls."""
    n = 0
    for name, x, f in cases(sizes):
        on = x.to(device)
        if x.numel() == 0:  # which the CPU's library refuses
            assert f(on).shape == x.shape, name
            continue
        want = f(x)
        got = f(on)
        assert got.device.type == torch.device(device).type, name
        assert got.stride() == want.stride() and got.dtype == want.dtype, (name, got.stride(), want.stride(), got.dtype)
        most = 2e-5 if want.dtype in (F32, C64) else 1e-13
        torch.testing.assert_close(got.cpu(), want, rtol=most, atol=most * 10, msg=lambda m, name=name: f"{name}: {m}")
        assert torch.equal(on.cpu(), x), f"{name} changes its argument"
        n += 1
    x = data((sizes[0], sizes[1]), F64)
    here, there = x.clone().requires_grad_(), x.to(device).requires_grad_()
    for t in (here, there):
        torch.fft.rfft(t).abs().sum().backward()
    torch.testing.assert_close(there.grad.cpu(), here.grad)
    return n
