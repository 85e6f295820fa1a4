"""torch.distributed.config.use_torchcomms on tensors of devices."""

import pytest
from test_torchcomms_switch import pytestmark, run  # noqa: F401  (a mark is for the module that has it)


@pytest.mark.parametrize("backend", ["gloo", pytest.param("cpu:gloo,accinte:chorus", marks=pytest.mark.long)])
def test_programs(backend):
    run(2, "accinte", backend)
