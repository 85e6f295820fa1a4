"""torch.compile with inductor: its kernels run on the device's memory, in the stream's order."""

import copy
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from slow import held
from torch._subclasses.fake_utils import CrossRefFakeMode
from torch.utils.checkpoint import checkpoint
from versions import before, since
from worlds import longest

D = "accinte"

pytestmark = pytest.mark.usefixtures("_fresh")


@pytest.fixture
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(11, 16)
        self.norm = torch.nn.LayerNorm(16)
        self.linear = torch.nn.Linear(16, 32)
        self.out = torch.nn.Linear(32, 5)

    def forward(self, tokens, scale):
        x = self.norm(self.embedding(tokens)) * scale
        x = F.gelu(self.linear(x)).softmax(-1).cumsum(1)
        return self.out(x).log_softmax(-1)


def step(model, tokens, scale, target):
    loss = F.nll_loss(model(tokens, scale).flatten(0, 1), target)
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters())]


def test_a_model_and_its_backward():
    torch.manual_seed(1)
    host = Model()
    eager, compiled = copy.deepcopy(host).to(D), torch.compile(copy.deepcopy(host).to(D))
    tokens, target = torch.randint(11, (3, 4)), torch.randint(5, (12,))
    on_device = [t.to(D) for t in (tokens, torch.tensor(0.5), target)]
    want = step(host, tokens, torch.tensor(0.5), target)
    for model in (eager, compiled):
        for a, b in zip(step(model, *on_device), want, strict=True):
            assert a.device.type == D
            torch.testing.assert_close(a.cpu(), b)


CACHED = """
import sys, torch
from torch._dynamo.utils import counters
from chorus_device import inductor
if sys.argv[1]:
    inductor.CacheKey.uuid = lambda self: "another version"
    write_header = inductor.PythonWrapperCodegen.write_header
    def other(self):
        write_header(self)
        self.imports.splice("from chorus_device.gone import launch as launch_on_stream\\n")
    inductor.PythonWrapperCodegen.write_header = other
x = torch.ones(8, device="accinte")
try:
    print(torch.compile(lambda x: x.sin() + 1)(x).sum().item() > 8, end=" ")
except Exception as error:
    print("chorus_device.gone" in str(error), end=" ")
print(counters["inductor"]["fxgraph_cache_hit"], counters["inductor"]["fxgraph_cache_miss"])
"""


@longest
@pytest.mark.long
@since(2, 13, "older versions have other counters, or no keys of devices")
def test_a_cached_program_of_another_version_is_not_used(tmp_path):
    def run(version):
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", CACHED, version], capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("another") == "True 0 1\n"
    assert run("") == "True 0 1\n"
    assert run("") == "True 1 0\n"


def heads(t):
    return t.unflatten(-1, (4, 4)).transpose(1, 2)


ATTENDED = {  # queries in the layout of models, and in others
    "a view of rows": lambda: heads(torch.randn(2, 9, 16)),
    "contiguous": lambda: torch.randn(2, 4, 9, 4),
    "with gaps": lambda: torch.randn(2, 4, 9, 8)[..., :4],
    "heads first": lambda: torch.randn(4, 2, 9, 4).transpose(0, 1),
    "expanded heads": lambda: torch.randn(2, 1, 9, 4).expand(2, 4, 9, 4),
    "expanded batches": lambda: torch.randn(1, 4, 9, 4).expand(2, 4, 9, 4),
}


@pytest.mark.parametrize("layout", ATTENDED)
def test_attention_gradients_have_the_cpus_strides(layout):
    found = {}
    for device in ("cpu", D):
        torch.manual_seed(4)
        q = torch.randn(2, 4, 9, 4).to(device).requires_grad_()
        k, v = (ATTENDED[layout]().to(device).requires_grad_() for _ in range(2))
        y = F.scaled_dot_product_attention(q, k, v)
        found[device] = torch.autograd.grad(y.square().sum(), (q, k, v))
    for want, got in zip(found["cpu"], found[D], strict=True):
        assert got.stride() == want.stride()
        torch.testing.assert_close(got.cpu(), want)


