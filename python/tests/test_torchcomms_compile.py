"""Methods of communicators in programs of torch.compile, without a break in the graph."""

import pytest
import torch
import torch.distributed as dist
from worlds import World, longest

from chorus import torchcomms
from chorus.torchcomms import ReduceOp, Timeout, TorchWork, WorkStatus, functional

pytestmark = pytest.mark.skipif(
    not functional.is_torch_compile_supported(), reason="this PyTorch can't trace methods of communicators"
)
SUM, MAX = ReduceOp.SUM, ReduceOp.MAX
# Reductions with a factor, and timeouts, are made outside of the program.
SOON, TWICE, THRICE = Timeout(seconds=30), ReduceOp.PREMUL_SUM(2.0), ReduceOp.PREMUL_SUM(torch.tensor(3.0))
OWN = [ReduceOp.PREMUL_SUM(r + 1.0) for r in range(3)]
METHODS = [
    "send", "recv", "broadcast", "all_reduce", "reduce", "all_gather", "all_gather_v", "all_gather_single",
    "reduce_scatter", "reduce_scatter_v", "reduce_scatter_single", "all_to_all", "all_to_all_single",
    "all_to_all_v_single", "scatter", "gather", "gather_single", "barrier", "get_rank", "get_size", "get_name",
    "get_backend", "get_device", "batch_op_create",
]  # fmt: skip


def _twice(c, x):
    """Two operations in place, asynchronous and synchronous, with other work between."""
    work = c.all_reduce(x, SUM, async_op=True)
    work.wait()
    x *= 2
    c.all_reduce(x, MAX, async_op=False, hints={"algorithm": "ring"}, timeout=SOON)
    x += 5
    return x


def _lists(c, x):
    n = c.get_size()
    outs = [torch.zeros_like(x) for _ in range(n)]
    c.all_gather(outs, x, async_op=False)
    c.all_to_all(outs, [o * (c.get_rank() + 1) for o in outs], True).wait()
    part = torch.zeros_like(x)
    c.reduce_scatter(part, outs, ReduceOp.AVG, False)
    return torch.cat([*outs, part])


def _singles(c, x):
    n = c.get_size()
    whole = torch.empty(n * x.size(0), *x.shape[1:])
    c.all_gather_single(whole, x, async_op=False)
    other = torch.empty_like(whole)
    c.all_to_all_single(other, whole + c.get_rank(), async_op=False)
    c.reduce_scatter_single(x, other, SUM, async_op=False)
    return x * n


def _rooted(c, x):
    """Ranks other than the root have no results, and take part nevertheless."""
    root, me, n = c.get_size() - 1, c.get_rank(), c.get_size()
    c.broadcast(x, root, async_op=False)
    x = x + me
    c.reduce(x, root, SUM, async_op=False)
    got = [torch.zeros_like(x) for _ in range(n)] if me == root else []
    c.gather(got, x, root, async_op=False)
    whole = torch.zeros(n, *x.shape)
    c.gather_single(whole, x, 0, async_op=False)
    back = torch.zeros_like(x)
    c.scatter(back, [whole[i] + i for i in range(n)] if me == 0 else [], 0, async_op=False)
    c.barrier(async_op=False)
    return torch.stack([*got, back])


def _uneven(c, x):
    """Rank r sends a row to rank 0 and two to the others; a row of the output stays unchanged."""
    n, me = c.get_size(), c.get_rank()
    sent = [1] + [2] * (n - 1)
    out = torch.ones(n * sent[me] + 1, 3)
    c.all_to_all_v_single(out, x.repeat(n, 1)[: sum(sent)], [sent[me]] * n, sent, async_op=False)
    outs = [torch.zeros(r + 1) for r in range(n)]
    c.all_gather_v(outs, x.flatten()[: me + 1], async_op=False)
    part = torch.zeros(me + 1)
    c.reduce_scatter_v(part, outs, SUM, async_op=False)
    return torch.cat([out.flatten(), *outs, part])


