"""The shared library and its C ABI, as capi/chorus.h describes it.

Importing this module loads libchorus.so. The library is loaded so that calls keep
the GIL (PyDLL) and gives it up itself for as long as it waits, because a wait
must take it back now and then to let signal handlers run: that's how Ctrl-C ends
a wait, with the exception that the handler raised.

Errors are raised by :func:`chorus.errors.last_error`; nothing here allocates or
copies tensors.
"""

from __future__ import annotations

import ctypes
import enum
import os
import pathlib
import struct
import threading
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_int32,
    c_int64,
    c_ssize_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

ABI_MAJOR = 1
ABI_MINOR = 0


class Status(enum.IntEnum):
    """How a call ended."""

    OK = 0
    INVALID_ARGUMENT = 1
    MISMATCH = 2
    TIMEOUT = 3
    PEER_LOST = 4
    ABORTED = 5
    UNSUPPORTED = 6
    INTERNAL = 7
    FINALIZED = 8
    CANCELED = 9
    OUT_OF_MEMORY = 10
    WORK_FAILED = 11
    PENDING = 16
    INTERRUPTED = 17
    PANICKED = 18
    FORKED = 19


# Plain integers from here on: they stand in the path of every operation, where an
# enumeration's members cost as much as the call.
NO_WORLD = -2  # the rank of a newcomer
OK, PENDING, INTERRUPTED, FORKED = 0, 16, 17, 19

BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64 = range(1, 10)
FLOAT16, BFLOAT16, FLOAT8_E4M3FN, FLOAT8_E5M2, FLOAT32, FLOAT64, COMPLEX64, COMPLEX128 = range(10, 18)

SEND, RECV, BROADCAST, ALL_REDUCE, REDUCE, ALL_GATHER, ALL_GATHER_SINGLE, ALL_GATHER_V = range(1, 9)
REDUCE_SCATTER, REDUCE_SCATTER_SINGLE, REDUCE_SCATTER_V = 9, 10, 11
ALL_TO_ALL, ALL_TO_ALL_SINGLE, ALL_TO_ALL_V_SINGLE, BARRIER, SCATTER, GATHER, GATHER_SINGLE = range(12, 19)

# Added to an operation's kind for Communicator.submit, d times: the call site is looked for from the d-th caller of submit's caller on.
CALLER = 256

SUM, PRODUCT, MIN, MAX, BAND, BOR, BXOR, AVG, PREMUL_SUM = range(1, 10)

PUT, GET, ACCUMULATE, FETCH_OP, COMPARE_AND_SWAP, SIGNAL, WAIT_SIGNAL, FENCE = range(1, 9)
CAN_WINDOW, CAN_SHARE, CAN_ABORT = 1, 2, 4

ANY = -1
EVENT_TIMING, EVENT_INTERPROCESS = 1, 2
SIGNAL_SLOTS = 64

# chorus_op, packed in one go: size kind dtype reduction, in in_count out out_count,
# root peer tag n_lists, ins outs in_splits out_splits, factor factor_data,
# timeout_ns, hints n_hints, source seq, site reserved.
OP = struct.Struct("=IiiiQqQqiiiiQQQQdQqQiiQII")


class Host(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("reserved", c_uint32),
        ("leave", c_void_p),
        ("enter", c_void_p),
        ("check", c_void_p),
        ("thread", c_uint64),
        ("interval_ns", c_int64),
    ]


class Python(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("reserved", c_uint32),
        ("view", c_void_p),
        ("as_integer", c_void_p),
        ("integer", c_void_p),
        ("failed", c_void_p),
        ("forget", c_void_p),
        ("call", c_void_p),
        ("code", c_void_p),
        ("instruction", c_void_p),
        ("back", c_void_p),
        ("drop", c_void_p),
        ("frame_at", c_void_p),
        ("site_of", c_void_p),
        ("stacks_signal", c_int32),
        ("stacks_fd", c_int32),
        ("ensure", c_void_p),
        ("release", c_void_p),
        ("held", c_void_p),
        ("inner", c_char_p),
    ]


