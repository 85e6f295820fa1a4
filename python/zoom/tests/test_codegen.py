"""torch.compile with kernels in the device's own language: what they compute is what the CPU's operators do."""

import copy
import os
import random
import re
import subprocess
import sys
import types

import chorus_device
import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.usefixtures("_generated")


@pytest.fixture
def _generated(monkeypatch):
    monkeypatch.setenv("CHORUS_COMPILED_KERNELS", "device")
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def runs(monkeypatch):
    """The names of the generated kernels that run."""
    from chorus_device.codegen.launching import Source

    names, run = [], Source.run
    monkeypatch.setattr(Source, "run", lambda self, *given: (names.append(self.title), run(self, *given)))
    return names


def randn(*sizes):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes)))


def integers(low, high, *sizes):
    return torch.randint(low, high, sizes, generator=torch.Generator().manual_seed(sum(sizes)))


X, Y = randn(37, 53), randn(37, 53)

# Several functions of a case are one program.
CASES = {
    "elements": (
        lambda a, b: (
            (a * 2 + b).relu().sin() * torch.sigmoid(a), F.gelu(a), torch.where(a > 0, a, b),
            (a > 0) & (b < 0) | ~(a > b), a.t().contiguous() + 1, torch.cat([a, b], 1) * 2, F.pad(a, (1, 2, 3, 4)) + 1,
            a + torch.arange(53, device=a.device),
            a.bfloat16().float(), a.double() * b,
        ),
        X, Y,
    ),
    "reductions": (
        lambda a, b: (
            a.sum(1), a.sum(0), b.sum(), a.argmax(1), a.argmin(0), a.amax(1), (a > 2).any(1), a[:, :9].prod(1),
            *torch.var_mean(a, 1), b.std(),
        ),
        X, randn(70000),
    ),
    "rows": (
        lambda a, b: (torch.softmax(a, -1), torch.log_softmax(a, 0), F.layer_norm(a, (300,)), F.rms_norm(b, (7,))),
        randn(17, 300), randn(100, 7),
    ),
    "indexes": (
        lambda a, i, b, t: (
            a[i] * 2, F.embedding(i, a), a.index_add(0, i, b), F.cross_entropy(a, t), a.gather(1, t[:, None]),
            b[-1] + a,
        ),
        X, integers(0, 37, 5), randn(5, 53), integers(0, 53, 37),
    ),
    "integers": (
        lambda a: (a // 3, a % 5, a << 1, a >> 2, a.float() / 7, a.abs().sum(0), a.max(), a.to(torch.uint8) + 250),
        integers(-100, 100, 40, 6),
    ),
    "types": (
        lambda a, i, w, u: (
            *torch.frexp(a * 2), a.to(torch.float8_e4m3fn).float() + 1, a.to(torch.float8_e5m2).half(),
            w.half().index_add(0, i, w.half()) * 2, w.bfloat16().index_add(0, i, w.bfloat16()) + 1,
            u.to(torch.uint16).to(torch.int32) - 1, u.to(torch.uint32).to(torch.int64) + 1,
            (a * 2).view(torch.int32) + 1, (u * 3 + 1065353216).to(torch.int32).view(torch.float32) * 2,
            (a.double() + 1).view(torch.int64) - 1, (a.half() + 1).view(torch.int16) + 1,
            (u.abs() + 1023 << 52).view(torch.float64),
        ),
        X, torch.tensor([1, 1, 2]), randn(3, 53).round(), torch.arange(-3, 9),
    ),
    "blocks": (lambda a: (a * 2 + 1, (a.view(-1, 7) + 1).amax(1)), randn(70000)),
    "called": (  # the device's operators, between kernels
        lambda a: (a.cumsum(1) * 2, a.sort(1)[0] + 1, a.topk(3, 1)[1] * 2, a.logcumsumexp(0) + 1, (a @ a.t()).relu()),
        X,
    ),
    "complex": (  # inductor knows the layout that view_as_complex needs
        lambda a: (
            torch.view_as_complex((a.permute(1, 2, 0) * 2).contiguous()).abs() + 1,
            torch.view_as_complex(torch.stack([a[0].t(), a[1].t()], -1)).abs() * 2,
        ),
        randn(2, 5, 6),
    ),
    "images": (
        lambda a: (F.max_pool2d(a, 3) + 1, F.interpolate(a, scale_factor=2, mode="bilinear"), F.avg_pool2d(a, 2) * 2),
        randn(2, 3, 12, 12),
    ),
}  # fmt: skip


def moved(values, device):
    return [v.to(device) for v in values]


BRIEF = ("rows", "indexes", "blocks")
LONG = [pytest.param(case, marks=pytest.mark.long) for case in CASES if case not in BRIEF]


@pytest.mark.parametrize("case", [*BRIEF, *LONG])
def test_equals_the_cpu(case, runs):
    f, *given = CASES[case]
    before = torch.zoom.fallback_counts()
    results = torch.compile(f)(*moved(given, "zoom"))
    for got, want in zip(results, f(*given), strict=True):
        assert got.device.type == "zoom"
        torch.testing.assert_close(got.cpu(), want, rtol=2e-5, atol=2e-5)
    assert torch.zoom.fallback_counts() == before
    assert runs


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(11, 16)
        self.norm = torch.nn.LayerNorm(16)
        self.linear = torch.nn.Linear(16, 32)
        self.out = torch.nn.Linear(32, 5)

    def forward(self, tokens):
        x = F.gelu(self.linear(self.norm(self.embedding(tokens)))).softmax(-1)
        return self.out(x).log_softmax(-1).flatten(0, 1)


@pytest.mark.long
def test_a_model_learns_as_on_the_cpu():
    torch.manual_seed(1)
    host = Model()
    device = copy.deepcopy(host).to("zoom")
    compiled = torch.compile(device)
    tokens, target = integers(0, 11, 3, 4), integers(0, 5, 12)
    for _ in range(3):
        for model, parameters, place in ((host, host, "cpu"), (compiled, device, "zoom")):
            loss = F.nll_loss(model(tokens.to(place)), target.to(place))
            loss.backward()
            with torch.no_grad():
                for p in parameters.parameters():
                    p -= 0.1 * p.grad
                    p.grad = None
    for a, b in zip(device.parameters(), host.parameters(), strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_sizes_that_are_known_when_it_runs():
    def f(x):
        return (x.softmax(-1) * 2 + x).sum(0), x.reshape(-1)[::2] + x.size(0)

    compiled = torch.compile(f, dynamic=True)
    for n in (5, 40, 300):
        x = randn(n, n + 3)
        for got, want in zip(compiled(x.to("zoom")), f(x), strict=True):
            torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-4)


def test_an_index_out_of_range():
    f = torch.compile(lambda w, i: F.embedding(i, w) * 2)
    weight = randn(10, 4).to("zoom")
    with pytest.raises(IndexError, match="index out of range"):
        f(weight, torch.tensor([1, 12]).to("zoom")).cpu()
    assert f(weight, torch.tensor([1, 9]).to("zoom")).cpu().shape == (2, 4)


def drawing(x):
    images = x.view(2, 5, 6, 50).contiguous(memory_format=torch.channels_last)
    return (
        F.dropout(x, 0.25) * 2, torch.randn_like(x) + x, torch.rand(7, device=x.device) - 1, F.dropout2d(images) + 1,
        F.dropout(images, 0.4), torch.randint(5, 90, (9,), device=x.device) * 2,
        torch.empty_like(x).exponential_() + x,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("choice", ["device", "host"])
def test_random_numbers_of_eager_mode(monkeypatch, choice):
    """They are the same whatever the program does with them, in gradients too."""
    monkeypatch.setenv("CHORUS_COMPILED_KERNELS", choice)

    def drawn(f):
        x = randn(60, 50).to("zoom").requires_grad_()
        torch.manual_seed(3)
        for _ in range(2):
            results = f(x)
            sum(r.sum() for r in results).backward()
        return [*results, x.grad, torch.rand(3, device="zoom")]

    for a, b in zip(drawn(torch.compile(drawing)), drawn(drawing), strict=True):
        torch.testing.assert_close(a.cpu(), b.cpu(), rtol=1e-6, atol=1e-6)


@pytest.mark.long
def test_random_numbers_in_a_kernel(runs):
    """The program's option has the kernels draw."""
    x = torch.ones(10000, device="zoom")
    f = torch.compile(lambda x: F.dropout(x, 0.25) * 2, options={"fallback_random": False})
    assert f(x).cpu().unique().tolist() == pytest.approx([0, 8 / 3])
    assert 0.7 < (f(x) > 0).float().mean().item() < 0.8
    assert len(runs) == 2


@pytest.mark.long
def test_reduce_overhead(runs):
    """The device has no part in PyTorch's graph trees: kernels are launched each time."""
    f = torch.compile(lambda x: x.softmax(-1) + 1, mode="reduce-overhead")
    for n in (1, 2, 3):
        x = randn(5, 40 + n)[:, :40].contiguous()
        torch.testing.assert_close(f(x.to("zoom")).cpu(), x.softmax(-1) + 1)
        assert len(runs) == n


def test_kernels_of_a_program_are_compiled_together():
    """Those that are known when the first one runs."""
    from chorus_device.codegen.launching import Source

    number = random.getrandbits(60)  # no kernel that is kept on disk
    text = "KERNEL void added_{0}(GLOBAL i64 *p) {{ if (THREAD == 0 && BLOCK == 0) p[0] = {1} + {0}; }}"
    x = torch.zeros(1, dtype=torch.int64, device="zoom")
    Source("added_9", False, False, text.format(9, number)).run(1, x)  # with what the process knows already
    sources = [Source(f"added_{k}", False, False, text.format(k, number)) for k in range(3)]
    compiled = chorus_device.kernels()["compiled"]
    for k in (1, 0, 2):
        sources[k].run(1, x)
        assert x.item() == number + k
        assert chorus_device.kernels()["compiled"] == compiled + 3


START = "; ".join([
    "import sys",
    "sys.path.insert(0, sys.argv[1])",
    "import installed",
    "installed.put()",
    "import chorus_device, torch",
    "f = torch.compile(lambda x: (x.softmax(-1) * 2, x.sum(0), x.sin()))",
    "f(torch.ones(40, 50, device='zoom'))[2].cpu()",
    "print(chorus_device.kernels()['compiled'])",
])  # fmt: skip


@pytest.mark.long
def test_a_second_start_compiles_nothing(tmp_path):
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "i"), "PYTORCH_KERNEL_CACHE_PATH": str(tmp_path)}
    counts = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", START, os.path.dirname(__file__)], env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        counts.append(int(done.stdout.split()[-1]))
    assert counts[0] > 0 and counts[1] == 0, counts


