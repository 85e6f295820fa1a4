"""Random numbers of programs that ``torch.compile`` makes: those of eager mode.

Inductor's kernels have random numbers of their own unless ``torch._inductor.config.fallback_random`` is set. For a
graph with tensors of the device it's set here, unless ``torch.compile`` was given it as an option. It isn't set for
graphs with checkpoints: inductor calls an operator again, with the numbers from before, on CUDA only.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.utils import _pytree as pytree

from chorus_device._device import name

_OPTION = "fallback_random"
_decided = contextvars.ContextVar("decided", default=False)  # for the graph that's being compiled


def _nodes(model: Any) -> Iterator[torch.fx.Node]:
    """The nodes of a graph, and of those within it."""
    for part in model.modules() if isinstance(model, torch.nn.Module) else ():
        if isinstance(part, torch.fx.GraphModule):
            yield from part.graph.nodes


def _suits(model: Any, inputs: Any) -> bool:
    """Whether a graph has tensors of the device, and no checkpoints."""
    nodes = list(_nodes(model))
    called = [n.target for n in nodes if n.op == "call_function"]
    if any(isinstance(f, HigherOrderOperator) and "activation_checkpoint" in str(f) for f in called):
        return False
    values = [*inputs, *((n.meta.get("example_value"), n.meta.get("val")) for n in nodes)]
    return any(isinstance(v, torch.Tensor) and v.device.type == name() for v in pytree.tree_leaves(values))


def install(compiling: types.ModuleType) -> None:
    """Have ``compile_fx`` of inductor's module set the option."""
    compile_fx: Callable[..., Any] = compiling.compile_fx

    signature = inspect.signature(compile_fx)

    @functools.wraps(compile_fx)
    def with_option(*given: Any, **named: Any) -> Any:
        if _decided.get():  # it calls itself
            return compile_fx(*given, **named)
        call = signature.bind(*given, **named)
        model, inputs = call.args[:2]
        patches = call.arguments.get("config_patches") or {}
        if _OPTION not in patches and _suits(model, inputs):
            call.arguments["config_patches"] = {**patches, _OPTION: True}
        token = _decided.set(True)
        try:
            return compile_fx(*call.args, **call.kwargs)
        finally:
            _decided.reset(token)

    compiling.compile_fx = with_option  # type: ignore[attr-defined]
