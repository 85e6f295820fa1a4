"""Collectives on tensors with one call from Python into the library: chorus_python_submit.

The library reads Python's integers with Python's own functions, and PyTorch's tensors with DLPack's exchange API, which
PyTorch has from 2.10 on. With older versions, and for tensors that the library doesn't take, operations use
:meth:`Communicator.run`.
"""

from __future__ import annotations

import atexit
import ctypes
import operator
import sys
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_int, c_uint32, c_void_p, py_object
from typing import Any

import torch

from chorus import _devices, _lib, _sites, _streams
from chorus.errors import check

OTHERWISE = -1  # CHORUS_PYTHON_OTHERWISE
_METH_FASTCALL = 0x80


class _Exchange(ctypes.Structure):
    """DLPackExchangeAPI of DLPack 1.3. ``others`` are its functions for whole tensors, which are not used here."""

    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("previous", c_void_p),
        ("others", c_void_p * 3),
        ("view", c_void_p),
    ]


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = [("name", c_char_p), ("function", c_void_p), ("flags", c_int), ("doc", c_char_p)]


def _address(function: Any) -> int | None:
    return ctypes.cast(function, c_void_p).value


def _view() -> int | None:
    """PyTorch's function that describes a tensor; None if it has none."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    pointer = ctypes.PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    exchange = _Exchange.from_address(pointer(capsule, b"dlpack_exchange_api"))
    return exchange.view if exchange.major == 1 else None


# The library has the addresses of these.
_KEPT = (sys._getframe, _sites.site_of, ":".join(_sites.INNER).encode(), operator.attrgetter("dtype"))


def _python() -> _lib.Python:
    """Python's functions and objects that the library needs."""
    api = ctypes.pythonapi
    functions = _lib.Python(
        size=ctypes.sizeof(_lib.Python),
        view=_view(),
        as_integer=_address(api.PyLong_AsLongLong),
        integer=_address(api.PyLong_FromLongLong),
        failed=_address(api.PyErr_Occurred),
        forget=_address(api.PyErr_Clear),
    )
    if hasattr(api, "PyFrame_GetLasti"):  # Python 3.11
        functions.call = _address(api.PyObject_Vectorcall)
        functions.code = _address(api.PyFrame_GetCode)
        functions.instruction = _address(api.PyFrame_GetLasti)
        functions.back = _address(api.PyFrame_GetBack)
        functions.drop = _address(api.Py_DecRef)
        functions.frame_at, functions.site_of = id(_KEPT[0]), id(_KEPT[1])
        functions.dtype_of, functions.int8, functions.uint8 = id(_KEPT[3]), id(torch.int8), id(torch.uint8)
    functions.inner = _KEPT[2]
    functions.ensure = _address(api.PyGILState_Ensure)
    functions.release = _address(api.PyGILState_Release)
    functions.held = _address(api.PyGILState_Check)
    functions.stacks_signal, functions.stacks_fd = _sites.register()
    return functions


def _leave() -> None:
    """Stop the writing of stacks before Python ends."""
    _PYTHON.stacks_signal = 0
    _lib.library.chorus_set_python(ctypes.byref(_PYTHON))


def _fast(name: bytes, function: Any) -> _Method:
    return _Method(name, _address(function), _METH_FASTCALL, None)


_PYTHON = _python()
check(_lib.library.chorus_set_python(ctypes.byref(_PYTHON)))
atexit.register(_leave)
POSSIBLE = bool(_PYTHON.view)  # the library can read tensors
_METHODS = {  # by whether they take the host's tensors, and the device's
    (True, False): _fast(b"submit", _lib.library.chorus_python_submit),
    (False, True): _fast(b"submit", _lib.library.chorus_python_submit_bound),
    (True, True): _fast(b"submit", _lib.library.chorus_python_submit_either),
}
_GPU = _fast(b"submit", _lib.library.chorus_python_submit_gpu)
_WAIT = _fast(b"wait", _lib.library.chorus_python_wait_gpu)
_SITE = _fast(b"site", _lib.library.chorus_python_site)
_new: Any = ctypes.PYFUNCTYPE(py_object, POINTER(_Method), py_object, c_void_p)(("PyCFunction_NewEx", ctypes.pythonapi))


# site(callers): the call site of an operation that the caller begins; the search starts so many callers above.
site: Callable[[int], int] = _new(ctypes.byref(_SITE), 0, None)
_wait: Callable[[int, int, int], int] = _new(ctypes.byref(_WAIT), 0, None)


def otherwise(*_: Any) -> int:
    """The ``submit`` of a communicator without a fast path: it does nothing."""
    return OTHERWISE


def submit_of(handle: int, host: bool, device: torch.device | None) -> Callable[..., int]:
    """``submit(kind, reduction, root, timeout_ns, callers, issue[, out[, in]])`` of a communicator, for tensors of the
    host, of a device or of either. It returns a status or OTHERWISE. With ``issue`` it issues the operation and returns
    the operation's handle, OTHERWISE, or ``-1 - status``.

    The search for the call site begins with submit's caller, or with one that is ``callers`` above.
    OTHERWISE means that nothing was done, and that the caller must use :meth:`Communicator.run`. The caller has checked
    that the tensors are of type ``torch.Tensor`` itself, and not ``is_neg()``.
    """
    foreign = device is not None and _streams.foreign(device)
    method = _GPU if foreign else _METHODS.get((host, device is not None))
    if not POSSIBLE or method is None or foreign and host:
        return otherwise
    submit: Callable[..., int] = _new(ctypes.byref(method), handle, None)
    if not foreign:
        return submit

    assert device is not None
    place = _devices.place_of(device)

    def on_current(
        kind: int, reduction: int, root: int, timeout_ns: int, callers: int, issue: bool, *tensors: Any
    ) -> int:
        native, beside = _streams.taken(device)
        try:
            return submit(place, native, kind, reduction, root, timeout_ns, callers + 1, issue, *tensors)
        finally:
            if beside is not None and not issue:
                beside.lead()

    return on_current


def wait_for(work: int, device: torch.device) -> int:
    """Let the current stream of a device wait for an operation, by its handle; returns a status."""
    native, beside = _streams.taken(device, waits=False)
    if not native:
        return int(_lib.library.chorus_stream_wait_work(0, work))
    status = _wait(_devices.place_of(device), native, work)
    if beside is not None:
        beside.lead()
    return status
