"""Synchronous collectives on tensors with one call from Python into the library: chorus_python_submit.

The library understands Python's integers, by Python's own functions, and PyTorch's tensors, by the exchange API of DLPack
that PyTorch 2.10 and later have. Before, and for tensors that it doesn't take, operations go by :meth:`Communicator.run`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_int, c_uint32, c_void_p, py_object
from typing import Any

import torch

from chorus import _lib
from chorus.errors import check

OTHERWISE = -1  # CHORUS_PYTHON_OTHERWISE
_METH_FASTCALL = 0x80


class _Exchange(ctypes.Structure):
    """DLPackExchangeAPI of DLPack 1.3; of its functions all but one for whole tensors, which are not used here."""

    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("previous", c_void_p), ("others", c_void_p * 3), ("view", c_void_p)]


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = [("name", c_char_p), ("function", c_void_p), ("flags", c_int), ("doc", c_char_p)]


def _method() -> _Method | None:
    """What Python needs to know of chorus_python_submit; None if PyTorch can't tell the library what a tensor is."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    api = ctypes.pythonapi
    pointer = ctypes.PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", api))
    exchange = _Exchange.from_address(pointer(capsule, b"dlpack_exchange_api"))
    if exchange.major != 1 or not exchange.view:
        return None

    def address(function: Any) -> int | None:
        return ctypes.cast(function, c_void_p).value

    functions = _lib.Python(
        size=ctypes.sizeof(_lib.Python),
        view=exchange.view,
        as_integer=address(api.PyLong_AsLongLong),
        integer=address(api.PyLong_FromLongLong),
        failed=address(api.PyErr_Occurred),
        forget=address(api.PyErr_Clear),
    )
    check(_lib.library.chorus_set_python(ctypes.byref(functions)))
    return _Method(b"submit", address(_lib.library.chorus_python_submit), _METH_FASTCALL, None)


_METHOD = _method()
POSSIBLE = _METHOD is not None
_new: Any = ctypes.PYFUNCTYPE(py_object, POINTER(_Method), py_object, c_void_p)(("PyCFunction_NewEx", ctypes.pythonapi))


def otherwise(*_: Any) -> int:
    """The ``submit`` of a communicator that does nothing by it."""
    return OTHERWISE


def submit_of(handle: int | None) -> Callable[..., int]:
    """``submit(kind, reduction, root, timeout_ns[, out[, in]])`` of a communicator of the host, which returns a status or OTHERWISE.

    OTHERWISE means that nothing was done, and that :meth:`Communicator.run` is to be used. The caller has made sure that the
    tensors are of type ``torch.Tensor`` itself, and not ``is_neg()``.
    """
    submit: Callable[..., int] = otherwise if _METHOD is None or handle is None else _new(ctypes.byref(_METHOD), handle, None)
    return submit
