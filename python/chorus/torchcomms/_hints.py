"""Translates hints from programs' names into the library's.

Chorus's own (fabric, fabric.OPTION, host_id, calibration, stage_bytes, algorithm, chunk_bytes,
mapped, slots, stores) go to the library. Hints of the original's backends are translated if Chorus has an equivalent;
otherwise they are checked and ignored. An unknown hint is a warning.
"""

from __future__ import annotations

import socket
import warnings
from collections.abc import Mapping

from chorus._devices import LIBRARIES
from chorus.errors import InvalidArgumentError

_OF_OPERATIONS = {"algorithm", "chunk_bytes", "mapped", "slots", "stores"}
_OWN = {"fabric", "host_id", "calibration", "stage_bytes"} | _OF_OPERATIONS
_TRUTHS = {"1": True, "true": True, "yes": True, "y": True, "0": False, "false": False, "no": False, "n": False}
_OF_GLOO = {"wire", "interface", "prefix", "pytorch"}
# Ignored: they set up things that CPUs don't have, or that Chorus doesn't need.
_FLAGS = {"lazy", "persistent_store", "enable_cuda_graph_support", "blocking", "compute_node_rank_layout"}
_NUMBERS = {"max_event_pool_size", "garbage_collect_interval_ms", "graph_timeout_check_interval_ms"}
# Hints of communicators of NCCL, NCCLX and RCCL: Chorus's own, and the fields of NCCL's configuration.
_OF_LIBRARIES = {"library", "compare", *map(str.lower, (
    "cgaClusterSize", "minCTAs", "maxCTAs", "netName", "splitShare", "trafficClass", "commName", "collnetEnable",
    "CTAPolicy", "shrinkShare", "nvlsCTAs", "nChannelsPerNetPeer", "nvlinkCentricSched", "graphUsageMode", "numRmaCtx",
    "maxP2pPeers", "graphStreamOrdering", "launchOrderImplicit", "numRmaSig", "rmaEagerInit", "hostCftMode",
    "nvlsHostMode",
))}  # fmt: skip
# Hints of their operations; the library's names have the prefix "op.".
_OF_LIBRARIES_OPERATIONS = {"minCTAs", "maxCTAs", "nvlsCTAs", "cgaClusterSize", "algSelection", "forceAlgSelection",
    "CTAPolicy"}  # fmt: skip
_PRIORITY = {"is_high_priority_stream", "high_priority_stream"}


def truth(name: str, value: str) -> bool:
    """A hint that is a flag."""
    if not isinstance(value, str) or value.lower() not in _TRUTHS:
        raise RuntimeError(f"hint {name}={value!r}: want 1, true, yes or y, or 0, false, no or n")
    return _TRUTHS[value.lower()]


def _number(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"hint {name}={value!r}: want a number") from None


def _address(name: str, value: str) -> str:
    try:
        return socket.gethostbyname(value)
    except OSError as error:
        raise InvalidArgumentError(f"chorus: hint {name}={value!r}: {error}") from error


def of_communicator(
    hints: Mapping[str, str] | None, backend: str | None = None
) -> tuple[dict[str, str], bool | None]:
    """The library's hints, and the stream's priority as the hints give it.

    Raises RuntimeError for a flag or a host, and ValueError for a number, that can't be parsed.
    """
    own: dict[str, str] = {}
    priority: bool | None = None
    for name, value in (hints or {}).items():
        if name == "wire":  # chooses the backend; not a setting of it
            continue
        if name.removeprefix("torchcomm::").split("::")[-1] in _PRIORITY:  # torchcomm::ncclx::high_priority_stream
            priority = truth(name, value)
        elif backend in LIBRARIES and name == "graph_timeout_check_interval_ms":
            own[name] = str(_number(name, value))
        elif backend in LIBRARIES and name not in _FLAGS | _NUMBERS:
            of_all = name.startswith("op.") and name.removeprefix("op.") in _OF_LIBRARIES_OPERATIONS
            if of_all or _plain(name) in _OF_LIBRARIES:
                own[name] = value
            else:
                _unknown(name)
        elif name in _OWN or name.startswith("fabric."):
            own[name] = value
        elif name == "interface":
            own["fabric.interface"] = value
        elif name == "hostname":
            own["fabric.addr"] = _address(name, value)
        elif name in _FLAGS:
            truth(name, value)
        elif name in _NUMBERS:
            _number(name, value)
        else:
            _unknown(name)
    return own, priority


def _plain(name: str) -> str:
    """The name in _OF_LIBRARIES of a hint of NCCL, NCCLX or RCCL."""
    name = name.removeprefix("ncclx::")
    return name.replace("_", "").lower() if "_" in name else name.lower()


def of_gloo(hints: Mapping[str, str] | None) -> tuple[dict[str, str], bool | None]:
    """The library's hints for a communicator on Gloo's wire, and the stream's priority as the hints give it."""
    own = {name: value for name, value in (hints or {}).items() if name in _OF_GLOO - {"wire"}}
    rest, priority = of_communicator({name: value for name, value in (hints or {}).items() if name not in _OF_GLOO})
    for name in rest:
        _unknown(name)
    return own, priority


def of_operation(hints: Mapping[str, str] | None, backend: str | None = None) -> dict[str, str] | None:
    """The library's hints of an operation."""
    if not hints:
        return None
    own = {}
    for name, value in hints.items():
        if backend in LIBRARIES and name.removeprefix("op.") in _OF_LIBRARIES_OPERATIONS:
            own["op." + name.removeprefix("op.")] = value
        elif name in _OF_OPERATIONS and backend not in LIBRARIES:
            own[name] = value
        else:
            _unknown(name)
    return own


def _unknown(name: str) -> None:
    warnings.warn(f"chorus: unknown hint {name!r} is ignored", stacklevel=4)
