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
# Those that add whatever their arguments are; others have one that says so.
_ADDING = ("index_add", "scatter_add", "_unsafe_masked_index_put_accumulate")


def _adds(node: torch.fx.Node) -> bool:
    """Whether an operator adds to elements at indexes, of which several may be equal."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    given = {a.name: x for a, x in zip(target._schema.arguments, node.args)} | dict(node.kwargs)
    named = target.overloadpacket.__name__.rstrip("_")
    return named in _ADDING or given.get("accumulate") is True or given.get("reduce") in ("add", "sum")


def _lacking(node: torch.fx.Node) -> str:
    """The thing that an operator on the device has and generated kernels haven't, or an empty text."""
    if node.target is _aten.view_as_complex.default:
        return ""  # inductor calls it anyway, with the layout that it needs
    values = [n.meta.get("val") for n in (*node.all_input_nodes, node)]
    tensors = [t for t in pytree.tree_leaves(values) if isinstance(t, torch.Tensor) and t.device.type == name()]
    if tensors and node.target in _OPERATORS:
        return _OPERATORS[node.target]
    wrong = {t.dtype for t in tensors if not types.supported(t.dtype)}
    if wrong:
        return f"elements of {wrong.pop()}"
    to = next((t.dtype for t in tensors), None)
    return f"atomic addition of {to}" if to is not None and _adds(node) and not types.is_added(to) else ""


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