def test_a_choice_that_isnt_known(monkeypatch):
    monkeypatch.setenv("CHORUS_COMPILED_KERNELS", "gpu")
    with pytest.raises(Exception, match="CHORUS_COMPILED_KERNELS is 'gpu'"):
        torch.compile(lambda x: x + 1)(torch.ones(3, device="zoom"))


CALLED = {
    "elements of torch.uint64": (
        lambda a: (
            a.to(torch.uint64).view(torch.int64) + 1, a * 2,
            torch.tensor([2**64 - 3, 4], dtype=torch.uint64, device=a.device).view(torch.int64) + a[:2],
        ),
        torch.arange(30),
    ),
    "assertions": (lambda a: (torch._assert_async((a < 100).all(), "large"), a + 1)[1:], X),
} | {
    f"atomic addition of {t}": (
        lambda a, i, b: (
            a.index_add(0, i, b), a.scatter_add(0, i[:, None].expand_as(b), b), a.index_put((i,), b, accumulate=True),
            a.scatter_reduce(0, i[:, None].expand_as(b), b, "sum", include_self=False), a.index_put((i,), b * 0),
            a + 1,
        ),
        integers(0, 9, 7, 3).to(t), torch.tensor([1, 1, 4]), torch.full((3, 3), 5, dtype=t),
    )
    for t in (torch.int8, torch.uint8, torch.int16)
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("what", CALLED)
def test_without_a_generated_form(what, caplog, runs):
    """The operator is called, as in eager mode, and the log says why when it's compiled, without inductor's cache."""
    f, *given = CALLED[what]
    uncached = torch._inductor.config.patch(force_disable_caches=True)
    with caplog.at_level("INFO", "torch._inductor.chorus"), uncached:
        results = torch.compile(f)(*moved(given, "zoom"))
    for got, want in zip(results, f(*given), strict=True):
        torch.testing.assert_close(got.cpu(), want, rtol=1e-2, atol=1e-2)
    assert f"generated kernels have no {what}" in caplog.text
    assert runs


@pytest.mark.long
@pytest.mark.parametrize("choice", ["device", "host"])
def test_the_choice(monkeypatch, choice, runs):
    """The other choice's programs aren't taken from inductor's cache."""
    monkeypatch.setenv("CHORUS_COMPILED_KERNELS", choice)
    x = torch.ones(3, device="zoom")
    assert torch.compile(lambda x: x.sin() + 1)(x).cpu().tolist() == pytest.approx((x.cpu().sin() + 1).tolist())
    assert bool(runs) == (choice == "device")


def test_a_program_of_another_division(monkeypatch):
    """It isn't taken from inductor's cache where a device has another number of multiprocessors."""
    from chorus_device import dynamo
    from chorus_device.inductor import CacheKey

    assert (torch.ones(1, device="zoom") + 1).item() == 2
    key = CacheKey().uuid()
    assert CacheKey().uuid() == key
    monkeypatch.setattr(dynamo, "_LEAST", 12345)
    assert CacheKey().uuid() != key


@pytest.mark.parametrize("steps, apart", [((2, 40), False), ((1, 40), True)])
def test_operands_of_a_row(steps, apart):
    """Whether the elements of a row lie apart doesn't depend on what all of a row's elements have in common."""
    import sympy
    from chorus_device.codegen.kernel import _apart
    from torch._inductor.dependencies import MemoryDep
    from torch._inductor.sizevars import SizeVarAllocator
    from torch._inductor.virtualized import V

    i, j, k = sympy.symbols("i j k", integer=True, nonnegative=True)
    reads = [
        MemoryDep("x", steps[0] * i + steps[1] * 90 * j + steps[1] * k, (i, j, k), (40, 50, 90)),
        MemoryDep("of_a_row", i + 40 * j, (i, j), (40, 50)),
    ]
    node = types.SimpleNamespace(read_writes=types.SimpleNamespace(reads=reads))
    features = types.SimpleNamespace(
        numel=sympy.Integer(2000), reduction_numel=sympy.Integer(90), reduction_nodes=lambda: [node]
    )
    with V.set_graph_handler(types.SimpleNamespace(sizevars=SizeVarAllocator())):
        assert _apart(features) == apart


def test_calls_of_inductor_with_drawn_numbers():
    """Inductor's function takes its arguments by position or name; a graph's names don't matter."""
    from chorus_device import drawing

    def compile_fx(model_, example_inputs_, inner_compile=None, config_patches=None):
        return config_patches

    def f(activation_checkpoint):
        return activation_checkpoint + 1

    inductor = types.SimpleNamespace(compile_fx=compile_fx)
    drawing.install(inductor)
    graph, given = torch.fx.symbolic_trace(f), [torch.ones(1, device="zoom")]
    chosen = {"fallback_random": True}
    assert inductor.compile_fx(graph, given) == chosen
    assert inductor.compile_fx(model_=graph, example_inputs_=given, inner_compile=f) == chosen
    assert inductor.compile_fx(graph, given, None, {"a": 1}) == {"a": 1, **chosen}
    assert inductor.compile_fx(graph, given, config_patches={"fallback_random": False}) == {"fallback_random": False}
    assert inductor.compile_fx(graph, [torch.ones(1)]) is None
    node = next(iter(graph.graph.find_nodes(op="output")))
    with graph.graph.inserting_before(node):
        graph.graph.call_function(torch.ops.higher_order.tag_activation_checkpoint, (graph, *node.args))
    assert inductor.compile_fx(graph, given) is None


@pytest.mark.long
def test_rows_that_lie_apart(monkeypatch):
    """Neighbouring threads read neighbouring elements: of a row, or of rows whose elements lie apart."""
    from chorus_device.codegen.launching import Source

    texts, init = [], Source.__init__
    monkeypatch.setattr(Source, "__init__", lambda self, *given: (texts.append(given[-1]), init(self, *given))[1])
    x = randn(300, 200)
    f = torch.compile(lambda x: (x.sum(0), x.amax(1)))
    with torch._inductor.config.patch(force_disable_caches=True):
        for got, want in zip(f(x.to("zoom")), (x.sum(0), x.amax(1)), strict=True):
            torch.testing.assert_close(got.cpu(), want)
    said = [n for t in texts for n in re.findall(r"#define (ROW_OF_\w+ \d+)", t)]
    assert sorted(said) == ["ROW_OF_BLOCK 200", "ROW_OF_THREAD 100", "ROW_OF_THREAD 3"]


@pytest.mark.long
def test_in_a_graph(runs):
    """A captured program computes from what its operands have when it's replayed, and draws anew."""
    f = torch.compile(lambda x, i: (x[i].softmax(-1) * 2, x.sum(0) + 1, F.dropout(x, 0.5)))
    x, i = torch.empty(40, 50, device="zoom").fill_(1), integers(0, 40, 9).to("zoom")
    f(x, i)  # compiled before the capture
    graph = torch.zoom.Graph()
    ran = len(runs)
    with torch.zoom.graph(graph):
        results = f(x, i)
    assert len(runs) > ran
    kept = []
    for n in (1, 2):
        now = randn(40, 50) + n
        x.copy_(now)
        graph.replay()
        rows, columns, dropped = (r.cpu() for r in results)
        torch.testing.assert_close(rows, now[i.cpu()].softmax(-1) * 2)
        torch.testing.assert_close(columns, now.sum(0) + 1, rtol=1e-5, atol=1e-5)
        kept.append(dropped != 0)
        torch.testing.assert_close(dropped, now * 2 * kept[-1])
    assert not kept[0].equal(kept[1])
