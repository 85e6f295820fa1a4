"""``torch.linalg`` on zoom: PyTorch's CPU kernels compute it where the device has no library for it."""

import importlib.util
import pathlib

import chorus_device
import pytest
import torch
from test_zoom import D


@pytest.mark.long
def test_linear_algebra():
    path = pathlib.Path(__file__).parents[2] / "device" / "tests" / "linalg_cases.py"
    spec = importlib.util.spec_from_file_location("linalg_cases", path)
    cases = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cases)

    def calls():
        counts = chorus_device.operators().items()
        return sum(sum(n) for name, n in counts if name.partition(".")[0] == "aten::linalg_cholesky_ex")

    before = calls()
    assert cases.compare(D, sizes=(3,), batches=((2,),), dtypes=(torch.float64,)) > 40
    assert calls() >= before + 10
