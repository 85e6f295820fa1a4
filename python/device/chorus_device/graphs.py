"""Graphs: work of streams that is captured once and replayed often."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from chorus_device._device import c

__all__ = ["CUDAGraph", "Graph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]

# PyTorch has graphs of accelerators from 2.13 on.
Graph: Any = getattr(torch.accelerator, "Graph", None)
CUDAGraph = Graph  # the name in torch.cuda

_capturing: dict[int, torch.Stream] = {}


def graph_pool_handle() -> tuple[int, int]:
    """The id of a memory pool that several graphs can share."""
    pool: tuple[int, int] = tuple(c().new_pool())
    return pool


def is_current_stream_capturing() -> bool:
    """Whether a graph captures the current stream."""
    return bool(c().is_capturing(c().current_device()))


@contextlib.contextmanager
def graph(
    g: Any, pool: Any = None, stream: torch.Stream | None = None, capture_error_mode: str = "default"
) -> Iterator[None]:
    """Capture the work within this into a :class:`Graph`, on ``stream``, or on a stream reserved for captures."""
    device = c().current_device()
    if stream is None:
        stream = _capturing.setdefault(device, torch.Stream(torch.accelerator.current_stream().device))
    if pool is not None:
        g.graph_pool = pool.id if hasattr(pool, "id") else pool
    g.capture_error_mode = capture_error_mode
    with stream, g:
        yield


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: Any = None,
) -> Any:
    """Like ``torch.cuda.make_graphed_callables``: functions or modules whose forward and backward passes are graphs.

    Arguments must have the sizes, types and ``requires_grad`` of the samples. A module's graphs are used in the mode,
    training or not, that it has now; in the other one it runs without graphs.
    """
    several = isinstance(callables, tuple)
    functions = callables if several else (callables,)
    samples = sample_args if several else (sample_args,)
    pool = graph_pool_handle() if pool is None else pool
    made = [_Graphed(f, tuple(a), num_warmup_iters, allow_unused_input, pool) for f, a in zip(functions, samples)]
    # Backward passes are captured in the order of their replay, since all share the pool.
    for g in reversed(made):
        g.capture_backward()
    results = tuple(g.callable() for g in made)
    return results if several else results[0]


class _Graphed:
    """A function whose forward and backward passes are captured."""

    def __init__(self, function: Any, args: tuple[Any, ...], warmups: int, unused: bool, pool: Any) -> None:
        self.function, self.pool, self.unused = function, pool, unused
        self.args = tuple(a.detach().clone().requires_grad_(a.requires_grad) for a in args)
        module = isinstance(function, torch.nn.Module)
        self.parameters = tuple(function.parameters()) if module else ()
        self.inputs = [t for t in (*self.args, *self.parameters) if t.requires_grad]
        stream = torch.Stream(torch.accelerator.current_stream().device)
        stream.wait_stream(torch.accelerator.current_stream())
        with stream:
            for _ in range(warmups):
                outputs, _ = torch.utils._pytree.tree_flatten(function(*self.args))
                self._gradients([o for o in outputs if o.requires_grad], None)
                del outputs  # and their autograd nodes, which are bound to this stream
        torch.accelerator.current_stream().wait_stream(stream)
        self.forward = Graph()
        with graph(self.forward, pool):
            outputs, self.form = torch.utils._pytree.tree_flatten(function(*self.args))
        self.outputs = tuple(outputs)
        self.backward: Any = None

    def _gradients(self, outputs: list[Any], grads: Any) -> Any:
        if not outputs or not self.inputs:
            return ()
        grads = [torch.ones_like(o) for o in outputs] if grads is None else grads
        return torch.autograd.grad(outputs, self.inputs, grads, only_inputs=True, allow_unused=self.unused)

    def capture_backward(self) -> None:
        differentiable = [o for o in self.outputs if o.requires_grad]
        self.given = [torch.ones_like(o) if o.requires_grad else None for o in self.outputs]
        self.got: Any = ()
        if differentiable and self.inputs:
            self.backward = Graph()
            with graph(self.backward, self.pool):
                self.got = self._gradients(differentiable, [g for g in self.given if g is not None])
        # Drop autograd's record, whose nodes for parameters would stay bound to the stream of captures.
        self.outputs = tuple(o.detach() for o in self.outputs)

    def callable(self) -> Any:
        passes, parameters, form = self._passes(), self.parameters, self.form

        def run(*args: Any) -> Any:
            return torch.utils._pytree.tree_unflatten(list(passes.apply(*args, *parameters)), form)

        if not isinstance(self.function, torch.nn.Module):
            return run
        module, mode, eager = self.function, self.function.training, self.function.forward
        module.forward = lambda *args: run(*args) if module.training == mode else eager(*args)
        return module

    def _passes(self) -> Any:
        me = self
        base: Any = torch.autograd.Function

        class Passes(base):  # type: ignore[misc]
            @staticmethod
            def forward(ctx: Any, *inputs: Any) -> Any:
                for mine, given in zip(me.args, inputs):
                    if mine.data_ptr() != given.data_ptr():
                        mine.detach().copy_(given)
                me.forward.replay()
                return tuple(o.detach() for o in me.outputs)

            @staticmethod
            @torch.autograd.function.once_differentiable
            def backward(ctx: Any, *grads: Any) -> Any:
                for mine, given in zip(me.given, grads):
                    if mine is not None:
                        mine.copy_(given) if given is not None else mine.zero_()
                if me.backward is not None:
                    me.backward.replay()
                got = iter(me.got)
                every = (*me.args, *me.parameters)
                found = [next(got, None) if t.requires_grad else None for t in every]
                return tuple(g if g is None else g.detach() for g in found)

        return Passes
