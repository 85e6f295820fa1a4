"""Registers a type of device with PyTorch: once in a process, as PyTorch has one place for devices from outside."""

from __future__ import annotations

import atexit
import importlib
import importlib.metadata
import os
import sys
import threading
import types
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from chorus_device._on_import import when_imported

VARIABLE = "CHORUS_TORCH_DEVICE"  # names the device if several are installed

_plugged: str | None = None
failure: Exception | None = None  # why autoload has plugged no device in
_END_SECONDS = 5.0  # the deadline of autograd's threads at Python's end


def plug(
    name: str,
    *,
    driver: str | Sequence[str],
    module: types.ModuleType,
    library: str | os.PathLike[str] | None = None,
    title: str = "",
    philox: bool = False,
) -> None:
    """Make ``torch.device(name)`` the devices of a driver of libchorus.so, and ``torch.<name>`` the module. Of several
    drivers it's the first that has a device, which is found out at the first use.

    ``library`` is the path of a libchorus.so with the driver in it, unless the one of the package chorus has it.
    ``title`` is the device's name in messages that say "CUDA" for CUDA; by default it's ``name``. With ``philox``
    random numbers are those of CUDA from the beginning, as after ``use_philox()``.

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
    from chorus import _libpath, _patches
    from chorus.backend import serve
    from chorus_device import _device, batchnorm, drawing, meta, namespace, random, sharing

    extension: Any = importlib.import_module("chorus_device._C")
    if library is not None:
        _libpath.use(library)
    utils: Any = torch.utils
    register: Any = torch._register_device_module
    drivers = [driver] if isinstance(driver, str) else list(driver)
    extension.start(_libpath.library(), name, drivers, threading.main_thread().ident)
    extension.compile_by(compile_command(_libpath.library()))
    extension.use_philox(philox)
    _plugged, _device.title = name, title or name
    meta.register(name)
    batchnorm.register()
    serve(name, drivers[0] if len(drivers) == 1 else extension.driver, begun=namespace._begun)
    utils.rename_privateuse1_backend(name)
    complete(name, module)
    _make_room(name)
    register(name, module)
    utils.generate_methods_for_privateuse1_backend(for_storage=True)
    exchange(name)
    _patches.apply("barrier", name)
    sharing.register()
    when_imported("torch._dynamo.device_interface", _tell_dynamo)
    when_imported("torch._inductor.compile_fx", drawing.install)
    when_imported("torch.distributed.tensor._random", random.explain)


def _make_room(name: str) -> None:
    """Forget that the device wasn't found when PyTorch was imported: the program has imported it since."""
    global failure
    if isinstance(getattr(torch, name, None), Failed):
        delattr(torch, name)
        failure = None


def compile_command(library: str) -> list[str]:
    """The command whose process compiles kernels of OpenCL, so that a compiler that crashes takes nothing along. It's
    empty where Python is within another program, whose file isn't an interpreter's."""
    if not sys.executable or not os.path.basename(sys.executable).lower().startswith(("python", "pypy")):
        return []
    from chorus import _libpath

    script = os.path.join(os.path.dirname(os.path.abspath(_libpath.__file__)), "opencl_compiler.py")
    return [sys.executable, "-I", "-S", script, os.path.abspath(library)]


def _tell_dynamo(interfaces: types.ModuleType) -> None:
    from chorus_device import dynamo

    dynamo.register(interfaces)


def _end() -> None:
    """Make autograd's threads drop their Python objects before the interpreter ends."""
    from chorus_device import _device, namespace

    if namespace.is_initialized():
        _device.c().record_alloc_sites(False)  # recording takes the GIL
        _device.drain_autograd(_END_SECONDS)


def complete(name: str, module: types.ModuleType) -> None:
    """Add to a module the names with an underscore that PyTorch uses, unless it has its own: ``import *`` leaves them
    out. Make compiled programs use the device's generators."""
    from chorus_device import namespace

    for attribute in ("_get_generator", "_is_in_bad_fork", "_lazy_init", "__getattr__"):
        vars(module).setdefault(attribute, getattr(namespace, attribute))
    for part in ("amp", "graphs", "jiterator", "memory", "random"):  # for "import torch.<name>.memory"
        if isinstance(found := vars(module).get(part), types.ModuleType):
            sys.modules.setdefault(f"torch.{name}.{part}", found)
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


def installed() -> tuple[dict[str, importlib.metadata.EntryPoint], dict[str, importlib.metadata.EntryPoint]]:
    """The installed packages with devices, by the devices' names, and those with emulated devices: entry points of the
    groups "chorus_device.devices" and "chorus_device.emulated". Their modules call :func:`plug` when they're imported.
    """
    found = importlib.metadata.entry_points()
    devices, emulated = ({e.name: e for e in found.select(group=f"chorus_device.{g}")} for g in ("devices", "emulated"))
    return devices, emulated


def load() -> None:
    """Plug in the device that CHORUS_TORCH_DEVICE names, else the only one that is installed. Emulated devices count
    only if there is no other. It does nothing if a device is plugged in already.

    ``import torch`` calls it, unless TORCH_DEVICE_BACKEND_AUTOLOAD=0 is set; then the program calls it.

    Raises:
        RuntimeError: no device is installed, or several are and none is named, or the named one isn't, or another
            device has PyTorch's place.
        ImportError: the device can't be loaded.
    """
    if _plugged is None:
        _load(*installed())


def _load(
    devices: dict[str, importlib.metadata.EntryPoint], emulated: dict[str, importlib.metadata.EntryPoint]
) -> None:
    every, names = {**emulated, **devices}, _candidates(devices, emulated)
    if len(names) == 1 and names[0] in every:
        every[names[0]].load()
    elif every:
        raise RuntimeError(_unclear(sorted(every)))
    else:
        raise RuntimeError("there is no device to plug in: no package with one is installed")


def _unclear(every: list[str]) -> str:
    """Why it isn't clear which of the installed devices is meant, and what makes it so."""
    set_it = f"set {VARIABLE} to one of {', '.join(every)}"
    if named := os.environ.get(VARIABLE):
        return f"no installed package has a device {named!r}, which {VARIABLE} names: {set_it}"
    return f"PyTorch has one place for a device from outside: {set_it}"


def _candidates(devices: Iterable[str], emulated: Iterable[str]) -> list[str]:
    """The names of the devices that may be meant: one if it's clear which."""
    named = os.environ.get(VARIABLE)
    return [named] if named else list(devices) or list(emulated)


def autoload() -> None:
    """:func:`load`, without an exception: ``import torch`` works even if it failed."""
    global failure
    if _plugged is not None:
        return
    found = installed()
    try:
        _load(*found)
    except Exception as cause:
        failure = cause
        for name in _candidates(*found):
            setattr(torch, name, Failed(name, cause))
