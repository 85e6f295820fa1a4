"""Language models of transformers, which know nothing of the device, on it and on the CPU: the same logits, tokens and
parameters. How many operators ran by the fallback is printed, and is none. Without transformers they're skipped."""

import collections
import copy

import pytest
import torch
from chorus_device._device import c

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
transformers.logging.set_verbosity_error()
pytestmark = pytest.mark.long

D = "zoom"
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
_words = {"vocab_size": 99, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
_words |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
MODELS = {
    "GPT2LMHeadModel": {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    | {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "LlamaForCausalLM": _words,
    "Qwen2ForCausalLM": _words,
    "MistralForCausalLM": _words | {"sliding_window": 8},
}
TOKENS = torch.randint(3, 90, (2, 13), generator=torch.Generator().manual_seed(1))
MASK = torch.ones_like(TOKENS)
MASK[1, 9:] = 0


def built(name):
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    return kind(kind.config_class(**MODELS[name]))


def trained(model, device):
    """The logits, the loss and the gradients of one step, after which the parameters have changed."""
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-3)
    tokens = TOKENS.to(device)
    out = model(input_ids=tokens, attention_mask=MASK.to(device), labels=tokens)
    out.loss.backward()
    gradients = {k: p.grad.cpu() for k, p in model.named_parameters()}
    optimizer.step()
    return out.logits.detach().cpu(), out.loss.detach().cpu(), gradients


def written(model, device):
    """Tokens that the model generates."""
    text = model.eval().generate(input_ids=TOKENS[:1].to(device), max_new_tokens=8, do_sample=False, pad_token_id=0)
    return text.cpu()


def counted(what, by_cpu):
    """Call a function, return its result, and append to by_cpu the operators that ran CPU kernels meanwhile."""
    before = collections.Counter(torch.zoom.fallback_counts())
    result = what()
    by_cpu.append(collections.Counter(torch.zoom.fallback_counts()) - before)
    return result


@pytest.mark.parametrize("name", MODELS)
def test_language_model(name, capsys):
    model = built(name)
    own = copy.deepcopy(model).to(D)
    by_cpu: list[collections.Counter] = []
    with torch.no_grad():
        got = counted(lambda: own.eval()(input_ids=TOKENS.to(D), attention_mask=MASK.to(D)).logits.cpu(), by_cpu)
        torch.testing.assert_close(got, model.eval()(input_ids=TOKENS, attention_mask=MASK).logits, **CLOSE)
    assert torch.equal(counted(lambda: written(own, D), by_cpu), written(model, "cpu"))
    got, want = counted(lambda: trained(own, D), by_cpu), trained(model, "cpu")
    torch.testing.assert_close(got, want, **CLOSE)
    for (key, p), q in zip(model.named_parameters(), own.parameters(), strict=True):
        # AdamW's first step is nearly the sign of the gradient, so that where that is about 0 it may go either way.
        sure = want[2][key].abs() > 1e-6
        torch.testing.assert_close(q.detach().cpu()[sure], p.detach()[sure], **CLOSE)
    with capsys.disabled():
        print(f"\n{name}: forward, generate, a training step:", *(dict(calls) or "none" for calls in by_cpu))
    if c().kernel_counts(0)["launched"]:  # the device's compiler works
        assert not any(by_cpu)
