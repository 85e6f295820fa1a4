import gc
import os
import signal
import sys

import pytest

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell script's background jobs start with it ignored
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path[:0] = [os.path.dirname(__file__), os.path.join(os.path.dirname(__file__), "../../tests")]

import standins  # noqa: E402
import torch  # noqa: E402
from chorus_device._device import drain_autograd  # noqa: E402
from worlds import close_worlds, world_of  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "long: make test-long runs it, and make test doesn't")


@pytest.fixture(scope="session", autouse=True)
def _close_worlds():
    yield
    close_worlds()


@pytest.fixture(scope="session")
def standin_library(tmp_path_factory):
    """A libchorus.so that has the stand-ins for NCCL and for the drivers of GPUs."""
    library = tmp_path_factory.mktemp("standin") / "libchorus.so"
    standins.build(library)
    return library


@pytest.fixture(scope="session")
def standin(standin_library):
    """A server that runs programs with that library."""
    server = standins.server(standin_library)
    yield server
    server.close()


@pytest.fixture
def pair():
    return world_of(2)


@pytest.fixture(autouse=True)
def _nothing_is_left():
    """Check that a test leaves no memory allocated and no stream with an error, and reset device and streams."""
    before = [torch.accinte.memory_allocated(i) for i in range(torch.accinte.device_count())]
    yield
    gc.collect()
    for i in range(len(before)):  # clear an error that a test has left, so that the next test doesn't see it
        torch.accinte.clear_error(torch.accinte.default_stream(i))
    for i, bytes in enumerate(before):
        torch.accinte.synchronize(i)
        if torch.accinte.memory_allocated(i) > bytes:
            drain_autograd()  # autograd's threads may hold some for a moment
        assert torch.accinte.memory_allocated(i) <= bytes, f"device {i} has more memory allocated than before the test"
    device = torch.accinte.current_device()
    for i in range(len(before)):
        with torch.accinte.device(i):
            torch.accinte.set_stream(torch.accinte.default_stream(i))
    assert device == torch.accinte.current_device() == 0
