"""All that this package changes in PyTorch from outside, a function for each change: docs/pytorch-internals.md.

The module that needs a change applies it, once. A change isn't made if PyTorch's code isn't what the change expects to
replace, or if CHORUS_PATCHES leaves it out. That variable holds names, separated by commas; unset it stands for all.
Without a change only its purpose is lost, which its function states. They were tested with PyTorch 2.6, 2.13 and 2.15.

One is applied when this module is loaded, at the end of PyTorch's import. So this module loads no library.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import os
import pkgutil
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd import profiler
from torch.distributed import distributed_c10d
from torch.overrides import has_torch_function_unary

_c10d: Any = distributed_c10d
_OFF = "left out by CHORUS_PATCHES"
_states: dict[str, str] = {}


class _Unexpected(Exception):
    """PyTorch's code isn't what a change expects to replace."""


def _expect(condition: object, what: str) -> None:
    if not condition:
        raise _Unexpected(what)


def wanted(name: str) -> bool:
    """Whether CHORUS_PATCHES names a change, or is not set."""
    names = os.environ.get("CHORUS_PATCHES")
    return names is None or name in names.replace(" ", "").split(",")


def apply(name: str, *args: Any) -> None:
    """Make the change of that name, once, if it's wanted."""
    if _states.get(name) == "applied":
        return
    try:
        _states[name] = _OFF
        if wanted(name):
            _CHANGES[name](*args)
            _states[name] = "applied"
    except _Unexpected as unexpected:
        _states[name] = f"not applied: {unexpected}"


def patches() -> dict[str, str]:
    """The state of each change to PyTorch, by name: "applied", or why not; see docs/pytorch-internals.md."""
    return dict(_states)


def _all_reduce(kind: Any, work: Any) -> None:
    """``torch.distributed.all_reduce`` in few steps, for groups whose class is ``kind``, and their works ``work``.

    PyTorch's function makes options, which a process group written in Python takes apart again. Together that takes
    five times as long as 4 B between two ranks. So calls on plain tensors go straight into the library, and all
    others to PyTorch's function. PyTorch's function object stays in place, for programs that have imported it by
    name and for torch.compile, which recognizes it. It's a wrapper that logs errors; this changes the function inside.
    """
    from chorus import _fastcall, _lib
    from chorus._reductions import NUMBERS

    wrapper = _c10d.all_reduce
    code = getattr(wrapper, "__code__", None)
    cells = dict(zip(code.co_freevars if code else (), getattr(wrapper, "__closure__", None) or (), strict=True))
    theirs: Any = cells["func"].cell_contents if "func" in cells else None
    arguments = list(inspect.signature(theirs).parameters) if inspect.isfunction(theirs) else []
    _expect(arguments == ["tensor", "op", "group", "async_op"], "another torch.distributed.all_reduce than known")
    _expect(_fastcall.POSSIBLE, "tensors have no exchange API of DLPack")
    operation = _lib.ALL_REDUCE
    callers = 2  # the call site is beyond the wrapper
    plain, modes = torch.Tensor, torch._C._len_torch_dispatch_stack
    add, enum = dist.ReduceOp.SUM, dist.ReduceOp.RedOpType

    @functools.wraps(theirs)
    def all_reduce(tensor: Any, op: Any = add, group: Any = None, async_op: bool = False) -> Any:
        world = _c10d._world
        of = world.default_pg if group is None else group
        if (
            type(of) is kind
            and type(tensor) is plain
            and (number := _lib.SUM if op is add else NUMBERS.get(hash(op)) if type(op) is enum else None)
            and not tensor.is_neg()
            and not has_torch_function_unary(tensor)
            and not modes()
            and not profiler._is_profiler_enabled
            and not world.pg_coalesce_state
        ):
            comm = of.comm
            if comm._batch is None and async_op:
                pending = comm.begin(operation, number, 0, 0, callers, tensor)
                if pending is None and (side := of._library_comm(tensor.device)) is not None:  # of a GPU's tensors
                    pending = side.begin(operation, number, 0, 0, callers, tensor)
                if pending is not None:
                    return work(pending, [tensor])
            elif comm._batch is None:
                status = comm.submit(operation, number, 0, 0, callers, False, tensor)
                if not status:
                    comm.issued += 1
                    return None
                if status < 0 and (side := of._library_comm(tensor.device)) is not None:
                    comm = side
                    status = comm.submit(operation, number, 0, 0, callers, False, tensor)
                if comm.handled(status):  # raises the operation's error
                    return None
        return theirs(tensor, op, group, async_op)

    cells["func"].cell_contents = all_reduce


