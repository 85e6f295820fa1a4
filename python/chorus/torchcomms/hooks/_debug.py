"""Handlers for PyTorch's debug server: the flight records of the process, and whether it's healthy."""

from __future__ import annotations

import json
from typing import Any

import torch._C._distributed_c10d as c10d

from chorus.torchcomms.hooks import fr

_SWITCHES = {"includecollectives": True, "onlyactive": False}


def _trace(request: Any, response: Any) -> None:
    chosen = dict(_SWITCHES)
    for name in _SWITCHES:
        value = _parameter(request, name)
        if value not in ("", "true", "false"):
            return _answer(response, f"{name} must be true or false", 400)
        chosen[name] = value == "true" if value else chosen[name]
    dump = fr.dump_of_process(chosen["includecollectives"], not chosen["onlyactive"])
    _answer(response, json.dumps(dump), 200, "application/json")


def _parameter(request: Any, name: str) -> str:
    try:
        return str(request.get_param(name))
    except (IndexError, KeyError, RuntimeError):  # not given
        return ""


def _dump_file(request: Any, response: Any) -> None:
    paths = []
    for recorder in fr.recorders():
        for comm in recorder.members()[:1]:
            paths.append(recorder.dump_file(comm.get_ranks()[comm.get_rank()]))
    if paths:
        _answer(response, f"written: {', '.join(paths)}", 200)
    else:
        _answer(response, "no flight recorder is registered with a communicator", 503)


def _health(request: Any, response: Any) -> None:
    broken = any(comm.is_aborted() for recorder in fr.recorders() for comm in recorder.members())
    _answer(response, json.dumps({"healthy": not broken}), 200, "application/json")


def _answer(response: Any, text: str, status: int, kind: str = "text/plain") -> None:
    response.set_content(text, kind)
    response.set_status(status)


def register() -> None:
    """Add the handlers. PyTorch takes one for each name, and another package may have added its own."""
    add, names = getattr(c10d, "_register_handler", None), getattr(c10d, "_get_handler_names", None)
    if add is None or names is None:
        return  # a PyTorch without a debug server
    handlers = {
        "torchcomms_fr_trace_json": _trace,
        "torchcomms_fr_dump_file": _dump_file,
        "torchcomms_health_check": _health,
    }
    there = set(names())
    for name, handler in handlers.items():
        if name not in there:
            add(name, handler)
