"""Operators of PyTorch's database at zeros of both signs, infinity, NaN and numbers at the ends of their types."""

import torch
from torch.testing._internal.common_device_type import OpDTypes, instantiate_device_type_tests, ops
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase, run_tests, suppress_warnings

from chorus_device import sweep
from chorus_device.devtests import extremes, opinfo

OPERATORS = [op for op in opinfo.plain(op_db) if op.name not in sweep.UNDEFINED]
TYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128,
    torch.int64, torch.int32, torch.uint8,
)  # fmt: skip


class TestExtremes(TestCase):
    @suppress_warnings
    @ops(OPERATORS, dtypes=OpDTypes.supported, allowed_dtypes=TYPES)
    def test_forward(self, device, dtype, op):
        extremes.compare(op, dtype, device)

    @suppress_warnings
    @ops([op for op in OPERATORS if op.supports_autograd], dtypes=OpDTypes.supported_backward, allowed_dtypes=TYPES[:6])
    def test_backward(self, device, dtype, op):
        extremes.compare(op, dtype, device, backward=True)

    @suppress_warnings
    @ops([op for op in OPERATORS if op.supports_sparse], dtypes=OpDTypes.supported, allowed_dtypes=TYPES[:6])
    def test_sparse(self, device, dtype, op):
        extremes.compare(op, dtype, device, sparse=True)


instantiate_device_type_tests(TestExtremes, globals())

if __name__ == "__main__":
    run_tests()
