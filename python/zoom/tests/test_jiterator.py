"""torch.zoom.jiterator: functions of single elements that a program writes in C++."""

import itertools

import pytest
import torch
from chorus_device._device import c

D = "zoom"
AXPBY = "template <typename T> T axpby(T x, T y, T alpha, T beta) { return alpha * x + beta * y; }"
REAL = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int32)
REAL += (torch.int64,)


@pytest.fixture(scope="module", autouse=True)
def _compiles():
    torch.ones(1, device=D) + 1
    if not c().kernel_counts(0)["launched"]:
        pytest.skip("left out: the device compiles no kernels")


def one(text, **numbers):
    return torch.zoom.jiterator._create_jit_fn(text, **numbers)


def several(text, n, **numbers):
    return torch.zoom.jiterator._create_multi_output_jit_fn(text, num_outputs=n, **numbers)


def pairs():
    """All pairs of types have one kernel each: few of them here."""
    return [(a, b) for k, (a, b) in enumerate(itertools.product(REAL, REAL)) if k % 9 == 4]


@pytest.mark.long
def test_types():
    f = one(AXPBY, alpha=1, beta=2)
    for a, b in pairs():
        x, y = (torch.arange(12).reshape(3, 4).to(kind) for kind in (a, b))
        got, want = f(x.to(D), y.to(D), beta=3), x + 3 * y
        assert got.dtype == want.dtype == torch.promote_types(a, b)
        assert torch.equal(got.cpu(), want)
    mask = torch.tensor([True, False, True])
    both = one("template <typename T> T both(T x, T y) { return x && y; }")(mask.to(D), mask.flip(0).to(D))
    assert both.dtype == torch.bool and both.tolist() == [True, False, True]


@pytest.mark.long
def test_layouts():
    f = one(AXPBY, alpha=-1.5, beta=0.5)
    x, y = torch.arange(24.0).reshape(4, 6), torch.linspace(0, 1, 6)
    for a, b in (
        (x, y),
        (x.t(), y[:4]),
        (x[:, ::2], x[:, 1::2]),
        (x[:1], x[:, :1]),
        (x, torch.tensor(2.0)),
        (x[2:2], y),
        (torch.empty(0), torch.empty(0)),
        (x.expand(3, 4, 6), x[None].contiguous()),
    ):
        got, want = f(moved(a), moved(b)), -1.5 * a + 0.5 * b
        assert got.shape == want.shape and got.stride() == want.stride()
        torch.testing.assert_close(got.cpu(), want)
    with pytest.raises(RuntimeError, match="must match the size"):
        f(x.to(D), torch.ones(5, device=D))
    with pytest.raises(RuntimeError, match="jiterator takes tensors of zoom, not of cpu"):
        f(x.to(D), x)


def moved(t):
    """A tensor of the device with the same strides and offset."""
    all_of_it = torch.empty(0).set_(t.untyped_storage()).to(D)
    return all_of_it.as_strided(t.shape, t.stride(), t.storage_offset())


def test_numbers():
    x = torch.tensor([-1.0, 2.0, 5.0], device=D)
    f = one(AXPBY.replace("T y, ", "").replace("beta * y", "beta"), alpha=2, beta=0.5)
    assert f(x).tolist() == [-1.5, 4.5, 10.5]
    assert f(x, beta=torch.tensor(1)).tolist() == [-1, 5, 11] and f(x, alpha=True).tolist() == [-0.5, 2.5, 5.5]
    with pytest.raises(KeyError, match="gamma is not declared in function definition"):
        f(x, gamma=1)
    gated = one("template <typename T> T gated(T x, T y, bool on) { return on ? x * y : x; }", on=False)
    assert gated(x, x).tolist() == [-1, 2, 5] and gated(x, x, on=True).tolist() == [1, 4, 25]


