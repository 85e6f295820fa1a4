"""Uses of tensors in PyTorch other than operators: files, loaders, other libraries, fake tensors, compilers."""

import copy
import io
import pickle

import pytest
import torch

D = "accinte"


def test_files():
    x = torch.randn(4, device="accinte:1")
    model = torch.nn.Linear(2, 2).to(D)
    file = io.BytesIO()
    torch.save({"x": x, "views": [x[1:], x[:2]], "model": model.state_dict()}, file)
    places = ((None, "accinte:1"), ("cpu", "cpu"), ("accinte:0", "accinte:0"), ({"accinte:1": "cpu"}, "cpu"))
    for where, device in places:
        file.seek(0)
        got = torch.load(file, map_location=where, weights_only=True)
        assert str(got["x"].device) == device and torch.equal(got["x"].cpu(), x.cpu())
        assert got["views"][0].untyped_storage().data_ptr() == got["x"].untyped_storage().data_ptr()
    assert torch.serialization.location_tag(x.untyped_storage()) == "accinte:1"
    for again in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert again.device == x.device and torch.equal(again.cpu(), x.cpu()) and again.data_ptr() != x.data_ptr()


def test_files_have_metadata():
    """A device's metadata of a tensor is saved and loaded, but not onto the CPU. An alias has a copy of its own."""
    metadata, say = torch._utils.get_tensor_metadata, torch._utils.set_tensor_metadata
    words = {"version_number": True, "tiled": False}
    x = torch.randn(4, device=D)
    assert metadata(x) == {}
    say(x, words)
    alias = x.detach()
    assert metadata(alias) == words
    say(alias, {"tiled": True})
    assert metadata(x) == words and metadata(alias) == {"tiled": True}
    file = io.BytesIO()
    torch.save([x, torch.ones(2, device=D)], file)
    for where, told in ((None, words), ("cpu", {}), ("accinte:1", words)):
        file.seek(0)
        got, plain = torch.load(file, map_location=where, weights_only=True)
        assert torch.equal(got.cpu(), x.cpu())
        assert (metadata(got) if got.device.type == D else {}) == told
        assert not metadata(plain) if plain.device.type == D else True


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_pin(workers):
    data = torch.utils.data.TensorDataset(torch.arange(12.0).view(6, 2))
    loader = torch.utils.data.DataLoader(data, batch_size=3, pin_memory=True, num_workers=workers)
    got = []
    for (batch,) in loader:
        assert batch.is_pinned()
        got.append(batch.to(D, non_blocking=True))
    assert torch.equal(torch.cat(got).cpu(), data.tensors[0])


def test_dlpack():
    x = torch.arange(6.0, device="accinte:1").view(2, 3).t()
    for y in (torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x)), torch.from_dlpack(x)):
        assert y.device == x.device and y.data_ptr() == x.data_ptr() and y.stride() == x.stride()
    assert torch.from_dlpack(torch.ones(2)).device.type == "cpu"
    y.zero_()
    assert x.sum().item() == 0


def test_own_operators():
    x = torch.tensor([-1.0, 2.0], device=D, requires_grad=True)
    assert torch.ops.accinte.custom_abs(x).tolist() == [2, 3]
    assert torch.ops.accinte.custom_abs(torch.empty(3, device="meta")).shape == (3,)
    torch.library.opcheck(torch.ops.accinte.custom_abs.default, (x.detach(),))
    for f in (torch.ops.accinte.custom_autograd_fn_returns_self, torch.ops.accinte.custom_autograd_fn_aliasing):
        x.grad = None
        f(x).sum().backward()
        assert x.grad.tolist() == [0.5, 0.5]


def test_fake_tensors():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        y = torch.nn.functional.conv2d(torch.randn(1, 3, 8, 8, device=D), torch.randn(4, 3, 3, 3, device=D))
        assert y.device == torch.device("accinte:0") and y.shape == (1, 4, 6, 6)
        assert torch.ops.accinte.custom_abs(y).device == y.device


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile(backend):
    x = torch.randn(4, 4, device=D, requires_grad=True)
    torch.compile(lambda t: (t.sin() + t.cos()).sum(), backend=backend)(x).backward()
    assert torch.allclose(x.grad.cpu(), (x.cos() - x.sin()).detach().cpu(), atol=1e-6)
    torch._dynamo.reset()
