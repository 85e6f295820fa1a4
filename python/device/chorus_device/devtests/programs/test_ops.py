"""Operators of PyTorch's database on the device: compared with the CPU and with NumPy, and in their other forms."""

import unittest

import torch
from torch.testing._internal.common_device_type import OpDTypes, instantiate_device_type_tests, ops
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase, run_tests, set_default_dtype, suppress_warnings
from torch.testing._internal.opinfo.core import OpInfo

from chorus_device import sweep
from chorus_device.devtests import opinfo

OPERATORS = opinfo.plain(op_db)
WITH_OUT = [op for op in OPERATORS if op.supports_out and op.name not in sweep.WITHOUT_FORMS]
IN_PLACE = [op for op in OPERATORS if op.inplace_variant and op.name not in sweep.WITHOUT_FORMS]
WITH_ERRORS = [op for op in OPERATORS if op.error_inputs_func is not None]
# PyTorch checks the references of elementwise operators and reductions otherwise.
WITH_REFERENCE = [op for op in op_db if type(op) is OpInfo and callable(op.ref)]
FORMS = (torch.float32, torch.int64, torch.bool, torch.complex64)


class TestCommon(TestCase):
    @suppress_warnings
    @ops(OPERATORS, dtypes=OpDTypes.supported)
    def test_compare_cpu(self, device, dtype, op):
        opinfo.compare(op, dtype, device)

    @suppress_warnings
    @ops(WITH_REFERENCE, allowed_dtypes=(torch.float64, torch.int64, torch.complex128))
    def test_numpy_ref(self, device, dtype, op):
        with set_default_dtype(torch.float64):
            for sample in op.reference_inputs("cpu", dtype):
                mine = opinfo.there(sample, device)
                got = op(mine.input, *mine.args, **mine.kwargs)
                given = sample.numpy()
                want = op.ref(given.input, *given.args, **given.kwargs)
                self.assertEqual(got, want, exact_device=False, exact_dtype=dtype is not torch.int64)


class TestGradients(TestCase):
    @suppress_warnings
    @ops([op for op in OPERATORS if op.supports_autograd], dtypes=OpDTypes.supported_backward)
    def test_compare_cpu(self, device, dtype, op):
        if not dtype.is_floating_point and not dtype.is_complex:
            raise unittest.SkipTest("integers have no gradients")
        opinfo.compare(op, dtype, device, backward=True)


class TestForms(TestCase):
    @suppress_warnings
    @ops(OPERATORS, allowed_dtypes=FORMS)
    def test_noncontiguous(self, device, dtype, op):
        opinfo.compare_form(op, dtype, device, sweep.LAYOUTS[1:])

    @suppress_warnings
    @ops(WITH_OUT, allowed_dtypes=FORMS)
    def test_out(self, device, dtype, op):
        for given in sweep.GIVEN:
            opinfo.compare_form(sweep.Form(op, given), dtype, device, [None])

    @suppress_warnings
    @ops(IN_PLACE, allowed_dtypes=FORMS)
    def test_inplace(self, device, dtype, op):
        opinfo.compare_form(sweep.Form(op, ""), dtype, device, [None, sweep.with_gaps])

    @suppress_warnings
    @ops(OPERATORS, allowed_dtypes=(torch.float32, torch.complex64))
    def test_views(self, device, dtype, op):
        opinfo.compare_views(op, dtype, device)

    @suppress_warnings
    @ops(WITH_ERRORS, dtypes=OpDTypes.none)
    def test_errors(self, device, op):
        opinfo.compare_errors(op, device)


for tests in (TestCommon, TestGradients, TestForms):
    instantiate_device_type_tests(tests, globals())

if __name__ == "__main__":
    run_tests()