def _batches(kind: Any) -> None:
    """``batch_isend_irecv`` of a GPU's tensors issues the messages as one, as for PyTorch's own groups over NCCL.

    Each of them by itself could wait, on the GPU, for one that isn't issued yet. PyTorch does so for groups written in
    C++ only.
    """
    theirs: Any = getattr(_c10d, "batch_isend_irecv", None)
    _expect(
        inspect.isfunction(theirs)
        and list(inspect.signature(theirs).parameters) == ["p2p_op_list"]
        and callable(getattr(_c10d, "_check_p2p_op_list", None)),
        "another torch.distributed.batch_isend_irecv than known",
    )

    @functools.wraps(theirs)
    def batch_isend_irecv(p2p_op_list: Any) -> Any:
        first = p2p_op_list[0] if isinstance(p2p_op_list, list) and p2p_op_list else None
        if not isinstance(first, dist.P2POp):
            return theirs(p2p_op_list)
        group, place = first.group or _c10d._get_default_group(), first.tensor.device
        batching = group._batching(place) if isinstance(group, kind) else None
        if batching is None or any(op.tensor.device != place for op in p2p_op_list):
            return theirs(p2p_op_list)
        _c10d._check_p2p_op_list(p2p_op_list)
        return [batching._messages([(op.op is dist.isend, op.tensor, op.group_peer, op.tag) for op in p2p_op_list])]

    _c10d.batch_isend_irecv = dist.batch_isend_irecv = batch_isend_irecv


def _coalescing(kind: Any) -> None:
    """A block of ``_coalescing_manager`` that raises drops what it has collected.

    PyTorch forgets the block then, and would leave the group collecting operations that are never issued.
    """
    theirs: Any = getattr(_c10d, "_coalescing_manager", None)
    _expect(
        inspect.isfunction(theirs) and list(inspect.signature(theirs).parameters) == ["group", "device", "async_ops"],
        "another torch.distributed._coalescing_manager than known",
    )

    @contextlib.contextmanager
    @functools.wraps(theirs)
    def _coalescing_manager(group: Any = None, device: Any = None, async_ops: bool = False) -> Iterator[Any]:
        begun = False
        try:
            with theirs(group, device, async_ops) as collected:
                begun = True
                yield collected
        except BaseException:
            ours = group or _c10d._get_default_group()
            if begun and isinstance(ours, kind):
                _c10d._world.pg_coalesce_state.pop(ours, None)
                ours._drop_coalescing(device)
            raise

    public: Any = dist
    _c10d._coalescing_manager = public._coalescing_manager = _coalescing_manager


def _buckets(kind: Any) -> None:
    """The buckets of DistributedDataParallel's reducer in memory that peers can map, where there is such memory.

    The reducer allocates them when it's made and once more after the first step. It asks only backends written in C++
    for memory, and only if an option says so. So this watches its allocations, and moves the results.
    """
    from chorus.errors import Error
    from chorus.memory import SharedMemory

    reducer: Any = getattr(dist, "Reducer", None)
    make: Any = getattr(reducer, "__init__", None)
    remake: Any = getattr(reducer, "_rebuild_buckets", None)
    _expect(callable(make) and callable(remake), "another torch.distributed.Reducer than known")
    to_remake: weakref.WeakSet[Any] = weakref.WeakSet()  # reducers whose buckets may still be made again

    class Buckets(SharedMemory):  # type: ignore[no-untyped-call]
        def move(self, tensor: torch.Tensor) -> torch.Tensor:
            try:
                return super().move(tensor)
            except Error:
                return tensor

    def __init__(self: Any, *args: Any, **options: Any) -> None:
        group = next((a for a in (*args, *options.values()) if isinstance(a, kind)), None)
        if group is None or group.comm.local_size < 2:
            make(self, *args, **options)
            return
        with Buckets():  # type: ignore[no-untyped-call]
            make(self, *args, **options)
        to_remake.add(self)

    def _rebuild_buckets(self: Any) -> bool:
        if self not in to_remake:
            return bool(remake(self))
        with Buckets():  # type: ignore[no-untyped-call]
            done = bool(remake(self))
        if done:  # the buckets are remade once
            to_remake.discard(self)
        return done

    reducer.__init__, reducer._rebuild_buckets = __init__, _rebuild_buckets