class ErrorFacts(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("status", c_int32),
        ("message", c_char_p),
        ("comm", c_char_p),
        ("op", c_char_p),
        ("seq", c_uint64),
        ("rank", c_int32),
        ("peer", c_int32),
        ("detail", c_char_p),
        ("elapsed_ns", c_int64),
        ("missing", POINTER(c_int32)),
        ("arrived", POINTER(c_int32)),
        ("unknown", POINTER(c_int32)),
        ("n_missing", c_int32),
        ("n_arrived", c_int32),
        ("n_unknown", c_int32),
        ("rank_a", c_int32),
        ("rank_b", c_int32),
        ("reserved", c_int32),
        ("op_a", c_char_p),
        ("op_b", c_char_p),
    ]


class Hint(Structure):
    _fields_ = [("name", c_char_p), ("value", c_char_p)]


class CommOptions(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("rank", c_int32),
        ("world_size", c_int32),
        ("abort_on_error", c_int32),
        ("backend", c_char_p),
        ("device", c_char_p),
        ("name", c_char_p),
        ("store", c_uint64),
        ("timeout_ns", c_int64),
        ("hints", POINTER(Hint)),
        ("n_hints", c_int32),
        ("job_size", c_int32),
        ("job_ranks", POINTER(c_int32)),
    ]


class CommInfo(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("rank", c_int32),
        ("world_size", c_int32),
        ("capabilities", c_uint32),
        ("reductions", c_uint32),
        ("abort_on_error", c_int32),
        ("timeout_ns", c_int64),
        ("name", c_char_p),
        ("backend", c_char_p),
        ("device", c_char_p),
        ("local_size", c_int32),
        ("reserved", c_int32),
    ]


class SplitOptions(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("n_ranks", c_int32),
        ("ranks", POINTER(c_int32)),
        ("name", c_char_p),
        ("timeout_ns", c_int64),
        ("hints", POINTER(Hint)),
        ("n_hints", c_int32),
        ("reserved", c_int32),
    ]


class ReconfigureOptions(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("n_handles", c_int32),
        ("uuid", c_char_p),
        ("handles", POINTER(c_char_p)),
        ("any_order", c_int32),
        ("n_hints", c_int32),
        ("hints", POINTER(Hint)),
        ("timeout_ns", c_int64),
    ]


class RegroupOptions(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("n_without", c_int32),
        ("without", POINTER(c_int32)),
        ("with_", POINTER(c_char_p)),
        ("n_with", c_int32),
        ("at_least", c_int32),
        ("patience_ns", c_int64),
        ("timeout_ns", c_int64),
    ]


class WorkInfo(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("status", c_int32),
        ("source", c_int32),
        ("n_ops", c_int32),
        ("seq", c_uint64),
    ]


class WindowOp(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("kind", c_int32),
        ("rank", c_int32),
        ("slot", c_int32),
        ("offset", c_int64),
        ("data", c_void_p),
        ("count", c_int64),
        ("old", c_void_p),
        ("expected", c_void_p),
        ("reduction", c_int32),
        ("reserved", c_int32),
        ("timeout_ns", c_int64),
    ]


class WindowPeer(Structure):
    _fields_ = [("size", c_uint32), ("mapped", c_int32), ("count", c_int64)]


class DeviceInfo(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("index", c_int32),
        ("priorities", c_int32),
        ("host_access", c_int32),
        ("free_bytes", c_int64),
        ("total_bytes", c_int64),
        ("model", c_char_p),
    ]


class StreamInfo(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("priority", c_int32),
        ("capturing", c_int32),
        ("reserved", c_int32),
        ("id", c_int64),
        ("device", c_uint64),
    ]


class EventInfo(Structure):
    _fields_ = [("size", c_uint32), ("reserved", c_int32), ("id", c_int64), ("device", c_uint64)]


class Figure(Structure):
    _fields_ = [("name", c_char_p), ("value", c_int64)]