@pytest.mark.parametrize("layout", ATTENDED)
def test_attention_has_the_strides_of_its_fake(layout):
    """Compiled programs check that the strides of operators' results are those at compile time."""
    q, k, v = (ATTENDED[layout]().to(D).requires_grad_() for _ in range(3))
    with CrossRefFakeMode(check_strides=True, check_aliasing=False):
        F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
    assert q.grad is not None


def last(*shape):
    return torch.randn(*shape, device=D).contiguous(memory_format=torch.channels_last).requires_grad_()


FAKED = {  # PyTorch's fakes of these differ between the CPU and other devices
    "convolution": lambda: F.conv2d(last(2, 3, 8, 8), last(4, 3, 3, 3)),
    "convolution, transposed": lambda: F.conv_transpose2d(last(2, 3, 8, 8), last(3, 4, 3, 3)),
    "pixel_shuffle": lambda: F.pixel_shuffle(last(2, 8, 3, 3), 2),
    "layer_norm": lambda: F.layer_norm(last(2, 3, 4, 4).bfloat16(), [4]),
    "group_norm": lambda: F.group_norm(torch.randn(2, 4, 3, device=D).requires_grad_().bfloat16(), 2),
    "embedding_bag": lambda: F.embedding_bag(
        torch.arange(4, device=D), torch.randn(4, 3, device=D).requires_grad_(), torch.tensor([0, 2], device=D)
    ),
    "nonzero_static": lambda: torch.nonzero_static(torch.ones(2, 3, device=D), size=4),
    "dropout": lambda: F.dropout(last(2, 3, 4, 4)),
}


@pytest.mark.parametrize("name", FAKED)
def test_results_have_the_strides_of_their_fakes(name):
    with CrossRefFakeMode(check_strides=True, check_aliasing=False):
        y = FAKED[name]()
        if y.requires_grad:
            y.backward(torch.ones_like(y))