def _messages(c, x):
    n, me = c.get_size(), c.get_rank()
    batch = c.batch_op_create()
    out = torch.empty_like(x)
    batch.send(x, (me + 1) % n)
    batch.recv(out, (me - 1) % n)
    batch.issue(async_op=True).wait()
    if n > 1 and me < n // 2 * 2:
        if me % 2 == 0:
            c.send(out * 2, me + 1, async_op=False)
        else:
            c.recv(out, me - 1, async_op=False)
    return out


def _unused(c, x):
    """An operation whose results only one rank needs."""
    y = x.clone()
    c.all_reduce(y, SUM, async_op=False)
    return y if c.get_rank() == 0 else x


def _premultiplied(c, x):
    c.all_reduce(x, TWICE, async_op=False)
    c.all_reduce(x, THRICE, async_op=False)
    return x


def _waits(c, x):
    """The operators of the original's programs."""
    y = x * 2
    c.all_reduce(y, SUM, async_op=True)
    (y,) = torch.ops.torchcomms.torchcomm_wait_tensors([y])
    torch.ops.torchcomms.torchcomm_wait_tensors_([y])[0].add_(1)
    return y


PROGRAMS = ["_waits", "_twice", "_lists", "_singles", "_rooted", "_uneven", "_messages", "_unused", "_premultiplied"]


def _weighted(c, x):
    """All operations that have a gradient."""
    n, me = c.get_size(), c.get_rank()
    y = x * 1.0
    c.all_reduce(y, ReduceOp.AVG, async_op=False)
    outs = [torch.zeros_like(y) for _ in range(n)]
    c.all_gather(outs, y * (me + 1), async_op=True).wait()
    z = torch.zeros_like(y)
    c.reduce_scatter(z, [o * o for o in outs], SUM, async_op=False)
    whole = torch.zeros(n * z.size(0), *z.shape[1:])
    c.all_gather_single(whole, z, async_op=False)
    other = torch.zeros_like(whole)
    c.all_to_all_single(other, whole.sin(), async_op=False)
    c.reduce_scatter_single(z, other, OWN[me], async_op=False)
    c.broadcast(z, 0, async_op=False)
    out = torch.zeros(n, 3)
    c.all_to_all_v_single(out, z.repeat(n, 1)[:n], [1] * n, [1] * n, async_op=False)
    outs = [torch.zeros_like(z) for _ in range(n)]
    c.all_to_all(outs, [z * (i + 1) for i in range(n)], async_op=False)
    return (out * out).sum() + sum(o.sum() for o in outs)


def _differences(c, x, of):
    """The gradient of the sum of all ranks' results by this rank's input, from finite differences. Collective."""

    def total(x):
        y = of(c, x).detach().clone().reshape(1)
        c.all_reduce(y, SUM, async_op=False)
        return y.item()

    grads = torch.zeros(c.get_size(), x.numel(), dtype=x.dtype)
    for r in range(c.get_size()):
        for i in range(x.numel()):
            step = torch.zeros(x.numel(), dtype=x.dtype)
            if r == c.get_rank():
                step[i] = 1e-6
            step = step.view_as(x)
            grads[r, i] = (total(x + step) - total(x - step)) / 2e-6
    return grads[c.get_rank()].view_as(x)


def _gradients(c, x, backends):
    torch.set_default_dtype(torch.float64)
    try:
        want = _differences(c, x, _weighted)
        x = x.detach().requires_grad_()
        _weighted(c, x).backward()
        most = x * 1.0  # has none outside of a program either, and is computed
        c.all_reduce(most, MAX, async_op=True).wait()
        assert most.max() >= x.max()
        torch.testing.assert_close(x.grad, want, rtol=1e-4, atol=1e-4)
        for backend in backends:
            torch._dynamo.reset()
            x = x.detach().requires_grad_()
            torch.compile(_weighted, fullgraph=True, backend=backend)(c, x).backward()
            torch.testing.assert_close(x.grad, want, rtol=1e-4, atol=1e-4)
    finally:
        torch.set_default_dtype(torch.float32)


