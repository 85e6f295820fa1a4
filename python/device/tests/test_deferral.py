"""The results of an operator depend on its arguments, not on whether its stream is idle.

Each test runs on an idle stream and on a busy one. With CHORUS_DEVICE_INLINE=false every test of the device runs on
streams that defer all work like a busy one."""

import contextlib
import os
import subprocess
import sys
import warnings

import pytest
import torch
from chorus_device import programs, sweep
from slow import busy
from worlds import longest

D = torch.device("accinte", 0)


def outcome(f):
    """A function's result, as bits, or its error, and the number of its warnings; their texts differ in Python's Meta
    kernels."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            result = f()
            torch.accinte.synchronize()
        except Exception as error:
            return type(error), str(error)
    return sweep.bits(result), [t.tolist() for t in sweep.tensors(result)], len(told)


def alike(f):
    """The outcome on an idle stream; asserts that it's the same on a busy stream."""
    idle = outcome(f)
    with busy(D, 0.03):
        held_up = outcome(f)
    torch.accinte.clear_error()
    assert held_up == idle
    return idle


def values(f):
    got = alike(f)
    assert not isinstance(got[0], type), got
    return got[1]


X = torch.arange(1.0, 4.0)


# ---- tensors of the host that are written to ----


def test_writes_to_tensors_of_the_host():
    x = X.to(D)

    def metrics():
        held = torch.zeros(3)
        held[1].fill_(x.sum())
        return held

    def parameter():
        p = torch.nn.Parameter(torch.zeros(()))
        with torch.no_grad():
            assert p.fill_(x.sum()) is p
        return p.detach()

    def scatter():
        held = torch.zeros(())
        assert held.masked_scatter_(torch.tensor(True), x) is held
        return held

    def found_inf():
        found = torch.zeros(())
        bad = torch.full((2,), float("inf")).to(D)
        torch._amp_foreach_non_finite_check_and_unscale_([bad], found, torch.tensor(0.5).to(D))
        return found

    def out():
        held = torch.zeros(())
        assert torch.sum(x, 0, out=held) is held
        return held

    assert values(metrics) == [[0, 6, 0]] and values(parameter) == [6] and values(scatter) == [1]
    assert values(found_inf) == [1] and values(out) == [6]


# ---- generators ----


@pytest.mark.parametrize("philox", [False, True])
def test_tensors_of_the_host_are_not_drawn_with_a_devices_generator(philox):
    g = torch.Generator(D).manual_seed(1)
    some = torch.ones(3)
    refused = (RuntimeError, "Expected a 'cpu' device type for generator but found 'accinte'")
    try:
        torch.accinte.random.use_philox(philox)
        for draw in (
            lambda: torch.rand(4, generator=g),
            lambda: torch.randn(4, generator=g),
            lambda: torch.randint(4, (3,), generator=g),
            lambda: some.normal_(generator=g),
            lambda: torch.nn.init.xavier_uniform_(torch.empty(3, 3), generator=g),
            lambda: torch.rand((), generator=g),
            lambda: torch.rand_like(some, generator=g),
            lambda: some.bernoulli_(0.5, generator=g),
            lambda: some.exponential_(generator=g),
        ):
            assert alike(draw) == refused
        for draw in (
            lambda: torch.randperm(4, generator=g),
            lambda: torch.multinomial(some, 2, generator=g),
            lambda: torch.bernoulli(some, generator=g),
            lambda: torch.normal(some.to(D), some.to(D), generator=g, out=torch.empty(())),
        ):
            assert alike(draw) == refused
    finally:
        torch.accinte.random.use_philox(False)
    assert torch.equal(some, torch.ones(3))


# ---- numbers of the host ----

TWO = ("add", "sub", "mul", "div", "pow", "eq", "lt", "ge", "minimum", "maximum", "atan2", "remainder", "fmod", "hypot",
       "logaddexp", "copysign", "heaviside", "xlogy", "true_divide", "floor_divide")  # fmt: skip