@longest
@pytest.mark.long
def test_images_with_channels_last():
    torch.manual_seed(3)
    layers = torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3)
    host = torch.nn.Sequential(*layers).to(memory_format=torch.channels_last)
    own, x = copy.deepcopy(host).to(D), torch.randn(2, 3, 9, 9).contiguous(memory_format=torch.channels_last)
    want, got = host(x), torch.compile(own)(x.to(D))
    torch.testing.assert_close(got.cpu(), want)
    want.square().sum().backward()
    got.square().sum().backward()
    for p, q in zip(host.parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(q.grad.cpu(), p.grad, rtol=1e-4, atol=1e-4)


@longest
@pytest.mark.long
def test_attention_and_its_backward():
    torch.manual_seed(2)
    host = torch.nn.ModuleDict({"qkv": torch.nn.Linear(16, 48), "out": torch.nn.Linear(16, 16)})

    def loss(m, x):
        q, k, v = (heads(t) for t in m["qkv"](x).chunk(3, -1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return m["out"](attended.flatten(2)).square().mean()

    own, x = copy.deepcopy(host).to(D), torch.randn(2, 9, 16)
    want, got = loss(host, x), torch.compile(loss)(own, x.to(D))
    torch.testing.assert_close(got.cpu(), want)
    want.backward()
    got.backward()
    for p, q in zip(host.parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(q.grad.cpu(), p.grad)


def kernels(f, *arguments):
    """The results of a compiled function, and its kernels' names in the library's profile or in the code."""
    from torch._inductor.utils import run_and_get_code

    result, (code, *_) = run_and_get_code(torch.compile(f), *arguments)
    return result, code


def test_kernels_are_launched_on_the_current_stream_and_copy_nothing():
    x, h = torch.randn(64, 64, device=D), torch.randn(())
    stream = torch.Stream(D)
    want = (x.cpu() * 2 + h).sin().sum(0)
    got, code = kernels(lambda x, h: (x * 2 + h).sin().sum(0), x, h)
    assert "launch_on_stream(cpp_fused" in code and "body(" in code
    torch.testing.assert_close(got.cpu(), want)
    f = torch.compile(lambda x, h: (x * 2 + h).sin().sum(0))
    f(x, h)
    stream.wait_stream(torch.accelerator.current_stream())
    with stream:
        with held(D):
            got = f(x, h)
            h.fill_(100)  # the kernel must see the value before this
            assert not stream.query()
            before = torch.accinte.memory_allocated()
            f(x, h)
            assert torch.accinte.memory_allocated() <= before + 512
        torch.testing.assert_close(got.cpu(), want)


def test_in_place_devices_and_random_numbers():
    @torch.compile
    def f(x, y):
        x.add_(1)
        return x.view(-1)[::2] * y, torch.rand_like(x)

    for i in range(torch.accinte.device_count()):
        x, y = torch.zeros(4, 4, device=f"{D}:{i}"), torch.arange(8.0, device=f"{D}:{i}")
        z, r = f(x, y)
        assert z.device == x.device and torch.equal(z.cpu(), torch.arange(8.0)) and x.eq(1).all()
        assert 0 <= r.min() and r.max() < 1


ONLY_GPUS = before(2, 15, "inductor takes generators of CUDA and XPU only")


@longest
@pytest.mark.long
@since(2, 13, "PyTorch has no such programs for devices from outside")
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=ONLY_GPUS)])
def test_checkpoints(backend):
    """Recomputation draws the same numbers."""

    def block(x):
        return torch.nn.functional.dropout(x.sin(), 0.5)

    torch._dynamo.reset()
    f = torch.compile(lambda x: checkpoint(block, x, use_reentrant=False), backend=backend)
    x = torch.ones(64, device=D, requires_grad=True)
    for _ in range(2):
        y = f(x)
        (grad,) = torch.autograd.grad(y.sum(), x)
        assert torch.equal(grad.cpu() != 0, y.cpu() != 0) and 0 < y.count_nonzero() < 64
    torch._dynamo.reset()


@longest
@pytest.mark.long
@since(2, 13, "inductor puts all on one stream")
def test_streams_of_the_user():
    one, two = torch.Stream(D), torch.Stream(D)

    def f(a):
        current = torch.accelerator.current_stream()
        one.wait_stream(current)
        two.wait_stream(current)
        with one:
            b = (a @ a) * 2
        with two:
            c = (a + 1).sin()
        current.wait_stream(one)
        current.wait_stream(two)
        return b + c

    h = torch.randn(50, 50)
    result, code = kernels(f, h.to(D))
    assert "with stream1:" in code and "with stream2:" in code
    torch.testing.assert_close(result.cpu(), (h @ h) * 2 + (h + 1).sin())


def order(code, *pieces):
    """Whether the pieces occur in the program in this order."""
    program = code[code.index("def call(") :]
    places = [program.index(p) for p in pieces]
    return places == sorted(places)


@since(2, 13, "dynamo knows no events")
def test_an_event_comes_behind_the_kernels_before_it():
    event = torch.Event(D)

    def f(x):
        y = (x @ x) * 2
        event.record()
        return y, y.sin() + 1

    x = torch.randn(50, 50, device=D)
    (y, z), code = kernels(f, x)
    torch.testing.assert_close(y.cpu(), (x.cpu() @ x.cpu()) * 2)
    torch.testing.assert_close(z.cpu(), y.cpu().sin() + 1)
    assert order(code, "launch_on_stream(", "record_event")
    g = torch.compile(f)
    g(x)
    stream = torch.Stream(D)
    with held(D):
        y, _ = g(x)
        stream.wait_event(event)
        with stream:
            copied = y + 0
        assert not event.query()
    stream.synchronize()
    torch.testing.assert_close(copied.cpu(), y.cpu())


@since(2, 13, "inductor puts all on one stream")
def test_kernels_of_two_streams_stay_apart():
    one, two = torch.Stream(D), torch.Stream(D)

    def f(a):
        with one:
            b = a.sin() + 1
        with two:
            c = a.cos() * 2
        torch.accelerator.current_stream().wait_stream(one)
        torch.accelerator.current_stream().wait_stream(two)
        return b, c

    x = torch.randn(40, device=D)
    torch.accinte.synchronize()
    (b, c), code = kernels(f, x)
    torch.testing.assert_close(b.cpu(), x.cpu().sin() + 1)
    torch.testing.assert_close(c.cpu(), x.cpu().cos() * 2)
    program = code[code.index("def call(") :]
    assert program.count("launch_on_stream(") == 2
    launches = [f"launch_on_stream(cpp_fused_{name}" for name in ("add_sin", "cos")]
    # PyTorch 2.15 begins with the second stream.
    first, second = sorted(launches, key=program.index)
    assert order(code, "with stream1:", first, "with stream2:", second)


def test_the_backend_of_the_devices_name():
    assert D in torch._dynamo.list_backends()

    @torch.compile(backend=D, fullgraph=True)
    def f(x):
        return torch.relu((x + 1) * 2).sum()

    x = torch.randn(4, device=D, requires_grad=True)
    f(x).backward()
    assert torch.equal(x.grad.cpu(), (x.detach().cpu() > -1) * 2.0)


def test_the_interface_before_inductor():
    """dynamo has the device's interface as soon as dynamo is imported."""
    done = subprocess.run(
        [sys.executable, "-c", """
import sys, torch
from torch._dynamo.device_interface import get_interface_for_device
known = get_interface_for_device("accinte")
print(known.device_count(), known.current_device(), "torch._inductor.scheduler" in sys.modules)
x = torch.ones(2, device="accinte")
print(torch.compile(lambda x: x + torch.accelerator.current_stream().device.index, backend="eager")(x).tolist())
"""], capture_output=True, text=True, timeout=240)  # fmt: skip
    assert done.stdout == "2 0 False\n[1.0, 1.0]\n", done.stderr


def test_of_the_cpu_and_the_device_in_one_program():
    @torch.compile
    def f(x, h):
        return x.sin() + 1, h.cos() * 2, (h + 1).to(x.device) * x

    x, h = torch.randn(8, device=D), torch.randn(8)
    a, b, c = f(x, h)
    torch.testing.assert_close(a.cpu(), x.cpu().sin() + 1)
    torch.testing.assert_close(b, h.cos() * 2)
    torch.testing.assert_close(c.cpu(), (h + 1) * x.cpu())


@since(2, 13, "PyTorch has no graphs of such devices")
def test_captured():
    f = torch.compile(lambda x: (x * 3).tanh() + 1, dynamic=True)  # the size is an argument of the kernel
    f(torch.ones(3, device=D))
    x = torch.ones(5, device=D)
    g = torch.accinte.Graph()
    with torch.accinte.graph(g):
        y = f(x)
    x.fill_(2)
    g.replay()
    torch.testing.assert_close(y.cpu(), (torch.full((5,), 2.0) * 3).tanh() + 1)


@since(2, 13, "a division by zero ends the process, on the CPU too")
def test_an_error_in_a_kernel():
    f = torch.compile(lambda x, y: x // y)
    x, y = torch.ones(4, dtype=torch.int64, device=D), torch.zeros(4, dtype=torch.int64, device=D)
    with pytest.raises(RuntimeError, match="(?i)zero"):
        f(x, y)
        torch.accinte.synchronize()
    torch.accinte.clear_error()


def test_what_there_is_not():
    with torch._inductor.config.patch(cpp_wrapper=True):
        with pytest.raises(Exception, match="no program in C"):
            torch.compile(lambda x: x + 1)(torch.ones(2, device=D))