def _programs(peers, backends, programs):
    from torch import _dynamo

    assert functional.is_torch_compile_supported_and_enabled()
    store = dist.PrefixStore("compile", dist.TCPStore("127.0.0.1", peers.port, peers.size, False))
    c = torchcomms.new_comm("gloo", torch.device("cpu"), "compiled", store=store, rank=peers.rank,
        world_size=peers.size)  # fmt: skip
    x = torch.arange(6.0).view(2, 3) * (peers.rank + 1) + 1
    for of in map(globals().__getitem__, programs):
        want = of(c, x.clone())
        for backend in backends:
            _dynamo.reset()
            got = torch.compile(of, fullgraph=True, backend=backend)(c, x.clone())
            assert torch.equal(got, want), (of, backend, got, want)
    if len(programs) == len(PROGRAMS):
        _gradients(c, x.double() / 7, backends)
    for bad, words in ((lambda c, x: c.reduce(x, 0, SUM), "reduce has no gradient"),
                       (lambda c, x: c.all_reduce(x, MAX), "reduction MAX has no gradient")):  # fmt: skip
        _dynamo.reset()
        program = torch.compile(lambda c, x, bad=bad: (bad(c, x), x)[1] * 1, backend="aot_eager", fullgraph=True)
        with pytest.raises(Exception, match=words):
            program(c, torch.ones(3, requires_grad=True) * 1)
    c.barrier()
    _dynamo.reset()
    c.finalize()


def test_programs_of_one_rank(monkeypatch):
    """The programs in a world of one, in this process, as a brief form."""
    from chorus import _compiled

    class Alone:
        rank, size = 0, 1

        def __init__(self):
            self.store = dist.TCPStore("127.0.0.1", 0, 1, True)
            self.port = self.store.port

    for name in METHODS:
        monkeypatch.setattr(torchcomms.TorchComm, name, getattr(torchcomms.TorchComm, name))
    monkeypatch.setattr(_compiled, "_EAGER", _compiled._EAGER)
    monkeypatch.setenv("TORCHCOMMS_PATCH_FOR_COMPILE", "1")
    _compiled.install()
    _programs(Alone(), ["aot_eager"], ["_twice", "_messages", "_premultiplied", "_waits"])


def test_wait_tensors():
    """Waiting has a gradient, the copies of several tensors have it together, and in place nothing is copied."""
    from chorus import _compiled  # noqa: F401

    x, y = torch.ones(3, requires_grad=True), torch.ones(3)
    results = torch.ops.torchcomms.torchcomm_wait_tensors([x * x, y])
    assert [t.requires_grad for t in results] == [True, True] and results[1].data_ptr() != y.data_ptr()
    (grad,) = torch.autograd.grad(results[0].sum() + results[1].sum(), x, create_graph=True)
    assert torch.equal(torch.autograd.grad(grad.sum(), x)[0], torch.full((3,), 2.0))
    assert not torch.ops.torchcomms.torchcomm_wait_tensors([y])[0].requires_grad
    z = x * 3
    (same,) = torch.ops.torchcomms.torchcomm_wait_tensors_([z])
    assert same is z and torch.equal(torch.autograd.grad(same.sum(), x)[0], torch.full((3,), 3.0))


class _Kept(TorchWork):
    """An operation under way that notes who waits for it."""

    def __init__(self, name, waited):
        super().__init__(status=WorkStatus.INPROGRESS)
        self.name, self.waited = name, waited

    def wait(self, timeout=None):
        self.waited.append(self.name)


