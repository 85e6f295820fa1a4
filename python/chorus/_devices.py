"""The backends' names, and the devices whose tensors they take."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch

NAME, ACCL, MPI = "chorus", "accl", "mpi"
NAMES = (NAME, ACCL)
# Backends of the library that enqueue operations on a device by themselves, and take no other tensors.
LIBRARIES = ("nccl", "ncclx", "rccl")
# Drivers of devices beside the CPU, by PyTorch's names for the types; or functions that find a driver at the first use.
drivers: dict[str, str | Callable[[], str]] = {}
# Whether the program has begun to use a device, by the same names; not for devices whose streams PyTorch makes.
begun: dict[str, Callable[[], bool]] = {}
_places: dict[torch.device, int] = {}
_untouchable: dict[torch.device, bool] = {}


def served() -> list[str]:
    """The types of device beside the CPU whose tensors these backends take."""
    return list(drivers)


def device_named(name: str) -> tuple[torch.device | None, int]:
    """PyTorch's device for the library's name of it, and its number in the library; None and 0 for the CPU, and for
    devices that PyTorch doesn't have."""
    driver, _, index = name.partition(":")
    for kind, theirs in drivers.items():  # one that isn't found yet has made no communicator
        if theirs == driver:
            device = torch.device(kind, int(index))
            return device, place_of(device)
    return None, 0


def driver_of(name: str) -> str:
    """The library's driver for PyTorch's name of a type of device."""
    driver = drivers[name]
    if not isinstance(driver, str):
        driver = drivers[name] = driver()
    return driver


def named(device: torch.device) -> str:
    """The library's name of a device."""
    return f"{driver_of(device.type)}:{device.index}"


def untouchable(device: torch.device) -> bool:
    """Whether the process can't touch the device's memory, so that the host carries operations out on copies."""
    known = _untouchable.get(device)
    if known is None:
        from chorus import _lib
        from chorus.errors import check

        info = _lib.DeviceInfo(size=ctypes.sizeof(_lib.DeviceInfo))
        check(_lib.library.chorus_device_get(place_of(device), ctypes.byref(info)))
        known = _untouchable[device] = not info.views
    return known


def place_of(device: torch.device) -> int:
    """A device's number in the library."""
    place = _places.get(device)
    if place is None:
        from chorus import _lib
        from chorus.errors import check

        handle = ctypes.c_uint64()
        check(_lib.library.chorus_device_open(named(device).encode(), ctypes.byref(handle)))
        place = _places[device] = handle.value
    return place
