"""The declarations of capi/chorus.h: constants, structs, types of callbacks, and functions.

Written by capi/gen; don't edit. The header has the explanations.
"""

from __future__ import annotations

import enum
import struct
from ctypes import (
    CFUNCTYPE,
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

# Plain integers: they stand in the path of every operation, where an enumeration's members cost as much as the call.
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
BOOL = 1
UINT8 = 2
UINT16 = 3
UINT32 = 4
UINT64 = 5
INT8 = 6
INT16 = 7
INT32 = 8
INT64 = 9
FLOAT16 = 10
BFLOAT16 = 11
FLOAT8_E4M3FN = 12
FLOAT8_E5M2 = 13
FLOAT32 = 14
FLOAT64 = 15
COMPLEX64 = 16
COMPLEX128 = 17
SEND = 1
RECV = 2
BROADCAST = 3
ALL_REDUCE = 4
REDUCE = 5
ALL_GATHER = 6
ALL_GATHER_SINGLE = 7
ALL_GATHER_V = 8
REDUCE_SCATTER = 9
REDUCE_SCATTER_SINGLE = 10
REDUCE_SCATTER_V = 11
ALL_TO_ALL = 12
ALL_TO_ALL_SINGLE = 13
ALL_TO_ALL_V_SINGLE = 14
BARRIER = 15
SCATTER = 16
GATHER = 17
GATHER_SINGLE = 18
SCAN = 19
SUM = 1
PRODUCT = 2
MIN = 3
MAX = 4
BAND = 5
BOR = 6
BXOR = 7
AVG = 8
PREMUL_SUM = 9
PUT = 1
GET = 2
ACCUMULATE = 3
FETCH_OP = 4
COMPARE_AND_SWAP = 5
SIGNAL = 6
WAIT_SIGNAL = 7
FENCE = 8
CAN_WINDOW = 1
CAN_SHARE = 2
CAN_ABORT = 4
CAN_ANY_SOURCE = 8
CAN_TAG = 16
CAN_THREADS = 32
CAN_REGISTER = 64
CAN_NOTHING = 128
KERNEL_ELEMENTWISE = 1
KERNEL_REDUCE = 2
KERNEL_SCAN = 3
KERNEL_SOFTMAX = 4
KERNEL_NORM = 5
KERNEL_MATMUL = 6
KERNEL_TRIANGLE = 7
KERNEL_RANGE = 8
KERNEL_INDEX = 9
KERNEL_SORT = 10
KERNEL_SEARCH = 11
KERNEL_COUNT = 12
KERNEL_CHOOSE = 13
KERNEL_ROLL = 14
KERNEL_FOREACH = 20
KERNEL_FOREACH_REDUCE = 21
KERNEL_OPTIMIZE = 22
KERNEL_UNSCALE = 23
KERNEL_UPDATE_SCALE = 24
KERNEL_CONVOLUTION = 32
KERNEL_POOL = 33
KERNEL_UPSAMPLE = 34
KERNEL_PAD = 35
KERNEL_GRID_SAMPLE = 36
KERNEL_ATTENTION = 37
KERNEL_BATCH_NORM = 38
KERNEL_BAG = 39
KERNEL_DISTANCE = 40
KERNEL_NLL = 41
KERNEL_SCALED_MATMUL = 42
KERNEL_SPARSE_MATMUL = 43
KERNEL_RANDOM = 48
COMPLEX_TO_COMPLEX = 0
REAL_TO_COMPLEX = 1
COMPLEX_TO_REAL = 2
CHOLESKY = 0
CHOLESKY_SOLVE = 1
LU = 2
LU_SOLVE = 3
QR = 4
QR_VECTORS = 5
EIGEN = 6
SVD = 7
TRIANGULAR = 8
QR_PRODUCT = 9
AS_IS = 0
TRANSPOSE = 1
CONJUGATE_TRANSPOSE = 2
ABI_MAJOR = 1
ABI_MINOR = 0
ANY = -1
SIGNAL_SLOTS = 64
HOST = 1
BOUND = 2
EVENT_TIMING = 1
EVENT_INTERPROCESS = 2
MAX_RANKS = 1 << 20
MAX_BATCH = 1 << 20
MAX_HINTS = 256
NO_WORLD = -2
ABORT_BEHIND = 2
PYTHON_OTHERWISE = -1


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


# The operations' names, and which of them one rank has a part of its own in.
OPERATIONS = {
    SEND: "send",
    RECV: "recv",
    BROADCAST: "broadcast",
    ALL_REDUCE: "all_reduce",
    REDUCE: "reduce",
    ALL_GATHER: "all_gather",
    ALL_GATHER_SINGLE: "all_gather_single",
    ALL_GATHER_V: "all_gather_v",
    REDUCE_SCATTER: "reduce_scatter",
    REDUCE_SCATTER_SINGLE: "reduce_scatter_single",
    REDUCE_SCATTER_V: "reduce_scatter_v",
    ALL_TO_ALL: "all_to_all",
    ALL_TO_ALL_SINGLE: "all_to_all_single",
    ALL_TO_ALL_V_SINGLE: "all_to_all_v_single",
    BARRIER: "barrier",
    SCATTER: "scatter",
    GATHER: "gather",
    GATHER_SINGLE: "gather_single",
    SCAN: "scan",
}
ROOTED = frozenset((BROADCAST, REDUCE, SCATTER, GATHER, GATHER_SINGLE))
WINDOW_OPERATIONS = {
    PUT: "put",
    GET: "get",
    ACCUMULATE: "accumulate",
    FETCH_OP: "fetch_op",
    COMPARE_AND_SWAP: "compare_and_swap",
    SIGNAL: "signal",
    WAIT_SIGNAL: "wait_signal",
    FENCE: "fence",
}


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


class Error(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("status", c_int32),
        ("message", c_char_p),
        ("comm", c_char_p),
        ("op", c_char_p),
        ("seq", c_uint64),
        ("reporter", c_int32),
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
        ("by", c_int32),
        ("op_a", c_char_p),
        ("op_b", c_char_p),
    ]


class DeviceInfo(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("index", c_int32),
        ("priorities", c_int32),
        ("host_access", c_int32),
        ("free_bytes", c_int64),
        ("total_bytes", c_int64),
        ("model", c_char_p),
        ("views", c_int32),
        ("blocking", c_int32),
        ("library", c_char_p),
        ("units", c_int32),
        ("major", c_int32),
        ("minor", c_int32),
        ("uuid", c_char_p),
    ]


class Figure(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("value", c_int64),
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


class Span(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("bytes", c_int64),
    ]


TASK_FN = CFUNCTYPE(c_int32, c_void_p, POINTER(c_void_p), c_void_p)


OVER_FN = CFUNCTYPE(None, c_void_p)


class Random(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("kind", c_int32),
        ("dtype", c_int32),
        ("given", c_int32),
        ("memory", c_void_p),
        ("n", c_int64),
        ("a", c_double),
        ("b", c_double),
        ("first", c_int64),
        ("last", c_int64),
        ("probabilities", c_void_p),
        ("probabilities_dtype", c_int32),
        ("reserved", c_int32),
        ("seed", c_uint64),
        ("offset", c_uint64),
        ("generator", c_uint64),
    ]


class Draw(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("reserved", c_int32),
        ("words", c_uint64),
        ("seed", c_uint64),
        ("offset", c_uint64),
        ("state", c_void_p),
        ("generator", c_uint64),
    ]


class EventInfo(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("reserved", c_int32),
        ("id", c_int64),
        ("device", c_uint64),
    ]


class Activity(Structure):
    _fields_ = [
        ("kind", c_int32),
        ("device", c_int32),
        ("stream", c_int64),
        ("start_ns", c_int64),
        ("end_ns", c_int64),
        ("bytes", c_int64),
        ("correlation", c_uint64),
        ("name", c_char_p),
    ]


ACTIVITY_FN = CFUNCTYPE(None, c_void_p, POINTER(Activity))


class Attributes(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("kind", c_int32),
        ("index", c_int32),
        ("remote", c_int32),
        ("base", c_void_p),
        ("bytes", c_int64),
    ]


class Number(Structure):
    _fields_ = [
        ("real", c_double),
        ("imag", c_double),
        ("integer", c_int64),
        ("is_integer", c_int32),
        ("reserved", c_int32),
    ]


class Operand(Structure):
    _fields_ = [
        ("memory", c_void_p),
        ("sizes", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("number", POINTER(Number)),
        ("dims", c_int32),
        ("dtype", c_int32),
    ]


class Kernel(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("kind", c_int32),
        ("op", c_int32),
        ("compute", c_int32),
        ("n_outs", c_int32),
        ("n_ins", c_int32),
        ("n_numbers", c_int32),
        ("n_integers", c_int32),
        ("outs", POINTER(Operand)),
        ("ins", POINTER(Operand)),
        ("numbers", POINTER(Number)),
        ("integers", POINTER(c_int64)),
        ("bad", c_void_p),
    ]


class Source(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("source", c_int32),
        ("rows", c_int32),
        ("n_pointers", c_int32),
        ("n_integers", c_int32),
        ("units", c_int64),
        ("pointers", POINTER(c_void_p)),
        ("integers", POINTER(c_int64)),
    ]


class KernelInfo(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("off", c_int32),
        ("compiled", c_int64),
        ("from_disk", c_int64),
        ("refused", c_int64),
        ("launched", c_int64),
        ("multiplied", c_int64),
        ("varies", c_int32),
        ("reserved", c_int32),
        ("transformed", c_int64),
        ("solved", c_int64),
    ]


class FftDim(Structure):
    _fields_ = [
        ("size", c_int64),
        ("in_", c_int64),
        ("out", c_int64),
    ]


class Fft(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("kind", c_int32),
        ("dtype", c_int32),
        ("inverse", c_int32),
        ("dims", c_int32),
        ("reserved", c_int32),
        ("dim", POINTER(FftDim)),
        ("in_", c_void_p),
        ("out", c_void_p),
        ("count", c_int64),
        ("in_next", c_int64),
        ("out_next", c_int64),
    ]


class FftInfo(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("dims", c_int32),
        ("align", c_int32),
        ("spoils", c_int32),
        ("plans", c_int64),
        ("most_plans", c_int64),
    ]


class Columns(Structure):
    _fields_ = [
        ("ptr", c_void_p),
        ("pitch", c_int64),
        ("next", c_int64),
    ]


class Solve(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("kind", c_int32),
        ("dtype", c_int32),
        ("upper", c_int32),
        ("vectors", c_int32),
        ("all", c_int32),
        ("op", c_int32),
        ("right", c_int32),
        ("unit", c_int32),
        ("reserved", c_int32),
        ("rows", c_int64),
        ("columns", c_int64),
        ("others", c_int64),
        ("count", c_int64),
        ("a", POINTER(Columns)),
        ("b", POINTER(Columns)),
        ("u", POINTER(Columns)),
        ("v", POINTER(Columns)),
        ("values", POINTER(Columns)),
        ("factors", POINTER(Columns)),
        ("pivots", POINTER(Columns)),
        ("info", c_void_p),
    ]


SET_FN = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_void_p, c_int64, c_void_p)


GET_FN = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_int64, c_void_p)


ADD_FN = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_int64, POINTER(c_int64), c_void_p)