class Span(Structure):
    _fields_ = [("data", c_void_p), ("bytes", c_int64)]


class Op(Structure):
    """chorus_op, for tests of the layout; calls pack :data:`OP`."""

    _fields_ = [
        ("size", c_uint32),
        ("kind", c_int32),
        ("dtype", c_int32),
        ("reduction", c_int32),
        ("in_", c_void_p),
        ("in_count", c_int64),
        ("out", c_void_p),
        ("out_count", c_int64),
        ("root", c_int32),
        ("peer", c_int32),
        ("tag", c_int32),
        ("n_lists", c_int32),
        ("ins", c_void_p),
        ("outs", c_void_p),
        ("in_splits", c_void_p),
        ("out_splits", c_void_p),
        ("factor", c_double),
        ("factor_data", c_void_p),
        ("timeout_ns", c_int64),
        ("hints", c_void_p),
        ("n_hints", c_int32),
        ("source", c_int32),
        ("seq", c_uint64),
        ("site", c_uint32),
        ("reserved", c_uint32),
    ]


_KEYS = POINTER(c_char_p)
SET_FN = ctypes.CFUNCTYPE(c_int32, c_void_p, c_char_p, c_void_p, c_int64, c_void_p)
GET_FN = ctypes.CFUNCTYPE(c_int32, c_void_p, c_char_p, c_int64, c_void_p)
ADD_FN = ctypes.CFUNCTYPE(c_int32, c_void_p, c_char_p, c_int64, POINTER(c_int64), c_void_p)
WAIT_FN = ctypes.CFUNCTYPE(c_int32, c_void_p, _KEYS, c_int32, c_int64, c_void_p)
CHECK_FN = ctypes.CFUNCTYPE(c_int32, c_void_p, _KEYS, c_int32, POINTER(c_int32), c_void_p)
COMPARE_SET_FN = ctypes.CFUNCTYPE(c_int32, c_void_p, c_char_p, c_void_p, c_int64, c_void_p, c_int64, c_void_p)
REMOVE_FN = ctypes.CFUNCTYPE(c_int32, c_void_p, c_char_p, POINTER(c_int32), c_void_p)
NUM_KEYS_FN = ctypes.CFUNCTYPE(c_int32, c_void_p, POINTER(c_int64), c_void_p)
RELEASED_FN = ctypes.CFUNCTYPE(None, c_void_p)
ABORT_FN = ctypes.CFUNCTYPE(None, c_void_p, c_int32)
KERNEL_FN = ctypes.CFUNCTYPE(c_int32, c_void_p, POINTER(c_void_p))


class StoreCallbacks(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("reserved", c_uint32),
        ("user", c_void_p),
        ("set", SET_FN),
        ("get", GET_FN),
        ("add", ADD_FN),
        ("wait", WAIT_FN),
        ("check", CHECK_FN),
        ("compare_set", COMPARE_SET_FN),
        ("remove", REMOVE_FN),
        ("num_keys", NUM_KEYS_FN),
        ("released", RELEASED_FN),
    ]


