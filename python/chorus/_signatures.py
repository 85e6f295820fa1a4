"""The call signatures of PyTorch's process groups.

Beside lists of tensors and options, their methods take one tensor for a list of one, and options as arguments::

    group.allreduce([x], options)       group.allreduce(x, dist.ReduceOp.MAX)
    group.broadcast([x], options)       group.broadcast(x, root=0, timeout=minute)
    group.allgather([ys], [x])          group.allgather(ys, x)

PyTorch itself makes such calls. And tensors may have no memory, under FakeTensorMode. Then a call moves nothing and
returns results with the right shapes and types, as PyTorch's own operators do.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

from chorus.errors import UnsupportedError

_F = TypeVar("_F", bound=Callable[..., Any])
_FIELDS = {"op": "reduceOp", "root": "rootRank", "timeout": "timeout"}


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)


def has_fake(*values: Any) -> bool:
    """Whether tensors have no elements, as under FakeTensorMode. Raises UnsupportedError if a graph is being traced
    that would not record the operation."""
    if not torch._C._len_torch_dispatch_stack():
        return False
    from torch._subclasses.fake_tensor import FakeTensor

    keys: Any = torch._C._TorchDispatchModeKey
    if torch._C._get_dispatch_mode(keys.PROXY) is not None:
        raise UnsupportedError(
            "chorus: make_fx doesn't see what a process group written in Python does; "
            "use torch.distributed._functional_collectives, or torch.compile"
        )
    return any(isinstance(tensor, FakeTensor) for tensor in _tensors(values))


def every_signature(make: Callable[[], Any], *fields: str, lists: bool = True) -> Callable[[_F], _F]:
    """Decorates ``method(self, *tensors, opts=None)``, so that it takes every signature.

    ``make`` makes its options. ``fields`` are those that may be given as arguments instead, before ``timeout``.
    ``lists`` says whether it takes lists of tensors.
    """

    def decorate(method: _F) -> _F:
        n = list(inspect.signature(method).parameters).index("opts") - 1
        names = (*fields, "timeout")

        @functools.wraps(method)
        def call(self: Any, *args: Any, **named: Any) -> Any:
            values, rest = args[:n], args[n:]
            if lists and any(isinstance(value, torch.Tensor) for value in values):
                values = tuple([value] if isinstance(value, torch.Tensor) or value else [] for value in values)
            opts = named.pop("opts", None)
            if rest and hasattr(rest[0], "timeout"):
                opts, rest = rest[0], rest[1:]
            if len(rest) > len(names):
                raise TypeError(f"chorus: {method.__name__.strip('_')}() takes fewer arguments than {len(args)}")
            if unknown := named.keys() - set(names):
                raise TypeError(f"chorus: {method.__name__.strip('_')}() has no argument {unknown.pop()!r}")
            given = dict(zip(names, rest, strict=False)) | named
            if opts is None and any(value is not None for value in given.values()):
                opts = make()
            for name, value in given.items():
                if value is not None:
                    setattr(opts, _FIELDS[name], value)
            if has_fake(values):
                return self._fake_result(values[0], opts)
            return method(self, *values, opts)

        return call  # type: ignore[return-value]

    return decorate
