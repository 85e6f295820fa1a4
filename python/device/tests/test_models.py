"""Models of libraries without support for the device, trained on it and on the CPU: the same losses, gradients and
tokens. `bash scripts/device-models.sh` installs the libraries and runs this; without them it's skipped."""

import copy

import pytest
import torch
import torch.nn.functional as F

WHY = "bash scripts/device-models.sh installs it"
transformers = pytest.importorskip("transformers", reason=WHY)
torchvision = pytest.importorskip("torchvision", reason=WHY)
timm = pytest.importorskip("timm", reason=WHY)

D = "accinte"

transformers.logging.set_verbosity_error()


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2))


TOKENS = torch.randint(3, 90, (2, 13), generator=torch.Generator().manual_seed(1))
MASK = torch.ones_like(TOKENS)
MASK[1, 9:] = 0
IMAGES = drawn(2, 3, 32, 32)
TEXT = {"input_ids": TOKENS, "attention_mask": MASK, "labels": TOKENS}
PICTURES = {"pixel_values": IMAGES, "labels": torch.tensor([0, 1])}

_layers = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
_words = _layers | {"vocab_size": 99, "max_position_embeddings": 64}
_few = _words | {"num_key_value_heads": 2}
_gpt = {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
_patches = _layers | {"image_size": 32, "patch_size": 8}
_pair = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
_pair |= {"vocab_size": 99, "d_model": 32, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
_stages = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}

WRITERS = {  # models that generate text
    "GPT2LMHeadModel": _gpt,
    "LlamaForCausalLM": _few,
    "MistralForCausalLM": _few | {"sliding_window": 8},
    "Qwen3ForCausalLM": _few | {"head_dim": 8},
    "Gemma2ForCausalLM": _few | {"head_dim": 8},
    "MixtralForCausalLM": _few | {"num_local_experts": 4},
    "FalconForCausalLM": {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
    "BloomForCausalLM": {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "MambaForCausalLM": {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
    "T5ForConditionalGeneration": {
        "vocab_size": 99,
        "d_model": 32,
        "d_ff": 48,
        "num_layers": 2,
        "num_heads": 4,
        "d_kv": 8,
        "decoder_start_token_id": 0,
    },
    "BartForConditionalGeneration": _pair | {"max_position_embeddings": 64},
}
READERS = {
    "BertForMaskedLM": (_words, TEXT),
    "DebertaV2ForMaskedLM": (_words | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}, TEXT),
    "LongformerForMaskedLM": (_words | {"attention_window": 4}, TEXT),
    "XLNetLMHeadModel": ({"vocab_size": 99, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48}, TEXT),
    "ViTForImageClassification": (_patches, PICTURES),
    "BeitForImageClassification": (_patches | {"use_relative_position_bias": True}, PICTURES),
    "SwinForImageClassification": (
        {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 2], "num_heads": [2, 4], "window_size": 4},
        PICTURES,
    ),
    "ConvNextForImageClassification": (_stages, PICTURES),
    "SegformerForImageClassification": (_stages | {"num_attention_heads": [1, 2, 4, 8]}, PICTURES),
    "CLIPModel": (
        {"text_config": _words, "vision_config": _patches, "projection_dim": 16},
        TEXT | {"pixel_values": IMAGES, "return_loss": True},
    ),
    "Wav2Vec2ForCTC": (
        _layers
        | {
            "vocab_size": 32,
            "conv_dim": (16, 16),
            "conv_stride": (5, 2),
            "conv_kernel": (10, 3),
            "num_feat_extract_layers": 2,
            "num_conv_pos_embeddings": 16,
            "num_conv_pos_embedding_groups": 2,
            "mask_time_prob": 0.0,
        },
        {"input_values": drawn(2, 400), "labels": torch.tensor([[1, 2, 3], [4, 5, -100]])},
    ),
    "WhisperForConditionalGeneration": (
        _pair
        | {
            "num_mel_bins": 16,
            "max_source_positions": 30,
            "pad_token_id": 0,
            "max_target_positions": 40,
            "decoder_start_token_id": 1,
        },
        {"input_features": drawn(2, 16, 60), "labels": TOKENS},
    ),
}
EXACT, ROUNDED = {"rtol": 2e-4, "atol": 2e-5}, {"rtol": 0.03, "atol": 0.03}


def on(device, inputs):
    return {k: v.to(device) if torch.is_tensor(v) else v for k, v in inputs.items()}


def without_chance(module):
    """The module without random layers such as dropout."""
    for m in module.modules():
        for name in ("p", "drop_prob", "dropout", "attention_dropout", "activation_dropout", "layerdrop"):
            if isinstance(getattr(m, name, None), float):
                setattr(m, name, 0.0)
    return module


def of_transformers(name, options):
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    config = kind.config_class(**options)
    for c in (config, *(c for c in vars(config).values() if isinstance(c, transformers.PretrainedConfig))):
        for key, value in vars(c).items():
            if isinstance(value, float) and ("dropout" in key or "drop_path" in key or key.endswith("pdrop")):
                setattr(c, key, 0.0)
    return kind(config)


def compare_training(model, inputs, loss_of, tolerance, autocast=False, steps=2):
    """Steps of training on both, from the same parameters and with the same inputs."""
    models = {"cpu": model.train(), D: copy.deepcopy(model).to(D).train()}
    optimizers = {device: torch.optim.AdamW(m.parameters(), 1e-3) for device, m in models.items()}
    for step in range(steps):
        losses = {}
        for device, m in models.items():
            torch.manual_seed(step)
            with torch.autocast(device, torch.bfloat16, enabled=autocast):
                losses[device] = loss_of(m, inputs, device)
            optimizers[device].zero_grad()
            losses[device].backward()
        torch.testing.assert_close(losses[D].cpu(), losses["cpu"], **tolerance)
        parameters = zip(models["cpu"].named_parameters(), models[D].parameters(), strict=True)
        for (name, p), q in parameters if step == 0 and not autocast else ():
            assert (p.grad is None) == (q.grad is None), name
            if p.grad is not None:
                assert p.grad.stride() == q.grad.stride(), name
                torch.testing.assert_close(q.grad.cpu(), p.grad, **tolerance, msg=lambda text, name=name: name + text)
        for o in optimizers.values():
            o.step()
    return models


def own_loss(model, inputs, device):
    return model(**on(device, inputs)).loss


MODES = pytest.mark.parametrize("mode", ["float32", "bfloat16", "autocast"])


def trained(name, options, inputs, mode):
    model = of_transformers(name, options)
    if mode == "bfloat16":
        model = model.bfloat16()
        inputs = {k: v.bfloat16() if torch.is_tensor(v) and v.is_floating_point() else v for k, v in inputs.items()}
    return compare_training(model, inputs, own_loss, EXACT if mode == "float32" else ROUNDED, mode == "autocast")


@MODES
@pytest.mark.parametrize("name", WRITERS)
def test_text(name, mode):
    models = trained(name, WRITERS[name], TEXT, mode)
    if mode != "float32":
        return
    models[D].load_state_dict(models["cpu"].state_dict())
    text = {
        device: m.eval().generate(input_ids=TOKENS[:1].to(device), max_new_tokens=8, do_sample=False, pad_token_id=0)
        for device, m in models.items()
    }
    assert torch.equal(text[D].cpu(), text["cpu"])


@MODES
@pytest.mark.parametrize("name", READERS)
def test_reading(name, mode):
    trained(name, *READERS[name], mode)


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "ViTForImageClassification"])
def test_compiled(name):
    """Models compiled by inductor, on the device alone."""
    options, inputs = READERS[name] if name in READERS else (WRITERS[name], TEXT)

    def loss_of(m, inputs, device):
        return (torch.compile(own_loss) if device == D else own_loss)(m, inputs, device)

    torch._dynamo.reset()
    compare_training(of_transformers(name, options), inputs, loss_of, EXACT)