WAIT_FN = CFUNCTYPE(c_int32, c_void_p, POINTER(c_char_p), c_int32, c_int64, c_void_p)


CHECK_FN = CFUNCTYPE(c_int32, c_void_p, POINTER(c_char_p), c_int32, POINTER(c_int32), c_void_p)


COMPARE_SET_FN = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_void_p, c_int64, c_void_p, c_int64, c_void_p)


REMOVE_FN = CFUNCTYPE(c_int32, c_void_p, c_char_p, POINTER(c_int32), c_void_p)


NUM_KEYS_FN = CFUNCTYPE(c_int32, c_void_p, POINTER(c_int64), c_void_p)


RELEASED_FN = CFUNCTYPE(None, c_void_p)


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


class Hint(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("value", c_char_p),
    ]


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
        ("name_again", c_int32),
        ("reserved", c_int32),
        ("beside", c_uint64),
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
        ("mapped", c_uint64),
        ("staged", c_uint64),
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
        ("beside", c_uint64),
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


class Buffer(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("count", c_int64),
    ]


class Op(Structure):
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
        ("in_splits", POINTER(c_int64)),
        ("out_splits", POINTER(c_int64)),
        ("factor", c_double),
        ("factor_data", c_void_p),
        ("timeout_ns", c_int64),
        ("hints", POINTER(Hint)),
        ("n_hints", c_int32),
        ("source", c_int32),
        ("seq", c_uint64),
        ("site", c_uint32),
        ("reserved", c_uint32),
        ("device", c_uint64),
    ]