# The functions of the header that this package calls: result, arguments.
_u64, _i64, _i32, _ptr, _str = c_uint64, c_int64, c_int32, c_void_p, c_char_p
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "abi_version": (c_uint32, []),
    "version": (_str, []),
    "backends": (_str, []),
    "set_host": (_i32, [POINTER(Host)]),
    "set_python": (_i32, [POINTER(Python)]),
    "python_submit": (_ptr, [_ptr, _ptr, c_ssize_t]),  # for _direct alone, which makes methods of these two
    "python_site": (_ptr, [_ptr, _ptr, c_ssize_t]),
    "site": (c_uint32, [_str, _i32, _str]),
    "raised": (_i32, [_str, _str, _i32, _str]),
    "last_error": (POINTER(ErrorFacts), []),
    "alloc": (_i32, [_i64, _i32, POINTER(_ptr)]),
    "free": (_i32, [_ptr]),
    "is_shared": (_i32, [_ptr, _i64]),
    "reply_value": (None, [_ptr, _str, _i64]),
    "reply_error": (None, [_ptr, _str]),
    "store_from_callbacks": (_i32, [POINTER(StoreCallbacks), POINTER(_u64)]),
    "store_open": (_i32, [_str, _i64, POINTER(_u64)]),
    "store_release": (_i32, [_u64]),
    "comm_create": (_i32, [POINTER(CommOptions), POINTER(_u64)]),
    "comm_get": (_i32, [_u64, POINTER(CommInfo)]),
    "comm_status": (_i32, [_u64]),
    "comm_split": (_i32, [_u64, POINTER(SplitOptions), POINTER(_u64)]),
    "comm_handle": (_i32, [_u64, POINTER(_str)]),
    "comm_reconfigure": (_i32, [_u64, POINTER(ReconfigureOptions), POINTER(_u64)]),
    "comm_regroup": (_i32, [_u64, POINTER(RegroupOptions), POINTER(_u64)]),
    "comm_set_timeout": (_i32, [_u64, _i64]),
    "comm_set_hints": (_i32, [_u64, POINTER(Hint), _i32]),
    "comm_abort": (_i32, [_u64, _str]),
    "comm_finalize": (_i32, [_u64, _i64]),
    "comm_release": (_i32, [_u64]),
    "submit": (_i32, [_u64, _ptr, _ptr]),
    "submit_batch": (_i32, [_u64, _ptr, _i32, _i64, _ptr]),
    "work_wait": (_i32, [_u64, _i64]),
    "work_test": (_i32, [_u64]),
    "work_get": (_i32, [_u64, POINTER(WorkInfo)]),
    "work_sources": (_i32, [_u64, POINTER(_i32), _i32]),
    "work_cancel": (_i32, [_u64]),
    "work_release": (_i32, [_u64]),
    "window_create": (_i32, [_u64, _ptr, _i64, _i32, POINTER(_u64)]),
    "window_submit": (_i32, [_u64, POINTER(WindowOp), POINTER(_u64)]),
    "window_map": (_i32, [_u64, _i32, POINTER(_ptr)]),
    "window_get": (_i32, [_u64, _i32, POINTER(WindowPeer)]),
    "window_close": (_i32, [_u64]),
    "register": (_i32, [_u64, _ptr, _i64]),
    "deregister": (_i32, [_u64, _ptr, _i64]),
    "on_abort": (_i32, [_u64, ABORT_FN, _ptr, POINTER(_u64)]),
    "hook_remove": (_i32, [_u64]),
    "device_types": (_str, []),
    "device_count": (_i32, [_str, POINTER(_i32)]),
    "device_open": (_i32, [_str, POINTER(_u64)]),
    "device_get": (_i32, [_u64, POINTER(DeviceInfo)]),
    "device_synchronize": (_i32, [_u64, _i64]),
    "device_alloc": (_i32, [_u64, _i64, _u64, POINTER(_ptr)]),
    "device_free": (_i32, [_ptr]),
    "device_memory_stats": (_i32, [_u64, POINTER(Figure), _i32, POINTER(_i32)]),
    "device_reset_peak_stats": (_i32, [_u64]),
    "device_reset_accumulated_stats": (_i32, [_u64]),
    "device_empty_cache": (_i32, [_u64]),
    "device_empty_host_cache": (_i32, [_u64]),
    "pin": (_i32, [_u64, _i64, POINTER(_ptr)]),
    "unpin": (_i32, [_ptr]),
    "stream_create": (_i32, [_u64, _i32, POINTER(_u64)]),
    "stream_release": (_i32, [_u64]),
    "stream_default": (_i32, [_u64, POINTER(_u64)]),
    "stream_set_current": (_i32, [_u64]),
    "stream_get": (_i32, [_u64, POINTER(StreamInfo)]),
    "stream_query": (_i32, [_u64]),
    "stream_synchronize": (_i32, [_u64, _i64]),
    "stream_recover": (_i32, [_u64, _i64]),
    "stream_wait_stream": (_i32, [_u64, _u64]),
    "stream_wait_event": (_i32, [_u64, _u64]),
    "stream_wait_work": (_i32, [_u64, _u64]),
    "stream_uses": (_i32, [_u64, _ptr]),
    "stream_copy": (_i32, [_u64, _ptr, _ptr, _i64]),
    "stream_fill": (_i32, [_u64, _ptr, _i64, _ptr, _i32]),
    "stream_launch": (_i32, [_u64, _str, POINTER(Span), _i32, KERNEL_FN, _ptr]),
    "event_create": (_i32, [_i32, POINTER(_u64)]),
    "event_handle": (_i32, [_u64, _u64, _ptr, _i64, POINTER(_i64)]),
    "event_open": (_i32, [_u64, _str, _i64, POINTER(_u64)]),
    "event_record": (_i32, [_u64, _u64]),
    "event_release": (_i32, [_u64]),
    "event_get": (_i32, [_u64, POINTER(EventInfo)]),
    "event_query": (_i32, [_u64]),
    "event_synchronize": (_i32, [_u64, _i64]),
    "event_elapsed": (_i32, [_u64, _u64, POINTER(c_double)]),
    "graph_begin": (_i32, [_u64]),
    "graph_begin_in": (_i32, [_u64, POINTER(_u64)]),
    "graph_end": (_i32, [_u64, POINTER(_u64)]),
    "graph_pool": (_i32, [_u64, POINTER(_u64)]),
    "graph_dump": (_i32, [_u64, _str]),
    "graph_replay": (_i32, [_u64, _u64]),
    "graph_release": (_i32, [_u64]),
}


