"""Marks of tests that need a newer, or an older, PyTorch."""

import pytest
import torch

VERSION = tuple(map(int, torch.__version__.split(".")[:2]))


def since(major, minor, why):
    """Mark a test for PyTorch from this version on; ``why`` older versions can't pass it."""
    return pytest.mark.skipif(VERSION < (major, minor), reason=why)


def before(major, minor, why):
    """Mark a test for PyTorch before this version; ``why`` newer versions can't pass it."""
    return pytest.mark.skipif(VERSION >= (major, minor), reason=why)
