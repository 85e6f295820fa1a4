"""PyTorch's tests of its inductor, test/inductor/test_torchinductor.py of a checkout, for the device that is
plugged in: a program of ``python -m chorus_device.devtests``.

The variable TORCHINDUCTOR_TESTS has the file's path. A test that fails on the device runs on the CPU as well, and is
skipped if it doesn't pass there: it lacks something of the machine, or says what Triton's programs look like.
"""

import importlib.util
import os
import unittest

import torch
from torch.testing._internal import inductor_utils

NAME = torch._C._get_privateuse1_backend_name()
inductor_utils.GPU_TYPE = NAME

path = os.environ["TORCHINDUCTOR_TESTS"]
spec = importlib.util.spec_from_file_location("test_torchinductor", path)
theirs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(theirs)
theirs.is_triton_backend = lambda device: False


class OnCPU(theirs.TestCase):
    common = theirs.check_model
    device = "cpu"


class DeviceTests(theirs.TestCase):
    common = theirs.check_model_gpu
    device = device_type = NAME


theirs.copy_tests(theirs.CommonTemplate, OnCPU, "cpu")
theirs.copy_tests(theirs.CommonTemplate, DeviceTests, NAME)


def _beside_the_cpu(test, name):
    def run(self):
        try:
            test(self)
        except unittest.SkipTest:
            raise
        except Exception:
            beside = unittest.TestResult()
            OnCPU(name)(beside)
            if beside.failures or beside.errors or beside.skipped or beside.expectedFailures:
                self.skipTest("it doesn't pass on the CPU")
            raise

    run.__dict__.update(test.__dict__)
    return run


for _name, _test in list(vars(DeviceTests).items()):
    if _name.startswith("test_"):
        setattr(DeviceTests, _name, _beside_the_cpu(_test, f"{_name.removesuffix(NAME)}cpu"))
