"""Operators that a compiled program calls as in eager mode: those of types, or kinds, that generated kernels haven't.

Inductor asks for each operator of its graph whether a type is one that kernels have none of, as complex numbers are.
Then it calls the operator itself, on the device, instead of making it a part of a kernel.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch._inductor import graph
from torch.utils import _pytree as pytree

from chorus_device._device import name
from chorus_device.codegen import types

log = logging.getLogger("torch._inductor.chorus")  # TORCH_LOGS=+inductor shows it

_aten = torch.ops.aten
_OPERATORS = {_aten._assert_async.msg: "assertions", _aten._functional_assert_async.msg: "assertions"}


def _lacking(node: torch.fx.Node) -> str:
    """The thing that an operator on the device has and generated kernels haven't, or an empty text."""
    values = [n.meta.get("val") for n in (*node.all_input_nodes, node)]
    tensors = [t for t in pytree.tree_leaves(values) if isinstance(t, torch.Tensor) and t.device.type == name()]
    if tensors and node.target in _OPERATORS:
        return _OPERATORS[node.target]
    wrong = {t.dtype for t in tensors if not types.supported(t.dtype)}
    return f"elements of {wrong.pop()}" if wrong else ""


def install(generated: Callable[[], bool]) -> None:
    """Have inductor ask here, too, when kernels are generated."""

    def is_called(node: torch.fx.Node, *given: Any, **named: Any) -> bool:
        if also(node, *given, **named):
            return True
        lacking = _lacking(node) if node.op == "call_function" and generated() else ""
        if lacking:
            log.info("%s: called, as generated kernels have no %s", node.target, lacking)
        return bool(lacking)

    also: Any = graph.fallback_node_due_to_unsupported_type  # type: ignore[attr-defined]
    graph.fallback_node_due_to_unsupported_type = is_called  # type: ignore[attr-defined]
