"""Hints, under the names that programs use.

Chorus's own (fabric, fabric.OPTION, host_id, calibration, stage_bytes, algorithm, chunk_bytes,
mapped, slots, stores) go to the library. Those of the original's backends are translated where there is something like them
here, and otherwise checked and left alone. An unknown one is a warning.
"""

from __future__ import annotations

import socket
import warnings
from collections.abc import Mapping

_OF_OPERATIONS = {"algorithm", "chunk_bytes", "mapped", "slots", "stores"}
_OWN = {"fabric", "host_id", "calibration", "stage_bytes"} | _OF_OPERATIONS
_TRUTHS = {"1": True, "true": True, "yes": True, "y": True, "0": False, "false": False, "no": False, "n": False}
# They set up what CPUs don't have, or what isn't needed here.
_FLAGS = {"lazy", "persistent_store", "enable_cuda_graph_support", "blocking"}
_NUMBERS = {"max_event_pool_size", "garbage_collect_interval_ms", "graph_timeout_check_interval_ms"}
_PRIORITY = {"is_high_priority_stream", "high_priority_stream"}


def truth(name: str, value: str) -> bool:
    """A hint that is a flag."""
    if value.lower() not in _TRUTHS:
        raise RuntimeError(f"hint {name}={value!r}: want 1, true, yes or y, or 0, false, no or n")
    return _TRUTHS[value.lower()]


def of_communicator(hints: Mapping[str, str] | None) -> tuple[dict[str, str], bool | None]:
    """What the library is given, and what the hints say about the stream's priority.

    Raises RuntimeError for a flag, and ValueError for a number, that can't be read.
    """
    own: dict[str, str] = {}
    priority: bool | None = None
    for name, value in (hints or {}).items():
        if name in _OWN or name.startswith("fabric."):
            own[name] = value
        elif name.removeprefix("torchcomm::").split("::")[-1] in _PRIORITY:  # torchcomm::ncclx::high_priority_stream
            priority = truth(name, value)
        elif name == "interface":
            own["fabric.interface"] = value
        elif name == "hostname":
            own["fabric.addr"] = socket.gethostbyname(value)
        elif name in _FLAGS:
            truth(name, value)
        elif name in _NUMBERS:
            int(value)
        else:
            _unknown(name)
    return own, priority


def of_operation(hints: Mapping[str, str] | None) -> dict[str, str] | None:
    """What the library is given with an operation."""
    if not hints:
        return None
    own = {}
    for name, value in hints.items():
        if name in _OF_OPERATIONS:
            own[name] = value
        else:
            _unknown(name)
    return own


def _unknown(name: str) -> None:
    warnings.warn(f"chorus: unknown hint {name!r} is ignored", stacklevel=4)