def test_functions():
    f = one("""
    template <typename T> T inner(T x, T y) { return ::sin(x) + std::cos(y); }
    template <typename T> T outer(T x, T y, T most) { return ::min(most, inner<T>(x, y)); }
    """, most=0.5)  # fmt: skip
    x, y = torch.linspace(-2, 2, 9), torch.linspace(0, 1, 9)
    torch.testing.assert_close(f(x.to(D), y.to(D)).cpu(), (x.sin() + y.cos()).clamp(max=0.5))


@pytest.mark.long
@pytest.mark.parametrize("n", [1, 5, 8])
def test_inputs(n):
    names = [f"x{k}" for k in range(n)]
    params = ", ".join(f"T {name}" for name in names)
    f = one(f"template <typename T> T total({params}) {{ return {' + '.join(names)}; }}")
    assert f(*(torch.full((3,), float(k + 1), device=D) for k in range(n))).tolist() == [n * (n + 1) / 2] * 3
    with pytest.raises(AssertionError, match="only supports up to 8 tensor inputs, got 9"):
        f(*(torch.ones(1, device=D) for _ in range(9)))


@pytest.mark.long
@pytest.mark.parametrize("n", [1, 4, 8])
def test_results(n):
    params = ", ".join(f"T& y{k}" for k in range(n))
    body = " ".join(f"y{k} = x * {k} + a;" for k in range(n))
    f = several(f"template <typename T> void many(T x, T a, {params}) {{ {body} }}", n, a=1)
    x = torch.tensor([1.0, 2.0], device=D)
    got = f(x)
    assert isinstance(got, torch.Tensor if n == 1 else tuple)
    for k, y in enumerate([got] if n == 1 else got):
        assert y.tolist() == [k + 1, 2 * k + 1]


@pytest.mark.long
def test_streams_and_graphs():
    f = one(AXPBY, alpha=2, beta=1)
    x = torch.ones(1000, device=D)
    side = torch.Stream(D)
    side.wait_stream(torch.zoom.current_stream())
    with side:
        y = f(x, x)
    torch.zoom.current_stream().wait_stream(side)
    assert (y == 3).all().item()
    graph = torch.zoom.Graph()
    with torch.zoom.graph(graph):
        z = f(x, y)
    x.fill_(5)
    graph.replay()
    assert (z == 13).all().item()


@pytest.mark.anywhere
@pytest.mark.parametrize(
    "text",
    ["template <typename T> T my _f(T x) { return x; }", "template <typename T> Tf(T x) { return x; }", "x + y", ""],
)
def test_texts_that_are_none(text):
    with pytest.raises(Exception, match="Couldn't parse code, please check correctness"):
        one(text)


def test_errors():
    x = torch.ones(3, device=D)
    refused = c().kernel_counts(0)["refused"]
    wrong = one("template <typename T> T wrong(T x) {\n  T y = x + 1;\n  return y + not_there;\n}")
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"doesn't compile(.|\n)*not_there(.|\n)*>.*return y \+ not_there;"):
            wrong(x)
    assert c().kernel_counts(0)["refused"] == refused  # by no operator
    with pytest.raises(
        RuntimeError, match="f takes 1 inputs and numbers and has 1 results, and the call has 2, 0 and 1"
    ):
        one("template <typename T> T f(T x) { return x; }")(x, x)
    with pytest.raises(RuntimeError, match="a template has one type"):
        one("template <typename T, typename U> T f(T x) { return x; }")(x)
    with pytest.raises(AssertionError, match="Return by value only works for single output"):
        torch.zoom.jiterator._JittedFunction(AXPBY, return_by_ref=False, num_outputs=2)
    with pytest.raises(AssertionError, match="up to 8 outputs, got 9"):
        several(AXPBY, 9)(x)
    with pytest.raises(AssertionError, match="at least one tensor"):
        one(AXPBY)()
    assert torch.equal((x + x).cpu(), torch.full((3,), 2.0))  # nothing is left of the errors