def _path() -> str:
    path = pathlib.Path(__file__).with_name("libchorus.so")
    if path.exists():
        return str(path)
    raise ImportError(f"chorus: {path} is missing; `pip install ./python` builds it, with Go and a C compiler")


def _load() -> ctypes.PyDLL:
    if os.name != "posix":
        raise ImportError("chorus: only Linux is supported")
    library = ctypes.PyDLL(_path())
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, "chorus_" + name)
        function.restype, function.argtypes = result, arguments
    version: int = library.chorus_abi_version()
    if version >> 16 != ABI_MAJOR or version & 0xFFFF < ABI_MINOR:
        raise ImportError(
            f"chorus: {_path()} has ABI {version >> 16}.{version & 0xFFFF}; this package needs {ABI_MAJOR}.{ABI_MINOR}"
        )
    api = ctypes.pythonapi
    host = Host(
        size=ctypes.sizeof(Host),
        leave=ctypes.cast(api.PyEval_SaveThread, c_void_p).value,
        enter=ctypes.cast(api.PyEval_RestoreThread, c_void_p).value,
        check=ctypes.cast(api.PyErr_CheckSignals, c_void_p).value,
        thread=threading.main_thread().ident,  # signal handlers run nowhere else
    )
    if status := library.chorus_set_host(ctypes.byref(host)):
        raise ImportError(f"chorus: the library refused its host ({Status(status).name})")
    return library


library = _load()

# chorus_submit for arguments that were made into C's before, by :data:`ARGUMENT` and ctypes.byref: converting three
# takes as long as the call.
submit = library["chorus_submit"]
submit.restype = c_int32
ARGUMENT = c_uint64.from_param


def version() -> str:
    """The library's version."""
    text: bytes = library.chorus_version()
    return text.decode()


def hints(values: dict[str, str] | None) -> tuple[Any, int]:
    """An array of chorus_hint and its length; keep the array until the call is over."""
    if not values:
        return None, 0
    array = (Hint * len(values))()
    for i, (name, value) in enumerate(values.items()):
        if not isinstance(value, str):
            raise TypeError(f"chorus: hint {name}={value!r}: the values of hints are strings, not {type(value).__name__}")
        array[i].name, array[i].value = name.encode(), value.encode()
    return array, len(values)
