"""Every way to register a device's operator with PyTorch."""

import contextlib
import subprocess
import sys
import types

import pytest
import torch
from slow import busy

D = "accinte"


def registered(name, key="PrivateUse1"):
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


@pytest.mark.parametrize("idle", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.complex64])
def test_stub(dtype, idle):
    """abs is PyTorch's own operator; the device provides the loop."""
    assert registered("aten::abs.out") and not registered("aten::abs")
    h = torch.randn(4, 6).mul(3).to(dtype)
    x = h.to(D)
    with contextlib.nullcontext() if idle else busy(D, 0.02):
        got = [x.abs(), x.t().abs(), x[:, ::2].abs(), torch.abs(x, out=torch.empty(0, dtype=h.abs().dtype, device=D))]
        wide = torch.zeros(4, 12, dtype=h.abs().dtype, device=D)
        torch.abs(x, out=wide[:, ::2])
    for a, b in zip(got, [h.abs(), h.t().abs(), h[:, ::2].abs(), h.abs()]):
        assert a.dtype == b.dtype and a.stride() == b.stride() and torch.equal(a.cpu(), b)
    assert torch.equal(wide[:, ::2].cpu(), h.abs()) and not wide[:, 1::2].any()
    if dtype is not torch.complex64:
        assert x.abs_() is x and torch.equal(x.cpu(), h.abs())
        with pytest.raises(RuntimeError, match="same device"):
            torch.abs(x, out=torch.empty(4, 6, dtype=dtype))


@pytest.mark.parametrize("idle", [True, False])
def test_structured(idle):
    assert registered("aten::maximum") and registered("aten::minimum.out")
    a, b = torch.randn(3, 1), torch.randn(4)
    x, y = a.to(D), b.to(D)
    with contextlib.nullcontext() if idle else busy(D, 0.02):
        for f in (torch.maximum, torch.minimum):
            got, want = f(x, y), f(a, b)
            out = torch.empty(0, device=D)
            assert f(x, y, out=out) is out
            mixed = f(x, (y * 10).int())
            for t, w in ((got, want), (out, want), (mixed, f(a, (b * 10).int()))):
                assert t.dtype == w.dtype and t.stride() == w.stride() and torch.equal(t.cpu(), w)
    wide = torch.maximum(a, b).double()
    other = torch.maximum(x.to("accinte:1"), y.to("accinte:1"))
    assert other.device.index == 1 and torch.maximum(x[:0], x[:0]).numel() == 0
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.maximum(x, y, out=torch.empty(3, 4, dtype=torch.int32, device=D))
    assert torch.equal(torch.maximum(x, y, out=torch.empty(0, dtype=torch.float64, device=D)).cpu(), wide)
    with pytest.raises(RuntimeError, match="size|shape"):
        torch.maximum(x, torch.ones(2, 7, device=D)[:, :3])
    z = x.requires_grad_()
    torch.maximum(z, y).sum().backward()
    assert z.grad is not None and torch.maximum(torch.empty(2, device="meta"), torch.empty(2, device="meta")).shape == (
        2,
    )


def test_an_operators_own_fallback():
    assert registered("aten::sub.Tensor")
    h = torch.randn(5)
    assert torch.equal((h.to(D) - h.flip(0).to(D)).cpu(), h - h.flip(0))
    assert torch.equal(torch.sub(h.to(D), h.to(D), alpha=2).cpu(), torch.sub(h, h, alpha=2))


def test_all_others_fall_back():
    assert not registered("aten::erfinv.out")
    h = torch.rand(5)
    assert torch.equal(h.to(D).erfinv().cpu(), h.erfinv())


def test_an_operator_with_a_schema():
    op = torch.ops.accinte.custom_abs
    assert str(op.default._schema) == "accinte::custom_abs(Tensor input) -> Tensor"
    for device in (D, "cpu"):
        assert op(torch.tensor([-1.0, 2.0], device=device)).tolist() == [2, 3]
    assert op(torch.empty(2, 3, device="meta")).shape == (2, 3)
    with pytest.raises(RuntimeError, match="missing value for argument 'input'"):
        op()


