"""The device that is plugged in, as a type of device of PyTorch's tests: for the variable TORCH_TEST_DEVICES.

Classes of tests get names that end in PRIVATEUSEONE, and their tests ``_privateuseone``, whatever the device's name.
PyTorch runs this file within torch.testing._internal.common_device_type, so that DeviceTypeTestBase is there.
"""

from __future__ import annotations

from typing import Any

import torch

NAME = torch._C._get_privateuse1_backend_name()


class _DeviceType:
    """The type by which PyTorch names classes; for tests that run, the device's own name."""

    def __get__(self, test: Any, of: Any) -> str:
        return "privateuseone" if test is None else NAME


class NamedTestBase(DeviceTypeTestBase):  # type: ignore[name-defined,misc]  # noqa: F821
    device_type = _DeviceType()
    device_mod = getattr(torch, NAME, None)
    primary_device = f"{NAME}:0"

    @classmethod
    def get_primary_device(cls) -> str:
        return cls.primary_device

    @classmethod
    def get_all_devices(cls) -> list[str]:
        return [f"{NAME}:{i}" for i in range(cls.device_mod.device_count() if cls.device_mod else 1)]


TEST_CLASS = NamedTestBase