# chorus_op, packed in one go.
OP = struct.Struct("=IiiiQqQqiiiiQQQQdQqQiiQIIQ")


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
        ("dtype_of", c_void_p),
        ("int8", c_void_p),
        ("uint8", c_void_p),
    ]


class WorkInfo(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("status", c_int32),
        ("source", c_int32),
        ("n_ops", c_int32),
        ("seq", c_uint64),
    ]


DONE_FN = CFUNCTYPE(None, c_void_p, c_int32)


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
    _fields_ = [
        ("size", c_uint32),
        ("mapped", c_int32),
        ("count", c_int64),
    ]


ABORT_FN = CFUNCTYPE(None, c_void_p, c_int32)


class Completion(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("status", c_int32),
        ("kind", c_int32),
        ("dtype", c_int32),
        ("root", c_int32),
        ("peer", c_int32),
        ("tag", c_int32),
        ("reduction", c_int32),
        ("async_", c_int32),
        ("reserved", c_int32),
        ("id", c_uint64),
        ("seq", c_uint64),
        ("bytes", c_int64),
        ("algorithm", c_char_p),
    ]


COMPLETION_FN = CFUNCTYPE(None, c_void_p, POINTER(Completion))


# The functions, without their common prefix: result, arguments.
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "abi_version": (c_uint32, []),
    "version": (c_char_p, []),
    "backends": (c_char_p, []),
    "set_host": (c_int32, [POINTER(Host)]),
    "last_error": (POINTER(Error), []),
    "alloc": (c_int32, [c_int64, c_int32, POINTER(c_void_p)]),
    "free": (c_int32, [c_void_p]),
    "is_shared": (c_int32, [c_void_p, c_int64]),
    "device_count": (c_int32, [c_char_p, POINTER(c_int32)]),
    "compile_apart": (c_int32, [POINTER(c_char_p), c_int32]),
    "device_open": (c_int32, [c_char_p, POINTER(c_uint64)]),
    "device_get": (c_int32, [c_uint64, POINTER(DeviceInfo)]),
    "device_peer_capable": (c_int32, [c_uint64, c_uint64, POINTER(c_int32)]),
    "cache_alloc": (c_int32, [c_uint64, c_int64, c_uint64, POINTER(c_void_p), POINTER(c_void_p)]),
    "cache_free": (c_int32, [c_uint64, c_void_p]),
    "cache_uses": (c_int32, [c_uint64, c_void_p, c_uint64]),
    "pin": (c_int32, [c_uint64, c_int64, POINTER(c_void_p)]),
    "unpin": (c_int32, [c_void_p]),
    "device_memory_stats": (c_int32, [c_uint64, POINTER(Figure), c_int32, POINTER(c_int32)]),
    "device_reset_peak_stats": (c_int32, [c_uint64]),
    "device_reset_accumulated_stats": (c_int32, [c_uint64]),
    "device_host_stats": (c_int32, [c_uint64, POINTER(Figure), c_int32, POINTER(c_int32)]),
    "device_reset_peak_host_stats": (c_int32, [c_uint64]),
    "device_reset_accumulated_host_stats": (c_int32, [c_uint64]),
    "cache_empty": (c_int32, [c_uint64]),
    "device_empty_host_cache": (c_int32, [c_uint64]),
    "stream_create": (c_int32, [c_uint64, c_int32, POINTER(c_uint64)]),
    "stream_release": (c_int32, [c_uint64]),
    "stream_adopt": (c_int32, [c_uint64, c_uint64, POINTER(c_uint64)]),
    "stream_native": (c_int32, [c_uint64, POINTER(c_uint64)]),
    "stream_default": (c_int32, [c_uint64, POINTER(c_uint64)]),
    "stream_current": (c_int32, [c_uint64, POINTER(c_uint64)]),
    "stream_set_current": (c_int32, [c_uint64]),
    "stream_get": (c_int32, [c_uint64, POINTER(StreamInfo)]),
    "stream_query": (c_int32, [c_uint64]),
    "stream_await": (c_int32, [c_uint64, c_int64]),
    "device_await": (c_int32, [c_uint64, c_int64]),
    "stream_recover": (c_int32, [c_uint64, c_int64]),
    "stream_synchronize": (c_int32, [c_uint64, c_int64]),
    "device_synchronize": (c_int32, [c_uint64, c_int64]),
    "event_synchronize": (c_int32, [c_uint64, c_int64]),
    "stream_wait_stream": (c_int32, [c_uint64, c_uint64]),
    "stream_wait_event": (c_int32, [c_uint64, c_uint64]),
    "stream_copy": (c_int32, [c_uint64, c_void_p, c_void_p, c_int64]),
    "stream_task": (c_int32, [c_uint64, c_char_p, POINTER(Span), c_int32, TASK_FN, OVER_FN, c_void_p]),
    "stream_random": (c_int32, [c_uint64, POINTER(Random)]),
    "random_set": (c_int32, [c_uint64, c_uint64, c_uint64]),
    "random_get": (c_int32, [c_uint64, POINTER(c_uint64), POINTER(c_uint64)]),
    "random_take": (c_int32, [c_uint64, POINTER(Draw)]),
    "generator_create": (c_int32, [c_uint64, c_uint64, c_uint64, POINTER(c_uint64)]),
    "generator_set": (c_int32, [c_uint64, c_uint64, c_uint64]),
    "generator_get": (c_int32, [c_uint64, POINTER(c_uint64), POINTER(c_uint64)]),
    "generator_release": (c_int32, [c_uint64]),
    "event_create": (c_int32, [c_int32, POINTER(c_uint64)]),
    "event_handle": (c_int32, [c_uint64, c_uint64, c_void_p, c_int64, POINTER(c_int64)]),
    "event_open": (c_int32, [c_uint64, c_void_p, c_int64, POINTER(c_uint64)]),
    "event_record": (c_int32, [c_uint64, c_uint64]),
    "event_release": (c_int32, [c_uint64]),
    "event_get": (c_int32, [c_uint64, POINTER(EventInfo)]),
    "event_query": (c_int32, [c_uint64]),
    "event_await": (c_int32, [c_uint64, c_int64]),
    "event_elapsed": (c_int32, [c_uint64, c_uint64, POINTER(c_double)]),
    "graph_begin": (c_int32, [c_uint64]),
    "graph_end": (c_int32, [c_uint64, POINTER(c_uint64)]),
    "graph_begin_in": (c_int32, [c_uint64, POINTER(c_uint64)]),
    "graph_pool": (c_int32, [c_uint64, POINTER(c_uint64)]),
    "graph_begin_with": (c_int32, [c_uint64, POINTER(c_uint64), POINTER(c_uint64), c_int32]),
    "graph_dump": (c_int32, [c_uint64, c_char_p]),
    "graph_replay": (c_int32, [c_uint64, c_uint64]),
    "graph_release": (c_int32, [c_uint64]),
    "device_set_fraction": (c_int32, [c_uint64, c_double]),
    "device_record_history": (c_int32, [c_uint64, c_int64]),
    "device_snapshot": (c_int32, [c_uint64, c_char_p]),
    "cache_came": (c_int32, [c_uint64, c_void_p, POINTER(c_uint32), c_int32]),
    "pool_new": (c_int32, [POINTER(c_uint64)]),
    "pool_of": (c_int32, [c_char_p, c_uint64, POINTER(c_uint64)]),
    "library_open": (c_int32, [c_char_p]),
    "nccl_alloc": (c_void_p, [c_int64, c_int32, c_void_p]),
    "nccl_free": (None, [c_void_p, c_int64, c_int32, c_void_p]),
    "ncclx_alloc": (c_void_p, [c_int64, c_int32, c_void_p]),
    "ncclx_free": (None, [c_void_p, c_int64, c_int32, c_void_p]),
    "rccl_alloc": (c_void_p, [c_int64, c_int32, c_void_p]),
    "rccl_free": (None, [c_void_p, c_int64, c_int32, c_void_p]),
    "pool_begin": (c_int32, [c_uint64, POINTER(c_uint64)]),
    "pool_end": (c_int32, [c_uint64, POINTER(c_uint64)]),
    "pool_release": (c_int32, [c_uint64, POINTER(c_uint64)]),
    "memory_handle": (c_int32, [c_uint64, c_void_p, c_void_p, c_int64, POINTER(c_int64), POINTER(c_int64)]),
    "memory_open": (c_int32, [c_uint64, c_void_p, c_int64, POINTER(c_void_p)]),
    "memory_close": (c_int32, [c_uint64, c_void_p]),
    "profile_start": (c_int32, [c_char_p]),
    "profile_stop": (c_int32, [c_char_p, ACTIVITY_FN, c_void_p]),
    "profile_range": (c_int32, [c_char_p, c_char_p, c_int32, c_int64, c_int64]),
    "profile_write": (c_int32, [c_char_p, c_char_p]),
    "attributes_of": (c_int32, [c_uint64, c_void_p, POINTER(Attributes)]),
    "view": (c_int32, [c_uint64, c_void_p, c_int64, POINTER(c_void_p)]),
    "stream_pooled": (c_int32, [c_uint64, c_int32, POINTER(c_uint64)]),
    "stream_of": (c_int32, [c_uint64, c_int64, POINTER(c_uint64)]),
    "stream_enter": (c_int32, [c_uint64, c_char_p]),
    "stream_turn": (c_int32, [c_uint64, c_char_p]),
    "stream_leave": (c_int32, [c_uint64]),
    "kernel_find": (c_int32, [c_int32, c_char_p, POINTER(c_int32)]),
    "kernel_run": (c_int32, [c_uint64, POINTER(Kernel)]),
    "source_add": (c_int32, [c_char_p, POINTER(c_int32)]),
    "source_run": (c_int32, [c_uint64, POINTER(Source)]),
    "kernel_get": (c_int32, [c_uint64, POINTER(KernelInfo)]),
    "tune_set": (c_int32, [c_int32, c_int32, c_int32, c_int32]),
    "tune_add": (c_int32, [c_char_p]),
    "tune_results": (c_int32, [POINTER(c_char_p)]),
    "fft_run": (c_int32, [c_uint64, POINTER(Fft)]),
    "fft_get": (c_int32, [c_uint64, POINTER(FftInfo)]),
    "fft_plans": (c_int32, [c_uint64, c_int64]),
    "solve_run": (c_int32, [c_uint64, POINTER(Solve)]),
    "solve_get": (c_int32, [c_uint64, c_int32]),
    "blas_handle": (c_int32, [c_uint64, POINTER(c_void_p)]),
    "reply_value": (None, [c_void_p, c_void_p, c_int64]),
    "reply_error": (None, [c_void_p, c_char_p]),
    "store_from_callbacks": (c_int32, [POINTER(StoreCallbacks), POINTER(c_uint64)]),
    "store_open": (c_int32, [c_char_p, c_int64, POINTER(c_uint64)]),
    "store_release": (c_int32, [c_uint64]),
    "comm_create": (c_int32, [POINTER(CommOptions), POINTER(c_uint64)]),
    "comm_get": (c_int32, [c_uint64, POINTER(CommInfo)]),
    "comm_bind": (c_int32, [c_uint64, c_uint64]),
    "comm_status": (c_int32, [c_uint64]),
    "comm_split": (c_int32, [c_uint64, POINTER(SplitOptions), POINTER(c_uint64)]),
    "comm_handle": (c_int32, [c_uint64, POINTER(c_char_p)]),
    "comm_reconfigure": (c_int32, [c_uint64, POINTER(ReconfigureOptions), POINTER(c_uint64)]),
    "comm_regroup": (c_int32, [c_uint64, POINTER(RegroupOptions), POINTER(c_uint64)]),
    "comm_set_timeout": (c_int32, [c_uint64, c_int64]),
    "comm_set_hints": (c_int32, [c_uint64, POINTER(Hint), c_int32]),
    "comm_abort": (c_int32, [c_uint64, c_char_p]),
    "comm_suspend": (c_int32, [c_uint64]),
    "comm_resume": (c_int32, [c_uint64]),
    "comm_finalize": (c_int32, [c_uint64, c_int64]),
    "comm_leave": (c_int32, [c_uint64, c_char_p, c_int64]),
    "comm_release": (c_int32, [c_uint64]),
    "register": (c_int32, [c_uint64, c_void_p, c_int64]),
    "deregister": (c_int32, [c_uint64, c_void_p, c_int64]),
    "register_symmetric": (c_int32, [c_uint64, POINTER(c_void_p), POINTER(c_int64), c_int32]),
    "deregister_symmetric": (c_int32, [c_uint64, POINTER(c_void_p), POINTER(c_int64), c_int32]),
    "site": (c_uint32, [c_char_p, c_int32, c_char_p]),
    "raised": (c_int32, [c_char_p, c_char_p, c_int32, c_char_p]),
    "submit": (c_int32, [c_uint64, c_void_p, POINTER(c_uint64)]),
    "set_python": (c_int32, [POINTER(Python)]),
    "python_submit": (c_void_p, [c_void_p, POINTER(c_void_p), c_ssize_t]),
    "python_submit_bound": (c_void_p, [c_void_p, POINTER(c_void_p), c_ssize_t]),
    "python_submit_either": (c_void_p, [c_void_p, POINTER(c_void_p), c_ssize_t]),
    "python_submit_gpu": (c_void_p, [c_void_p, POINTER(c_void_p), c_ssize_t]),
    "python_wait_gpu": (c_void_p, [c_void_p, POINTER(c_void_p), c_ssize_t]),
    "python_site": (c_void_p, [c_void_p, POINTER(c_void_p), c_ssize_t]),
    "submit_batch": (c_int32, [c_uint64, c_void_p, c_int32, c_int64, POINTER(c_uint64)]),
    "work_wait": (c_int32, [c_uint64, c_int64]),
    "work_expire": (c_int32, [c_uint64, c_int64]),
    "work_test": (c_int32, [c_uint64]),
    "stream_wait_work": (c_int32, [c_uint64, c_uint64]),
    "work_get": (c_int32, [c_uint64, POINTER(WorkInfo)]),
    "work_sources": (c_int32, [c_uint64, POINTER(c_int32), c_int32]),
    "work_notify": (c_int32, [c_uint64, DONE_FN, c_void_p]),
    "next_done": (c_int32, [c_int64, POINTER(c_uint64)]),
    "wake_done": (c_int32, []),
    "work_cancel": (c_int32, [c_uint64]),
    "work_release": (c_int32, [c_uint64]),
    "window_create": (c_int32, [c_uint64, c_void_p, c_int64, c_int32, POINTER(c_uint64)]),
    "window_submit": (c_int32, [c_uint64, POINTER(WindowOp), POINTER(c_uint64)]),
    "window_map": (c_int32, [c_uint64, c_int32, POINTER(c_void_p)]),
    "window_get": (c_int32, [c_uint64, c_int32, POINTER(WindowPeer)]),
    "window_close": (c_int32, [c_uint64]),
    "on_abort": (c_int32, [c_uint64, ABORT_FN, c_void_p, POINTER(c_uint64)]),
    "on_completion": (c_int32, [c_uint64, COMPLETION_FN, c_void_p, POINTER(c_uint64)]),
    "hook_remove": (c_int32, [c_uint64]),
}
