"""PyTorch's own transformer layers outside of training, which they then compute by one operator."""

import copy

import pytest
import torch

SQUARE = torch.nn.Transformer.generate_square_subsequent_mask(5)
PADDING = torch.arange(5).repeat(3, 1) >= torch.tensor([[5], [3], [4]])
MASKS = {
    "none": {}, "square": {"src_mask": SQUARE}, "padding": {"src_key_padding_mask": PADDING},
    "both": {"src_mask": SQUARE < 0, "src_key_padding_mask": PADDING},
}  # fmt: skip


@pytest.fixture
def no_fallback():
    before = torch.zoom.fallback_counts()
    yield
    assert torch.zoom.fallback_counts() == before


@pytest.mark.long
@pytest.mark.usefixtures("no_fallback")
@torch.no_grad()
def test_encoder_layer():
    torch.manual_seed(0)
    x = torch.randn(3, 5, 16)
    for masks, options in (
        ("none", {}), ("padding", {"activation": "gelu"}), ("square", {"norm_first": True}),
        ("both", {"norm_first": True}),
    ):  # fmt: skip
        layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, **options).eval()
        there = copy.deepcopy(layer).to("zoom")
        got = there(x.to("zoom"), **{k: v.to("zoom") for k, v in MASKS[masks].items()})
        torch.testing.assert_close(got.cpu(), layer(x, **MASKS[masks]))


@pytest.mark.usefixtures("no_fallback")
@torch.no_grad()
def test_attention_with_weights():
    torch.manual_seed(0)
    x = torch.randn(3, 5, 16)
    attention = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()
    there = copy.deepcopy(attention).to("zoom")
    for options in ({"need_weights": False}, {"average_attn_weights": False}, {"key_padding_mask": PADDING}):
        moved = {k: v.to("zoom") if isinstance(v, torch.Tensor) else v for k, v in options.items()}
        got, want = there(*[x.to("zoom")] * 3, **moved), attention(x, x, x, **options)
        torch.testing.assert_close(got[0].cpu(), want[0])
        if want[1] is not None:
            torch.testing.assert_close(got[1].cpu(), want[1])


def test_masked_softmax():
    """A row of which nothing is left has no number, as on the CPU, and a mask that doesn't fit is the CPU's error."""
    x, mask = torch.randn(1, 1, 2, 3), torch.tensor([[[[True] * 3, [False, True, False]]]])
    want = torch._masked_softmax(x, mask, 3, 2)
    got = torch._masked_softmax(x.to("zoom"), mask.to("zoom"), 3, 2)
    torch.testing.assert_close(got.cpu(), want, equal_nan=True)
    with pytest.raises(RuntimeError, match="mask shape should match"):
        torch._masked_softmax(x.to("zoom"), mask.to("zoom")[..., :2], 3, 2)
