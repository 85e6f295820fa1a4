"""Special functions, and borders: kernels of the device, with the CPU's results."""

import pytest
import torch
import torch.nn.functional as F

D = "zoom"
X = torch.linspace(-6, 6, 37) + 0.013
N = torch.arange(37.0) % 9


@pytest.mark.parametrize(
    ("call", "given"),
    [
        (torch.special.airy_ai, (X,)),
        (torch.special.bessel_j0, (X,)),
        (torch.special.chebyshev_polynomial_u, (X, N)),
        (torch.special.zeta, (X + 8, N + 0.5)),
        (lambda x: torch.polygamma(3, x), (X,)),
        (torch.special.erfcx, (X,)),
        (torch.igamma, (X + 7, N + 1)),
        (lambda x: torch.frexp(x)[0], (X,)),
        (lambda x: F.pad(x, (-2, 3, 1, -1), "replicate"), (torch.randn(2, 3, 4, 5),)),
    ],
)
def test_runs_on_the_device(call, given):
    before = torch.zoom.fallback_counts()
    got = call(*(t.to(D) for t in given))
    assert torch.zoom.fallback_counts() == before
    torch.testing.assert_close(got.cpu(), call(*given), rtol=1e-5, atol=1e-5)