NUMBERS = {
    **{f"{name}, first": lambda x, n, name=name: getattr(torch, name)(n, x) for name in TWO},
    **{f"{name}, second": lambda x, n, name=name: getattr(torch, name)(x, n) for name in TWO},
    "out": lambda x, n: torch.mul(n, x, out=torch.empty_like(x)),
    "lerp": lambda x, n: torch.lerp(x, x * 2, n),
    "lerp from": lambda x, n: torch.lerp(n, x, 0.25),
    "addcmul": lambda x, n: torch.addcmul(n, x, x),
    "where": lambda x, n: torch.where(x > 1, n, x),
    "masked_fill": lambda x, n: x.masked_fill(x > 1, n),
    "index_put": lambda x, n: x.clone().index_put_((torch.zeros(1, dtype=torch.long),), n),
    "a number of Python's": lambda x, n: 2 - x + (2 / x) ** 2.5 + torch.minimum(n, x),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_the_host(name):
    for number in (torch.tensor(2.0), torch.tensor(3), torch.tensor(0.5, dtype=torch.float64)):
        with contextlib.suppress(RuntimeError):  # the CPU refuses some
            want = NUMBERS[name](X, number)
            x = X.to(D)
            got = alike(lambda x=x, number=number: NUMBERS[name](x, number))
            assert got[0] == sweep.bits(want.to(D)), (got, want)


def test_gradients_of_numbers_of_the_host():
    def gradients(device):
        n = torch.tensor(2.0, requires_grad=True)
        x = X.clone().to(device).requires_grad_()
        loss = torch.tensor(0.0) + (n * x).sum() + torch.lerp(x, n * x, 0.5).sum() + (n / x).pow(2).sum()
        return torch.autograd.grad(loss, [n, x])

    want = gradients("cpu")
    assert values(lambda: gradients(D)) == [t.tolist() for t in want]


def test_deferred_operators_use_the_number_at_the_call():
    """A deferred operator computes with the host tensors' values at the time of the call."""
    x, n = X.to(D), torch.tensor(2.0)
    with busy(D, 0.05):
        got = n * x
        n.fill_(7)
    assert got.tolist() == [2, 4, 6]


# ---- operators without a Meta kernel, or with one that refuses ----


@pytest.fixture(scope="module")
def customs():
    import torch.library

    lib = torch.library.Library("deferral", "DEF")

    def plain(x):
        return x[x > 1].clone()

    def scaled(x, n):
        return x * n.item()

    for name, schema, kernel in (
        ("plain", "(Tensor x) -> Tensor", plain),
        ("dynamic", "(Tensor x) -> Tensor", plain),
        ("looks", "(Tensor x, Tensor n) -> Tensor", scaled),
        ("elsewhere", "(Tensor x) -> Tensor", plain),
        ("told", "(Tensor x) -> Tensor", lambda x: x + 1),
    ):
        lib.define(name + schema)
        lib.impl(name, kernel, "CPU")

    @torch.library.register_fake("deferral::dynamic", lib=lib)
    def _(x):
        return x.new_empty(torch.library.get_ctx().new_dynamic_size())

    @torch.library.register_fake("deferral::looks", lib=lib)
    def _(x, n):
        return x * n.item()

    @torch.library.register_fake("deferral::elsewhere", lib=lib)
    def _(x):
        return torch.empty(2)

    @torch.library.register_fake("deferral::told", lib=lib)
    def _(x):
        return torch.empty_like(x)

    yield torch.ops.deferral
    lib._destroy()


def test_operators_of_others(customs):
    x, n = X.to(D), torch.tensor(2.0)
    assert values(lambda: customs.plain(x)) == [[2, 3]]
    assert values(lambda: customs.dynamic(x)) == [[2, 3]]
    assert values(lambda: customs.looks(x, n)) == values(lambda: customs.looks(x, n.to(D))) == [[2, 4, 6]]
    assert values(lambda: customs.elsewhere(x)) == [[2, 3]]
    assert values(lambda: customs.told(x)) == [[2, 3, 4]]


@pytest.mark.skipif(not hasattr(torch.accelerator, "Graph"), reason="PyTorch has no graphs of devices")
def test_operators_that_wait_cannot_be_captured(customs):
    x, n, host = X.to(D), torch.tensor(2.0).to(D), torch.zeros(())
    for call, why in (
        (lambda: customs.plain(x), "deferral::plain can't be captured: .*"),
        (lambda: customs.looks(x, n), "deferral::looks can't be captured: .*item"),
        (lambda: host.fill_(n), "aten::fill_.Tensor can't be captured: it writes to a tensor of the host"),
        (lambda: x @ x[:2], "can't be captured: .*size"),
    ):
        with pytest.raises(RuntimeError, match=why), torch.accinte.graph(torch.accinte.Graph()):
            call()
    g = torch.accinte.Graph()
    with torch.accinte.graph(g):
        y = customs.told(torch.tensor(2.0) * x)
    g.replay()
    assert y.tolist() == [3, 5, 7]


# ---- errors, warnings and settings ----


def test_errors_of_arguments():
    """Errors have the type and the text of the CPU kernel's."""
    x = X.to(D)
    for f in (
        lambda t: t + torch.ones(4, device=t.device),
        lambda t: t.reshape(1, 3) @ t.reshape(1, 3),
        lambda t: torch.mm(t, t),
        lambda t: torch.cat([t, t.reshape(1, 3, 1)]),
        lambda t: t.sum(5),
        lambda t: torch.nn.functional.conv2d(t, t),
        lambda t: torch.linalg.inv(t.expand(3, 3)[:2]),
        lambda t: torch.add(t, t, out=t.new_empty(3, dtype=torch.int64)),
    ):
        want = outcome(lambda f=f: f(X))
        assert isinstance(want[0], type) and alike(lambda f=f: f(x)) == want


def test_warnings_are_told_once():
    def resized(x):
        return torch.add(x, 1, out=torch.zeros(2, device=x.device))

    x = X.to(D)
    assert alike(lambda: resized(x))[2:] == (1,)


def test_settings_of_the_caller():
    """Deferred operators use the settings of the calling thread."""
    x = torch.tensor([1e-39]).to(D)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor doesn't flush numbers below the normal ones")
    try:
        assert values(lambda: x * 1) == [[0.0]]
    finally:
        torch.set_flush_denormal(False)
    assert values(lambda: x * 1) != [[0.0]]
    h = torch.rand(1 << 20)
    x, threads = h.to(D), torch.get_num_threads()
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            assert values(lambda: x.sum()) == [h.sum().item()]
    finally:
        torch.set_num_threads(threads)


# ---- always busy ----

ALWAYS_BUSY = {"CHORUS_DEVICE_INLINE": "false"}


def run(*arguments, seconds=300, **environment):
    command = [sys.executable, "-m", *arguments]
    environment = {**os.environ, **environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stdout[-10000:] + done.stderr[-10000:]
    return done.stdout


@longest
@pytest.mark.long
def test_sweep_with_numbers_of_the_host():
    run("chorus_device.sweep", "accinte", "--every", "97", "--numbers")


@longest
@pytest.mark.long
def test_sweep_and_programs_always_busy(tmp_path):
    file = str(tmp_path / "answers")
    some = ("chorus_device.sweep", "accinte", "--every", "151")
    run(*some, "--json", file)
    assert "fail" not in run(*some, "--as", file, **ALWAYS_BUSY)
    run("chorus_device.programs", "accinte", "--programs", "2", "--steps", "60", **ALWAYS_BUSY)


@longest
@pytest.mark.long
def test_all_of_the_sweep_and_200_programs_always_busy(tmp_path):
    file = str(tmp_path / "answers")
    run("chorus_device.sweep", "accinte", "--json", file, seconds=7200)
    run("chorus_device.sweep", "accinte", "--as", file, seconds=7200, **ALWAYS_BUSY)
    seed = os.environ.get("CHORUS_TEST_SEED", "1")
    run("chorus_device.programs", "accinte", "--programs", "200", "--seed", seed, seconds=7200, **ALWAYS_BUSY)


def test_a_run_with_other_bits_is_reported():
    mine = {"op": 0, "dtype": "float32", "status": "ok", "bits": "1", "samples": 1}
    for other in ({**mine, "bits": "2"}, {**mine, "status": "refused", "why": ""}, {**mine, "op": 1}):
        answers = [dict(mine)]
        sweep.differ(answers, [other])
        assert answers[0]["status"] == "fail" and "the other run's is" in answers[0]["why"]
    answers = [dict(mine)]
    sweep.differ(answers, [mine])
    assert answers == [mine]


def test_programs_have_numbers_of_the_host():
    program = programs.Program(3, 60, programs.Host(), 1 << 19)
    program.go()
    assert any("number" in step for step in program.log)
