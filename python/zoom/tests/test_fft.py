"""``torch.fft`` on zoom: by clFFT where it's installed, and else by PyTorch's CPU kernels; the cache of plans."""

import ctypes
import os
import pathlib

import pytest
import torch
from children import path_with
from test_zoom import D, run
from worlds import longest

CLFFT = "libclFFT.so.2:libclFFT.so"


def _has_clfft():
    for name in CLFFT.split(":"):
        try:
            ctypes.CDLL(name)
            return True
        except OSError:
            pass
    return False


needs_clfft = pytest.mark.skipif(not _has_clfft(), reason="left out: clFFT isn't here (Debian: libclfft2)")


def test_plan_cache():
    """Its attributes and errors are those of torch.backends.cuda.cufft_plan_cache."""
    cache = torch.backends.zoom.cufft_plan_cache
    assert cache is torch.backends.zoom.fft_plan_cache
    assert (cache.size, cache.max_size) == (0, 4096)
    for one in (cache[0], cache["zoom"], cache[torch.device("zoom:0")]):
        one.max_size = 7
        assert (cache.max_size, one.size) == (7, 0)
        cache.max_size = 4096
    cache.clear()
    with pytest.raises(RuntimeError, match=".size is a read-only property"):
        cache.size = 1
    with pytest.raises(RuntimeError, match="cuFFT plan cache size must be non-negative, but got -1"):
        cache.max_size = -1
    n = torch.zoom.device_count()
    for index in (-1, n):
        with pytest.raises(RuntimeError, match=f"expected 0 <= device index < {n}, but got device with index {index}"):
            cache[index].size


def test_without_library():
    """On processors PyTorch's CPU kernels compute, unless clFFT is named."""
    x = torch.randn(2, 6)
    torch.testing.assert_close(torch.fft.rfft(x.to(D)).cpu(), torch.fft.rfft(x))
    assert torch.backends.zoom.cufft_plan_cache.size == 0 or os.environ.get("CHORUS_FFT_LIBRARY")


def fft(program):
    here = pathlib.Path(__file__).parents[2] / "device" / "tests"
    return run(program, CHORUS_FFT_LIBRARY=CLFFT, PYTHONPATH=path_with(here))


@needs_clfft
def test_clfft():
    done = fft("""
        import torch, chorus_device
        x = torch.randn(2, 3)
        cache = torch.backends.zoom.cufft_plan_cache
        for _ in range(2):
            torch.testing.assert_close(torch.fft.rfft(x.to("zoom")).cpu(), torch.fft.rfft(x))
        print(cache.size, chorus_device.kernels()["transformed"])
        cache.clear()
        x = torch.randn(4, 17)  # a factor that clFFT has no transforms for
        torch.testing.assert_close(torch.fft.rfft(x.to("zoom")).cpu(), torch.fft.rfft(x))
        print(cache.size, chorus_device.operators()["aten::_fft_r2c"])
    """)
    if done.stdout.startswith("0 0"):
        pytest.skip("left out: the device's driver compiles no kernels")
    assert done.stdout.splitlines() == ["1 2", "0 Calls(native=2, fallback=1)"], done.stdout + done.stderr
    assert "Traceback" not in done.stderr and "WARN" not in done.stderr, done.stderr


@pytest.mark.long
@needs_clfft
@longest
def test_all_calls():
    done = fft("""
        import chorus_device, fft_cases
        print(fft_cases.compare("zoom", (2, 3)) > 40, chorus_device.kernels()["transformed"] > 40)
    """)
    assert done.stdout.splitlines() == ["True True"], done.stdout + done.stderr
