"""TorchScript functions of PyTorch's operators: with tensors of the device, as with the CPU's."""

import warnings

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.jit_metaprogramming_utils import create_script_fn
from torch.utils._pytree import tree_map
from worlds import longest

D = "accinte"
PARTS = 8
RANDOM = ("rand", "empty", "bernoulli", "multinomial", "dropout", "normal", "exponential", "cauchy", "geometric",
          "rrelu", "uniform")  # fmt: skip
# A copy on another device has no more storage than its view; and tensor_split wants its indexes on the CPU, as on CUDA.
EXCEPT = {("as_strided", "partial_views"), ("tensor_split", "")}


class Unchecked:
    """A test case that accepts whatever PyTorch's function checks."""

    def __getattr__(self, name):
        return lambda *args, **kwargs: None


def on(device):
    return lambda x: x.to(device) if isinstance(x, torch.Tensor) else x


def scripted(name, kind, sample):
    torch.manual_seed(1)
    return create_script_fn(Unchecked(), name, kind)(sample[0], *sample[1], **sample[2])


@longest
@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_operators(part):
    """The first, third and sixth sample of each, as a function and as a method."""
    wrong, compared = [], 0
    for op in op_db[part::PARTS]:
        kinds = ["function", *(["method"] if op.get_method() is not None else [])]
        for dtype in (torch.float32, torch.int64):
            if dtype not in op.dtypes or (op.name, op.variant_test_name) in EXCEPT:
                continue
            samples = op.sample_inputs("cpu", dtype, requires_grad=False)
            samples = [(s.input, s.args, s.kwargs) for i, s in zip(range(6), samples, strict=False) if i in (0, 2, 5)]
            for kind, sample in ((k, s) for k in kinds for s in samples):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    try:
                        want = scripted(op.name, kind, sample)
                    except Exception:
                        continue  # TorchScript has it not, or not for these arguments
                    try:
                        got = tree_map(on("cpu"), scripted(op.name, kind, tree_map(on(D), sample)))
                        if not any(word in op.name for word in RANDOM):
                            torch.testing.assert_close(
                                got, want, rtol=1e-4, atol=1e-4, equal_nan=True, check_stride=False
                            )
                    except Exception as error:
                        wrong.append(f"{op.name} {dtype} {kind}: {type(error).__name__}: {error}")
                    compared += 1
    assert not wrong, "\n".join(wrong)
    assert compared > 300, compared
