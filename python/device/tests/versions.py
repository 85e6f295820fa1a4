"""Marks of tests for which a PyTorch is too old, or too new."""

import pytest
import torch

VERSION = tuple(map(int, torch.__version__.split(".")[:2]))


def since(major, minor, why):
    """The test is for PyTorch from this version on; why the ones before can't pass it."""
    return pytest.mark.skipif(VERSION < (major, minor), reason=why)


def before(major, minor, why):
    """The test is for PyTorch before this version; why that can't pass it."""
    return pytest.mark.skipif(VERSION >= (major, minor), reason=why)