IMAGE_MODELS = ["resnet18", "mobilenet_v3_small", "densenet121", "efficientnet_b0", "vit_b_16", "swin_v2_t"]


@pytest.mark.parametrize("name", IMAGE_MODELS)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_images(name, layout):
    torch.manual_seed(0)
    size = {"image_size": 64} if name == "vit_b_16" else {}
    model = without_chance(torchvision.models.get_model(name, num_classes=5, **size)).to(memory_format=layout)
    inputs = {"x": drawn(2, 3, 64, 64).contiguous(memory_format=layout), "labels": torch.tensor([1, 3])}

    def loss_of(m, inputs, device):
        given = on(device, inputs)
        return F.cross_entropy(m(given["x"]), given["labels"])

    models = compare_training(model, inputs, loss_of, {"rtol": 1e-2, "atol": 1e-3}, steps=1)
    for p, q in zip(models["cpu"].buffers(), models[D].buffers(), strict=True):  # batch norm's statistics
        torch.testing.assert_close(q.cpu(), p, rtol=1e-3, atol=1e-4)


DETECTORS = ["fasterrcnn_mobilenet_v3_large_320_fpn", "maskrcnn_resnet50_fpn", "fcos_resnet50_fpn"]


@pytest.mark.parametrize("name", DETECTORS)
def test_detection(name):
    """Models with torchvision's operators, which have no kernel for the device."""
    torch.manual_seed(0)
    build = getattr(torchvision.models.detection, name)
    model = build(weights=None, weights_backbone=None, num_classes=4, min_size=96, max_size=96)
    images = [drawn(3, 96, 96).abs(), drawn(3, 80, 96).abs()]
    boxes, labels = torch.tensor([[5.0, 5, 40, 40], [20, 20, 80, 70]]), torch.tensor([1, 2])
    masks = [torch.ones(2, *x.shape[1:], dtype=torch.uint8) for x in images]
    targets = [{"boxes": boxes, "labels": labels, "masks": m} for m in masks]
    losses, found = {}, {}
    for device, m in {"cpu": model, D: copy.deepcopy(model).to(D)}.items():
        torch.manual_seed(3)
        losses[device] = m.train()([x.to(device) for x in images], [on(device, t) for t in targets])
        sum(losses[device].values()).backward()
        found[device] = m.eval()([x.to(device) for x in images])
    for key, want in losses["cpu"].items():
        torch.testing.assert_close(losses[D][key].cpu(), want, rtol=1e-2, atol=1e-3)
    for got, want in zip(found[D], found["cpu"], strict=True):
        for key in want:
            torch.testing.assert_close(got[key].cpu(), want[key], rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("name", ["resnet26t", "levit_128s", "eva02_tiny_patch14_224"])
def test_timm(name):
    torch.manual_seed(0)
    model = without_chance(timm.create_model(name, num_classes=4)).eval()
    own, x = copy.deepcopy(model).to(D), drawn(1, 3, 224, 224)
    torch.testing.assert_close(own(x.to(D)).cpu(), model(x), rtol=1e-3, atol=1e-3)


def test_a_model_in_parts(tmp_path):
    """transformers loads parts of a model onto the given devices."""
    model = of_transformers("LlamaForCausalLM", WRITERS["LlamaForCausalLM"]).eval()
    model.save_pretrained(tmp_path)
    want = model(TOKENS).logits
    parts = {"model.embed_tokens": 0, "model.rotary_emb": 0, "model.layers.0": 0, "model.layers.1": 1, "model.norm": 1}
    for places in (D, f"{D}:1", {k: f"{D}:{i}" for k, i in (parts | {"lm_head": 1}).items()}):
        own = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, device_map=places)
        got = own(TOKENS.to(own.device)).logits
        torch.testing.assert_close(got.cpu(), want, **EXACT)
        del own, got
