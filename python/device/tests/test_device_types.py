"""PyTorch's own form of tests for all types of device, with which a vendor's tests are written."""

import torch
from torch.testing._internal.common_device_type import (
    deviceCountAtLeast,
    dtypes,
    instantiate_device_type_tests,
    ops,
    skipMeta,
)  # fmt: skip
from torch.testing._internal.common_methods_invocations import unary_ufuncs
from torch.testing._internal.common_utils import TestCase, run_tests

seen = []


class TestTypes(TestCase):
    @dtypes(torch.float32, torch.int64, torch.bfloat16)
    def test_arithmetic(self, device, dtype):
        seen.append(device)
        x = torch.arange(7, device=device, dtype=dtype)
        self.assertEqual((x + x).cpu(), torch.arange(7, dtype=dtype) * 2)
        self.assertEqual(x.device, torch.device(device))

    @deviceCountAtLeast(2)
    def test_two(self, devices):
        x = torch.ones(3, device=devices[0]).to(devices[1])
        self.assertEqual(str(x.device), devices[1])

    @skipMeta
    @ops([op for op in unary_ufuncs if op.name in ("sin", "exp", "abs")], allowed_dtypes=[torch.float32])
    def test_operators(self, device, dtype, op):
        for sample in op.sample_inputs(device, dtype):
            got = op(sample.input, *sample.args, **sample.kwargs)
            self.assertEqual(got.cpu(), op(sample.input.cpu(), *sample.args, **sample.kwargs))


instantiate_device_type_tests(TestTypes, globals(), only_for=("cpu", "accinte"))
names = {name for name in globals() if name.startswith("TestTypes")}


def test_made_for_the_device():
    assert names == {"TestTypesCPU", "TestTypesPRIVATEUSE1"}
    made = [name for name in dir(globals()["TestTypesPRIVATEUSE1"]) if "_accinte" in name]
    assert len(made) == 3 + 1 + 3, made
    assert {torch.device(d).type for d in seen} == {"cpu", "accinte"}  # their classes run before this test


if __name__ == "__main__":
    run_tests()