def _fp16_hook(kind: Any) -> None:
    """Python's float16 hook of DistributedDataParallel replaces the builtin one, which does the same but understands
    only futures of backends written in C++."""
    module: Any = torch.nn.parallel.DistributedDataParallel
    kinds: Any = getattr(dist, "BuiltinCommHookType", None)
    register: Any = getattr(module, "_register_builtin_comm_hook", None)
    _expect(
        inspect.isfunction(register) and list(inspect.signature(register).parameters) == ["self", "comm_hook_type"],
        "another DistributedDataParallel._register_builtin_comm_hook than known",
    )

    def _register_builtin_comm_hook(self: Any, comm_hook_type: Any) -> None:
        if not isinstance(self.process_group, kind) or comm_hook_type != kinds.FP16_COMPRESS:
            register(self, comm_hook_type)
            return
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        self.register_comm_hook(self.process_group, fp16_compress_hook)

    module._register_builtin_comm_hook = _register_builtin_comm_hook


def _shrink(kind: Any) -> None:
    """``shrink_group`` takes a group of this backend as it is.

    PyTorch's function wraps the result of a backend's ``shrink`` in a group, which takes only backends written in C++.
    It also clones the group's store, which is rank 0's, and rank 0 may be the lost rank.
    """
    wrap: Any = getattr(_c10d, "_create_shrunk_process_group", None)
    _expect(
        inspect.isfunction(wrap) and len(inspect.signature(wrap).parameters) == 4,
        "another _create_shrunk_process_group than known",
    )

    def create(backend: Any, ranks: list[int], metadata: dict[str, Any], is_default: bool) -> Any:
        if not isinstance(backend, kind):
            return wrap(backend, ranks, metadata, is_default)
        backend.setGroupName(metadata["new_group_name"])
        backend.setGroupDesc("default:shrunken" if is_default else f"{metadata['original_group_name']}:shrunk")
        _c10d._world.pg_backend_config[backend] = metadata["backend_config"]
        return backend

    _c10d._create_shrunk_process_group = create


def _barrier(accelerator: str) -> None:
    """``barrier(device_ids=[...])`` of a group without a backend for an installed device is the host's, as without it.

    PyTorch takes the IDs for those of the process's accelerator, whatever the group is for.
    """
    wrapper = _c10d.barrier
    code = getattr(wrapper, "__code__", None)
    cells = dict(zip(code.co_freevars if code else (), getattr(wrapper, "__closure__", None) or (), strict=True))
    theirs: Any = cells["func"].cell_contents if "func" in cells else None
    arguments = list(inspect.signature(theirs).parameters) if inspect.isfunction(theirs) else []
    _expect(arguments[:3] == ["group", "async_op", "device_ids"], "another torch.distributed.barrier than known")

    @functools.wraps(theirs)
    def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None, *args: Any, **options: Any) -> Any:
        if isinstance(device_ids, list):
            served = getattr(_c10d._world.default_pg if group is None else group, "_device_types", ())
            if served and all(device.type != accelerator for device in served):
                device_ids = None
        return theirs(group, async_op, device_ids, *args, **options)

    cells["func"].cell_contents = barrier


def _profiler(end_all: Callable[[], None]) -> None:
    """Asynchronous operations end in a profile before the profile ends: PyTorch would write their ends into the
    profile's memory even after it was freed."""
    module: Any = profiler
    stop: Any = getattr(module, "_disable_profiler", None)
    _expect(
        callable(stop) and callable(getattr(module, "_set_is_profiler_enabled", None)),
        "another torch.autograd.profiler than known",
    )

    def disable() -> Any:
        module._set_is_profiler_enabled(False)
        end_all()
        return stop()

    module._disable_profiler = disable


