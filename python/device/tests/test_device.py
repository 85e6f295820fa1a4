import threading

import pytest
import torch
from versions import since


def test_devices():
    assert torch.accinte.is_available() and torch.accinte.device_count() == 2
    assert torch.accelerator.current_accelerator() == torch.device("accinte")
    assert torch.device("accinte").index is None and torch.device("accinte", 1).index == 1
    assert torch._C._get_privateuse1_backend_name() == "accinte"
    x = torch.empty(2, device="accinte")
    assert x.is_accinte and x.device == torch.device("accinte:0") and x.accinte(1).device.index == 1
    assert torch.nn.Linear(2, 2).accinte().weight.is_accinte
    assert x.untyped_storage().is_accinte and x.type() == "torch.accinte.FloatTensor"


def test_names_of_types():
    kind = torch.accinte.FloatTensor
    x = kind([1, 2.5])
    assert x.is_accinte and x.dtype == torch.float32 and x.tolist() == [1, 2.5]
    assert isinstance(x, kind) and not isinstance(x.cpu(), kind) and not isinstance(x, torch.accinte.HalfTensor)
    assert kind(2, 3).shape == (2, 3) and kind().shape == (0,) and torch.accinte.LongTensor([1]).dtype == torch.int64
    for wanted in (kind, "torch.accinte.FloatTensor"):
        y = torch.arange(3).type(wanted)
        assert isinstance(y, kind) and y.tolist() == [0, 1, 2]
    assert repr(kind) == "<class 'torch.accinte.FloatTensor'>"
    with pytest.raises(AttributeError):
        torch.accinte.QuantumTensor


def test_current_device():
    with torch.accinte.device(1):
        assert torch.accinte.current_device() == 1
        assert torch.empty(1, device="accinte").device.index == 1
        with torch.accelerator.device_index(0), torch.accinte.device(None), torch.accinte.device(-1):
            assert torch.accelerator.current_device_index() == 0
        with torch.accinte.device_of(torch.empty(1, device="accinte:0")):
            assert torch.accinte.current_device() == 0
        seen = []
        thread = threading.Thread(target=lambda: seen.append(torch.accinte.current_device()))
        thread.start()
        thread.join()
        assert seen == [0]  # each thread has its own current device
    assert torch.accinte.current_device() == 0
    torch.accinte.set_device(-1)
    for bad in (2, 100):
        with pytest.raises(RuntimeError, match=r"device index is out of range. It must be in \[0, 2\), but got"):
            torch.accinte.set_device(bad)
    with pytest.raises(RuntimeError, match="out of range"):
        torch.empty(1, device="accinte:2")
    with pytest.raises(RuntimeError):
        with torch.accinte.device(1):
            raise RuntimeError
    assert torch.accinte.current_device() == 0


def test_peers():
    assert torch.accinte.can_device_access_peer(0, 1) and not torch.accinte.can_device_access_peer("accinte:1", 1)
    with pytest.raises(RuntimeError, match="out of range"):
        torch.accinte.can_device_access_peer(0, 2)


@since(2, 13, "PyTorch doesn't ask")
def test_capability():
    supported = torch.accelerator.get_device_capability("accinte")["supported_dtypes"]
    assert torch.accinte.get_device_capability() == (0, 0)  # it has no generations of hardware
    assert torch.accinte.get_device_properties(1).uuid != (p := torch.accinte.get_device_properties(0)).uuid
    assert p.multi_processor_count >= 1 and p.host_access and p.library == ""
    assert {torch.complex32, torch.quint8, torch.float64} <= supported


def test_rules_of_registration():
    torch.utils.rename_privateuse1_backend("accinte")
    with pytest.raises(RuntimeError, match="has already been set"):
        torch.utils.rename_privateuse1_backend("other")
    with pytest.raises(RuntimeError, match="Expected one of cpu"):
        torch._register_device_module("other", torch.accinte)
    with pytest.raises(RuntimeError, match="The runtime module of"):
        torch._register_device_module("accinte", torch.accinte)
    with pytest.raises(RuntimeError, match="The custom device module of"):
        torch.utils.generate_methods_for_privateuse1_backend()
