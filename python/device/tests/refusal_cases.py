"""Arguments that kernels of the device refuse: a family of native_cases.py.

Such calls have the CPU's error, and a busy stream has the error of an idle one, at the call. While waits are looked for
(set_sync_debug_mode), every stream is treated as busy."""

import contextlib
import warnings

import opencl_device
import torch
from native_cases import moved, note, outcome, tensor
from torch.nn import functional as F

X = tensor(torch.float32, 3, 4)
WHOLE = torch.arange(12).reshape(3, 4)
FLAG = X > 0
Z = tensor(torch.complex64, 3, 4)
IMAGES = tensor(torch.float32, 2, 3, 6, 6)
UINT16 = WHOLE.to(torch.uint16)
AT, FAR = torch.tensor([0, 2]), torch.tensor([0, 7])

TYPES = {
    "difference of bool": (torch.sub, FLAG, FLAG),
    "rsub of bool": (torch.rsub, WHOLE, FLAG),
    "lerp of integers": (torch.lerp, WHOLE, WHOLE, WHOLE),
    "heaviside of two types": (torch.heaviside, X, WHOLE),
    "abs of bool": (torch.abs, FLAG),
    "> of complex numbers": (lambda x: x > 0, Z),
    "floor division of complex numbers": (lambda x: torch.div(x, x, rounding_mode="floor"), Z),
    "softmax of integers": (lambda x: torch.softmax(x, -1), WHOLE),
    "log_softmax of bool": (lambda x: torch.log_softmax(x, -1), FLAG),
    "layer_norm of integers": (lambda x: F.layer_norm(x, (4,)), WHOLE),
    "rms_norm of bool": (lambda x: torch.rms_norm(x, (4,)), FLAG),
    "batch_norm of integers": (lambda x: F.batch_norm(x, None, None, training=True), WHOLE),
    "group_norm of integers": (lambda x: F.group_norm(x, 2), WHOLE),
    "mean of integers": (torch.mean, WHOLE),
    "sort of complex numbers": (torch.sort, Z),
    "topk of complex numbers": (lambda x: torch.topk(x, 2), Z),
    "median of complex numbers": (torch.median, Z),
    "amax of complex numbers": (torch.amax, Z),
    "argmax of complex numbers": (torch.argmax, Z),
    "cummax of complex numbers": (lambda x: torch.cummax(x, 0), Z),
    "mm of bool": (lambda x: x @ x.t(), FLAG),
    "mm of two types": (lambda x, y: x @ y.t(), X, WHOLE),
    "bmm of bool": (lambda x: torch.bmm(x[None], x.t()[None]), FLAG),
    "conv2d of two types": (lambda x, w: F.conv2d(x, w), IMAGES, tensor(torch.float64, 1, 3, 2, 2)),
    "conv2d of bool": (lambda x: F.conv2d(x, x[:1, :, :2, :2]), IMAGES > 0),
    "max_pool2d of bool": (lambda x: F.max_pool2d(x, 2), IMAGES > 0),
    "avg_pool2d of bool": (lambda x: F.avg_pool2d(x, 2), IMAGES > 0),
    "interpolate of integers": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), IMAGES.long()),
    "grid_sample of integers": (lambda x: torch.grid_sampler_2d(x, x[:, :, :, :2].movedim(1, 3), 0, 0, False),
                                IMAGES[:, :2].long()),
    "cdist of integers": (torch.cdist, WHOLE, WHOLE),
    "nll_loss to floats": (F.nll_loss, X, torch.ones(3)),
    "mse_loss of bool": (F.mse_loss, FLAG, FLAG),
    "index_select by floats": (lambda x, at: x.index_select(0, at), X, AT.float()),
    "gather by floats": (lambda x, at: x.gather(0, at), X, X),
    "take by int32": (torch.take, X, AT.int()),
    "scatter of two types": (lambda x, at, y: x.scatter(0, at, y), X, WHOLE % 3, X.double()),
    "index_put of two types": (lambda x, at, y: x.index_put((at,), y), X, AT, X[:2].double()),
    "index_add of two types": (lambda x, at, y: x.index_add(0, at, y), X, AT, X[:2].double()),
    "masked_select by integers": (torch.masked_select, X, WHOLE),
    "normal_ of integers": (lambda x: x.clone().normal_(), WHOLE),
    "uniform_ of bool": (lambda x: x.clone().uniform_(), FLAG),
    "multinomial of integers": (lambda x: torch.multinomial(x, 2), WHOLE),
}  # fmt: skip