_RULES = "torch._dynamo.trace_rules"


class _Loader(importlib.abc.Loader):
    """Loads a module as another loader does, then adds this package to its list."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self.loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        _add_to_rules(module)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _RULES:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def _add_to_rules(rules: ModuleType) -> None:
    for module in pkgutil.iter_modules([os.path.dirname(__file__)], f"{__package__}."):
        if module.name != f"{__package__}._compiled":
            rules.add(module.name)
    groups = getattr(sys.modules.get("torch._dynamo.variables.distributed"), "ProcessGroupVariable", None)
    theirs = getattr(groups, "is_process_group", None)
    if groups is None or theirs is None:
        return  # newer versions recognize groups by other means
    # PyTorch 2.6 takes only objects of its own class for groups, and refuses to compile code that uses another class.

    def is_process_group(value: object) -> bool:
        return type(value).__module__ == "chorus.process_group" or bool(theirs(value))

    groups.is_process_group = staticmethod(is_process_group)


def _dynamo(_: Any) -> None:
    """torch.compile doesn't trace this package, except for the modules written for it, and lets compiled code use its
    groups.

    While compiled code runs, PyTorch compiles every Python function that is called, also those that C++ calls, such as
    a process group's methods. Dynamo has a list of modules that it skips. Dynamo is big, and most programs never load
    it, so this package is added to the list when Dynamo is loaded.
    """
    if _RULES in sys.modules:
        _add_to_rules(sys.modules[_RULES])
    else:
        sys.meta_path.insert(0, _Finder())


def _use_torchcomms(give: Callable[[Any], None]) -> None:
    """PyTorch's switch ``torch.distributed.config.use_torchcomms`` takes Chorus' torchcomms, whose names ``give`` sets.

    PyTorch looks for torchcomms in the middle of its own import, before this package can be loaded. If the switch is on
    and the program's torchcomms is this package's, this sets the names that PyTorch didn't find then.
    """
    theirs: Any = getattr(_c10d, "_use_torchcomms_enabled", None)
    settings: Any = getattr(_c10d, "dist_config", None)
    _expect(
        inspect.isfunction(theirs) and not inspect.signature(theirs).parameters and hasattr(settings, "use_torchcomms"),
        "another torch.distributed.config.use_torchcomms than known",
    )

    def _use_torchcomms_enabled() -> bool:
        if not settings.use_torchcomms or theirs() or not _is_torchcomms():
            return bool(theirs())
        give(_c10d)
        return True

    _c10d._use_torchcomms_enabled = _use_torchcomms_enabled


def _is_torchcomms() -> bool:
    """Whether the program's torchcomms is this package's: already imported, or found under that name."""
    if f"{__package__}.torchcomms" in sys.modules:
        return True
    try:
        return getattr(importlib.import_module("torchcomms"), "_ORIGIN", None) == f"{__package__}.torchcomms"
    except ImportError:
        return False


_CHANGES: dict[str, Callable[..., None]] = {
    "all_reduce": _all_reduce,
    "barrier": _barrier,
    "batches": _batches,
    "buckets": _buckets,
    "coalescing": _coalescing,
    "fp16_hook": _fp16_hook,
    "shrink": _shrink,
    "profiler": _profiler,
    "dynamo": _dynamo,
    "use_torchcomms": _use_torchcomms,
}


def locals_of_creation() -> dict[str, Any]:
    """The local variables of PyTorch's function that makes a group: facts that it doesn't pass to the backend.

    They tell the backends of the group's other devices, and the program's name for the group. This changes nothing, but
    it reads PyTorch's private state, so it can be left out as well: the name is "locals".
    """
    frame = sys._getframe(2)
    known = frame.f_code.co_name == "_new_process_group_helper" and frame.f_globals is vars(_c10d)
    used = known and wanted("locals")
    _states["locals"] = "applied" if used else _OFF if known else "not applied: another function makes groups"
    return frame.f_locals if used else {}
