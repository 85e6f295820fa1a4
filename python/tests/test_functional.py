import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from table import data, same, total
from torch.nn.parallel import DistributedDataParallel
from training import compare, model, steps


def _collectives(x, group):
    rank = dist.get_rank(group)
    a = funcol.all_reduce(x, "sum", group)
    b = funcol.all_gather_tensor(x, 0, group)
    c = funcol.reduce_scatter_tensor(b, "sum", 0, group)
    d = funcol.all_to_all_single(b, None, None, group)
    e = funcol.broadcast(x * (rank + 1), 0, group)
    f, g = funcol.all_reduce_coalesced([x, x + 1], "max", group)
    (h,) = funcol.all_gather_into_tensor_coalesced([x], group)
    (i,) = funcol.reduce_scatter_tensor_coalesced([b], "sum", [0], group)
    return [t + 0 for t in (a, b, c, d, e, f, g, h, i)]


def _eager(peers):
    x = data(peers.rank, torch.float32, 12).reshape(4, 3)
    for ours, theirs in zip(_collectives(x, dist.group.WORLD), _collectives(x, peers.gloo), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert same(
        _collectives(x, dist.group.WORLD)[0],
        total([data(r, torch.float32, 12) for r in range(peers.size)]).reshape(4, 3),
    )


def test_eager(world):
    world.run(_eager)


def _compiled(peers, backend):
    x = data(peers.rank, torch.float32, 12).reshape(4, 3)
    compiled = torch.compile(_collectives, backend=backend, fullgraph=True)
    for ours, theirs in zip(compiled(x, dist.group.WORLD), _collectives(x, peers.gloo), strict=True):
        torch.testing.assert_close(ours, theirs)

    def step(x, w):
        y = funcol.all_reduce(x @ w, "sum", dist.group.WORLD)
        dist.all_reduce(x)  # traced as well
        return y * 2 + x.sum()

    w = torch.ones(3, 3)
    torch.testing.assert_close(torch.compile(step, backend=backend)(x.clone(), w), step(x.clone(), w))


def test_compiled(pair):
    pair.run(_compiled, "aot_eager")


def _train(peers, group):
    module = model()
    ddp = DistributedDataParallel(module, process_group=group)
    return steps(torch.compile(ddp, backend="aot_eager"), module.parameters, peers.rank)


def _compiled_training(peers):
    compare(_train(peers, dist.group.WORLD), _train(peers, peers.gloo), peers.size)


def test_compiled_training(pair):
    pair.run(_compiled_training)


def _autograd(peers):
    from torch.distributed.nn.functional import all_gather, all_reduce

    for group in (dist.group.WORLD, peers.gloo):
        x = data(peers.rank, torch.float32, 5).requires_grad_()
        all_reduce(x * 2, group=group).sum().backward()
        assert x.grad.tolist() == [2.0 * peers.size] * 5
    y = data(peers.rank, torch.float32, 5).requires_grad_()
    torch.cat(all_gather(y)).sum().backward()
    assert y.grad.tolist() == [float(peers.size)] * 5


def test_autograd(pair):
    pair.run(_autograd)
