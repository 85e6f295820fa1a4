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


@pytest.mark.parametrize("exponent", [1, 2, 3, 0.5, -0.5, -1, -2, 2 + 0j])
def test_powers_of_complex_numbers(exponent):
    """They are products and roots: i squared is -1, and a number of one part stays one at the ends of the range."""
    parts = [0.0, -0.0, 1.0, -1.0, 2.5, -3.0, 3e38, -3e38, 1e-30]
    x = torch.tensor([complex(a, b) for a in parts for b in parts])
    got, want = (x.to(D) ** exponent).cpu(), x**exponent
    if exponent in (1, 2):
        # A product that is fused with a sum doesn't overflow between them.
        one = (x.real == 0) | (x.imag == 0)
        assert torch.equal(got[one], want[one])
    small = x.abs() < 1e10
    torch.testing.assert_close(got[small], want[small], rtol=1e-5, atol=1e-30, equal_nan=True)


def test_distances_of_what_is_no_number():
    """The number of places that differ is unknown where one is NaN."""
    x = torch.tensor([[0.0, 1.0], [2.0, float("nan")], [-0.0, float("inf")]])
    for call in (lambda x: torch.cdist(x, x, 0), lambda x: torch.pdist(x, 0)):
        assert torch.equal(call(x.to(D)).cpu().nan_to_num(-1), call(x).nan_to_num(-1))


def test_rows_whose_norm_is_no_number_stay():
    x = torch.tensor([[3.0, 4.0], [float("nan"), 1.0], [0.3, 0.4]])
    torch.testing.assert_close(x.to(D).renorm(2, 0, 1).cpu(), x.renorm(2, 0, 1), equal_nan=True)
