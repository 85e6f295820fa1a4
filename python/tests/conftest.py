import os
import signal
import sys

import pytest

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ.setdefault("OMP_NUM_THREADS", "1")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell script's background jobs start with it ignored
sys.path.insert(0, os.path.dirname(__file__))

from worlds import close_worlds, longest, world_of  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "long: make test-long runs it, and make test doesn't")


@pytest.fixture(scope="session", autouse=True)
def _close_worlds():
    yield
    close_worlds()


SIZES = [1, pytest.param(2, marks=pytest.mark.long), 3, pytest.param(4, marks=[pytest.mark.long, longest])]


@pytest.fixture(params=SIZES, ids=lambda n: f"world{n}")
def world(request):
    return world_of(request.param)


@pytest.fixture
def pair():
    return world_of(2)