def test_which_operations_are_waited_for(monkeypatch):
    """Those whose results share elements with the tensor: views too, but no later tensor at the same address."""
    from chorus import _compiled

    monkeypatch.setattr(_compiled, "_under_way", {})
    waited = []
    x, other = torch.zeros(4, 6), torch.zeros(6)
    for name, results in {"rows": [x[:2]], "column": [x[2:, 5]], "both": [x[3, :2], other], "nothing": [x[:0]]}.items():
        _compiled._note(results, _Kept(name, waited))
    wait = torch.ops.torchcomms.torchcomm_wait_tensors_
    for tensor, names in ((x[2, :5], []), (x[1:3, 2], ["rows"]), (x[3], ["column", "both"]), (x, ["nothing"]),
                          (x, []), (other, ["both"])):  # fmt: skip
        wait([tensor])
        assert waited == names, (tensor.shape, waited)
        waited.clear()
    gone = torch.zeros(3)
    _compiled._note([gone], _Kept("gone", waited))
    del gone
    for _ in range(2 * _compiled._MANY):
        wait([later := torch.zeros(3)])
        _compiled._note([later], TorchWork())
    assert not waited and len(_compiled._under_way) <= _compiled._MANY


def test_operations_that_are_noted(monkeypatch):
    """One buffer that is reduced again and again leaves no more than one that isn't. A failed wait leaves the other
    operations noted, and the end of an operation may issue the next one."""
    from chorus import _compiled

    monkeypatch.setattr(_compiled, "_under_way", {})
    monkeypatch.setattr(_compiled, "_room", [_compiled._MANY])
    x, others, waited = torch.zeros(6), torch.zeros(3), []

    class Next(TorchWork):
        def is_completed(self):
            _compiled._note([others], _Kept("next", waited))
            _compiled._join([others])
            return True

    for _ in range(20 * _compiled._MANY):
        _compiled._note([x], TorchWork())
        _compiled._join([others])
    assert sum(map(len, _compiled._under_way.values())) <= 2 * _compiled._MANY
    for _ in range(3 * _compiled._MANY):
        _compiled._note([x], Next())
    assert waited and set(waited) == {"next"}
    _compiled._join([x])

    class Fails(_Kept):
        def wait(self, timeout=None):
            super().wait(timeout)
            raise RuntimeError("no")

    waited.clear()
    for work in (_Kept("first", waited), Fails("fails", waited), _Kept("last", waited)):
        _compiled._note([x], work)
    with pytest.raises(RuntimeError, match="no"):
        _compiled._join([x])
    assert waited == ["first", "fails"]
    _compiled._join([x])
    assert waited == ["first", "fails", "last"]


@pytest.mark.long
@pytest.mark.parametrize("size", [2, pytest.param(3, marks=longest)])
def test_programs(size):
    world = World(size, TORCHCOMMS_PATCH_FOR_COMPILE="1")
    try:
        world.run(_programs, ["aot_eager"], PROGRAMS)
        for name in ("_twice", "_rooted", "_unused") if size == 2 else ():  # inductor compiles C++, which takes a while
            world.run(_programs, ["inductor"], [name])
    finally:
        world.close()


def test_who_asks_for_it(monkeypatch):
    monkeypatch.delenv("TORCHCOMMS_COMPILE_IGNORE_PYTORCH_VERSION_REQUIREMENT", raising=False)
    monkeypatch.setenv("TORCHCOMMS_PATCH_FOR_COMPILE", "1")
    asked = functional.is_torch_compile_supported_and_enabled
    versions = {"2.11.1": False, "2.12.0.dev20260101+cpu": True, "2.12.0": True, "3.0": True}
    assert {v: asked(_current_version=v) for v in versions} == versions
    monkeypatch.setenv("TORCHCOMMS_COMPILE_IGNORE_PYTORCH_VERSION_REQUIREMENT", "1")
    assert asked(_current_version="2.6.0")
    monkeypatch.setenv("TORCHCOMMS_PATCH_FOR_COMPILE", "0")
    assert not asked()