def test_the_fallback_of_autograd():
    """An operator without a backward pass runs, and its backward pass raises that it has none."""
    x = torch.ones(2, device=D, requires_grad=True)
    library = torch.library.Library("registration", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x.detach() * 2, "PrivateUse1")
    y = torch.ops.registration.twice(x)
    assert y.tolist() == [2, 2]
    if y.requires_grad:
        with pytest.warns(UserWarning, match="an autograd kernel was not registered"), pytest.raises(RuntimeError):
            y.sum().backward()
            raise RuntimeError
    library._destroy()


def test_functions_of_autograd():
    for f in (torch.ops.accinte.custom_autograd_fn_returns_self, torch.ops.accinte.custom_autograd_fn_aliasing):
        x = torch.ones(2, device=D, requires_grad=True)
        y = f(x)
        y.sum().backward()
        assert x.grad.tolist() == [0.5, 0.5] and y.data_ptr() == x.data_ptr()


def test_from_python():
    """A kernel registered from Python replaces the fallback until it's removed."""
    x = torch.ones(2, device=D)
    library = torch.library.Library("aten", "IMPL")
    library.impl("sin_", lambda x: x.fill_(7), "PrivateUse1")
    assert x.sin_().tolist() == [7, 7] and torch.ones(2).sin_().tolist() != [7, 7]
    library._destroy()
    assert torch.zeros(2, device=D).sin_().tolist() == [0, 0]

    @torch.library.custom_op("registration::thrice", mutates_args=())
    def thrice(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    thrice.register_fake(lambda x: torch.empty_like(x))
    thrice.register_autograd(lambda ctx, grad: grad * 3)
    z = torch.ones(2, device=D, requires_grad=True)
    torch.library.opcheck(thrice, (z,), test_utils=("test_schema", "test_faketensor"))
    torch.compile(lambda t: thrice(t).sum(), backend="aot_eager")(z).backward()
    assert z.grad.tolist() == [3, 3]
    torch._dynamo.reset()


def test_names():
    """torch.accinte has the names that PyTorch's reference device has, and that programs for torch.cuda call."""
    names = """device is_available device_count current_device set_device init is_initialized _lazy_init _is_in_bad_fork
        get_rng_state set_rng_state get_rng_state_all set_rng_state_all manual_seed manual_seed_all seed seed_all
        initial_seed get_amp_supported_dtype get_offset set_offset stream set_stream current_stream default_stream
        Stream Event synchronize empty_cache memory_stats memory_allocated max_memory_allocated memory_reserved
        max_memory_reserved reset_peak_memory_stats mem_get_info memory_summary memory_snapshot MemPool use_mem_pool
        graph Graph graph_pool_handle is_current_stream_capturing device_of make_graphed_callables
        get_device_name get_device_properties get_device_capability is_bf16_supported amp random meta
        OutOfMemoryError get_stream_from_external _initialized _get_generator""".split()
    lacks = [n for n in names if not hasattr(torch.accinte, n)]
    assert not lacks
    with pytest.raises(AttributeError, match="'torch.accinte' has no attribute 'nonesuch'"):
        torch.accinte.nonesuch


def test_a_module_of_another_device():
    """The names with an underscore that PyTorch uses are added, unless the module has its own."""
    from chorus_device import _plug

    module = types.ModuleType("torch.other")
    module._lazy_init = own = lambda: None
    _plug.complete(D, module)
    assert module._initialized is torch.accinte.is_initialized() and not module._is_in_bad_fork()
    assert module._lazy_init is own and module.profiler is torch.accinte.profiler


def test_registered_once():
    """No operator is registered twice, which PyTorch would warn about."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "import torch; torch.ones(1, device='accinte')"],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0 and "overrid" not in done.stderr.lower(), done.stderr
