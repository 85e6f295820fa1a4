"""Registers a type of device with PyTorch: once in a process, as PyTorch has one place for devices from outside."""

from __future__ import annotations

import atexit
import importlib
import importlib.metadata
import os
import threading
import types
from typing import Any

import torch

from torch_accinte._on_import import when_imported

_plugged: str | None = None
_END_SECONDS = 5.0  # the deadline of autograd's threads at Python's end


def plug(name: str, *, driver: str, module: types.ModuleType, library: str | os.PathLike[str] | None = None) -> None:
    """Make ``torch.device(name)`` the devices of a driver of libchorus.so, and ``torch.<name>`` the module.

    ``library`` is the path of a libchorus.so with the driver in it, unless the one of the package chorus has it.

    Raises:
        RuntimeError: another device has PyTorch's place.
        ImportError: the extension can't be loaded. The library is loaded at the first use, which raises if it can't.
    """
    global _plugged
    if _plugged is not None:
        raise RuntimeError(
            f"PyTorch has one place for a device from outside, and {_plugged!r} has taken it in this process: "
            f"{name!r} can't have it as well"
        )
    atexit.register(_end)  # registered before chorus's handlers, which so run first and end what devices wait for
    from chorus import _libpath
    from chorus.backend import serve
    from torch_accinte import batchnorm, meta, random, sharing

    extension: Any = importlib.import_module("torch_accinte._C")
    if library is not None:
        _libpath.use(library)
    utils: Any = torch.utils
    register: Any = torch._register_device_module
    extension.start(_libpath.library(), name, driver, threading.main_thread().ident)
    _plugged = name
    meta.register(name)
    batchnorm.register()
    serve(name, driver)
    utils.rename_privateuse1_backend(name)
    complete(name, module)
    register(name, module)
    utils.generate_methods_for_privateuse1_backend(for_storage=True)
    exchange(name)
    sharing.register()
    when_imported("torch._dynamo.device_interface", _tell_dynamo)
    when_imported("torch.distributed.tensor._random", random.explain)


def _tell_dynamo(interfaces: types.ModuleType) -> None:
    from torch_accinte import dynamo

    dynamo.register(interfaces)


def _end() -> None:
    """Make autograd's threads drop their Python objects before the interpreter ends."""
    from torch_accinte import _device, accinte

    if accinte.is_initialized():
        _device.c().record_alloc_sites(False)  # recording takes the GIL
        _device.drain_autograd(_END_SECONDS)


def complete(name: str, module: types.ModuleType) -> None:
    """Add to a module the names with an underscore that PyTorch uses, unless it has its own: ``import *`` leaves them
    out. Make compiled programs use the device's generators."""
    from torch_accinte import accinte

    for attribute in ("_get_generator", "_is_in_bad_fork", "_lazy_init", "__getattr__"):
        vars(module).setdefault(attribute, getattr(accinte, attribute))
    compiled: Any = importlib.import_module("torch._functorch._aot_autograd.utils")
    if hasattr(compiled, "register_graphsafe_rng_device_type"):  # from PyTorch 2.13 on
        compiled.register_graphsafe_rng_device_type(name)


def exchange(name: str) -> None:
    """Let other libraries take the device's tensors by DLPack: PyTorch looks the device up by its old name only."""
    from torch.utils.dlpack import DLDeviceType

    tensor: Any = torch.Tensor
    others = tensor.__dlpack_device__

    def __dlpack_device__(self: Any) -> Any:
        return (DLDeviceType.kDLExtDev, self.device.index) if self.device.type == name else others(self)

    tensor.__dlpack_device__ = __dlpack_device__


class Failed(types.ModuleType):
    """The placeholder for the module of a device that could not be loaded: every use raises, and says why."""

    def __init__(self, name: str, cause: BaseException) -> None:
        super().__init__(f"torch.{name}", f"torch.device({name!r}), which could not be loaded.")
        self._name, self._cause = name, cause

    def is_available(self) -> bool:
        return False

    def device_count(self) -> int:
        return 0

    def is_initialized(self) -> bool:
        return False

    def _is_in_bad_fork(self) -> bool:
        return False

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        raise RuntimeError(f"torch.device({self._name!r}) can't be used: {self._cause}") from self._cause


def others() -> dict[str, importlib.metadata.EntryPoint]:
    """The installed packages with devices of their own: entry points of the group "torch_accinte.devices", whose
    modules call :func:`plug`."""
    return {e.name: e for e in importlib.metadata.entry_points(group="torch_accinte.devices")}


def load() -> None:
    """Plug in the device that TORCH_ACCINTE_DEVICE names, or the one that another package installs, else this package's
    own. It does nothing if a device is plugged in already.

    ``import torch`` calls it, unless TORCH_DEVICE_BACKEND_AUTOLOAD=0 is set; then the program calls it.

    Raises:
        RuntimeError: several devices are installed and none is named, or another device has PyTorch's place.
        ImportError: the device can't be loaded.
    """
    if _plugged is not None:
        return
    found = others()
    name = _wanted(found)
    if name in found:
        found[name].load()
    elif name == _own_name() and (len(found) < 2 or "TORCH_ACCINTE_DEVICE" in os.environ):
        own()
    else:
        names = ", ".join([_own_name(), *sorted(found)])
        raise RuntimeError(
            f"PyTorch has one place for a device from outside: set TORCH_ACCINTE_DEVICE to one of {names}"
        )


def _own_name() -> str:
    from torch_accinte.accinte import NAME

    return NAME


def _wanted(found: dict[str, importlib.metadata.EntryPoint]) -> str:
    return os.environ.get("TORCH_ACCINTE_DEVICE") or (next(iter(found)) if len(found) == 1 else _own_name())


def autoload() -> None:
    """:func:`load`, without an exception: ``import torch`` works even if it failed."""
    try:
        load()
    except Exception as cause:
        name = _wanted(others())
        setattr(torch, name, Failed(name, cause))


def own() -> None:
    """Plug this package's device in."""
    from torch_accinte import accinte

    plug(accinte.NAME, driver=accinte.NAME, module=accinte)
