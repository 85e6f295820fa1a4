"""The tests use torch.device("zoom") through OpenCL: the library that CHORUS_OPENCL_LIBRARY names, else PoCL in
.venvs/opencl (make opencl), else what the machine has. CHORUS_ZOOM_DRIVER chooses another driver. The package need not
be installed."""

import gc
import os
import signal
import sys

import pytest

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell script's background jobs start with it ignored
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("CHORUS_ZOOM_DRIVER", "opencl")
sys.path[:0] = [os.path.dirname(__file__), os.path.join(os.path.dirname(__file__), "../../tests")]

import installed  # noqa: E402

installed.put()

import torch  # noqa: E402
from chorus_device._device import drain_autograd, make_kept_memory  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "long: make test-long runs it, and make test doesn't")
    config.addinivalue_line("markers", "anywhere: it needs no device")


def pytest_collection_modifyitems(items):
    if not torch.zoom.is_available():
        missing = pytest.mark.skip(reason="left out: no OpenCL driver is here; make opencl installs one")
        for item in items:
            if item.get_closest_marker("anywhere") is None:
                item.add_marker(missing)


@pytest.fixture(scope="session", autouse=True)
def _kept():
    if torch.zoom.is_available():
        make_kept_memory()


@pytest.fixture(autouse=True)
def _nothing_is_left():
    """Check that a test leaves no memory allocated and no stream with an error."""
    if not torch.zoom.is_available():
        yield
        return
    before = torch.zoom.memory_allocated()
    yield
    gc.collect()
    torch.zoom.clear_error(torch.zoom.default_stream())  # so that the next test doesn't see it
    torch.zoom.synchronize()
    if torch.zoom.memory_allocated() > before:
        drain_autograd()  # autograd's threads may hold some for a moment
    assert torch.zoom.memory_allocated() <= before, "more memory is allocated than before the test"