SHAPES = {
    "mm": (lambda x: x @ x, X),
    "addmm": (lambda x: torch.addmm(x, x, x.t()), X),
    "bmm": (lambda x: torch.bmm(x[None], x[None]), X),
    "cat": (lambda x: torch.cat([x, x[:, :2]]), X),
    "stack": (lambda x: torch.stack([x, x[:2]]), X),
    "softmax": (lambda x: torch.softmax(x, 5), X),
    "sum": (lambda x: x.sum(7), X),
    "amax of nothing": (lambda x: x[:0].amax(0), X),
    "topk": (lambda x: torch.topk(x, 9), X),
    "kthvalue": (lambda x: torch.kthvalue(x, 9), X),
    "layer_norm": (lambda x: F.layer_norm(x, (3,)), X),
    "group_norm": (lambda x: F.group_norm(x, 3), X),
    "conv2d": (lambda x: F.conv2d(x, x[:, :2, :2, :2]), IMAGES),
    "max_pool2d": (lambda x: F.max_pool2d(x, 9), IMAGES),
    "interpolate": (lambda x: F.interpolate(x, size=(0, 3)), IMAGES),
    "reflection padding": (lambda x: F.pad(x, (9, 9), mode="reflect"), IMAGES),
    "gather": (lambda x, at: x.gather(0, at), X, AT),
    "index_select": (lambda x, at: x.index_select(5, at), X, AT),
    "scatter": (lambda x, at: x.scatter(0, at, x[:1]), X, WHOLE % 3),
    "index_add": (lambda x, at: x.index_add(0, at, x), X, AT),
    "cdist": (lambda x: torch.cdist(x, x[:, :3]), X),
    "nll_loss": (F.nll_loss, X, AT),
    "repeat_interleave": (lambda x, n: torch.repeat_interleave(x, n, dim=0), X, AT),
    "_foreach_add": (lambda x: torch._foreach_add([x, x], [x]), X),
    "add": (lambda x: x + x[:, :3], X),
    "add to a result of integers": (lambda x, y: torch.add(x, x, out=y), X, WHOLE),
    "mm to a result of integers": (lambda x, y: torch.mm(x, x.t(), out=y), X, WHOLE),
}

# Elements of a type without kernels, so that the CPU finds the index.
PLACES = {
    "index_select": (lambda x, at: x.index_select(0, at), UINT16, FAR),
    "index": (lambda x, at: x[at], UINT16, FAR),
    "index_put": (lambda x, at: x.index_put((at,), x[:2]), UINT16, FAR),
    "gather": (lambda x, at: x.gather(0, at[:, None]), UINT16, FAR),
    "embedding": (F.embedding, FAR, UINT16),
    "take": (torch.take, UINT16, FAR + 20),
}

# Errors of the device's own, or with its name.
MIXED = {
    "a tensor of the host": (lambda x: torch.mm(x, torch.ones(4, 3)), X),
    "a sparse tensor of the host": (lambda x: torch.add(x, torch.ones(3, 4).to_sparse()), X),
    "a sparse result": (lambda x: torch.mul(x, x, out=torch.ones(3, 4).to_sparse()), X),
    "a sparse mask": (lambda x: torch.sum(x.sparse_mask(torch.ones(3, 4).to_sparse())), X),
    "an index out of range": (lambda x, at: x.index_select(0, at), X, FAR),
    "embedding by floats": (F.embedding, AT.float(), X),
}


@contextlib.contextmanager
def treated_as_busy():
    opencl_device.set_sync_debug_mode("warn")
    try:
        yield
    finally:
        opencl_device.set_sync_debug_mode("default")


def refuse(name, f, *arguments, own=False):
    """Both streams have the same error: the CPU's, unless it's one of the device's own."""
    want = outcome(f, arguments)[1]
    theirs = [moved(a) for a in arguments]
    opencl_device.synchronize()
    idle = outcome(f, theirs)[1]
    with treated_as_busy():
        busy = outcome(f, theirs)[1]
    if own:
        want = idle
    texts = [] if want is not None else [f"{name}: nothing refuses it"]
    for how, got in (("an idle", idle), ("a busy", busy)):
        if type(got) is not type(want) or str(got) != str(want):
            texts.append(f"{name} on {how} stream: {got!r}, not {want!r}")
    note(*texts)


def refusals(full):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opencl_device.use_philox()
        for kind, table in (("types", TYPES), ("shapes", SHAPES), ("places", PLACES), ("mixed", MIXED)):
            for name, (f, *arguments) in table.items():
                refuse(f"{kind}: {name}", f, *arguments, own=kind == "mixed")
        opencl_device.use_philox(False)
