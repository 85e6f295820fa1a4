"""Makes and registers Chorus' process groups for PyTorch."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, _DistributedBackendOptions

from chorus import _devices
from chorus._devices import ACCL as ACCL
from chorus._devices import LIBRARIES, MPI, NAME, NAMES, drivers

if TYPE_CHECKING:
    from chorus.process_group import ProcessGroup

# By a backend's name: a function of rank and size that makes the hints of its groups, if neither the program nor the
# world has hints.
defaults: dict[str, Callable[[int, int], dict[str, Any]]] = {}


def register() -> None:
    """Make ``"chorus"`` and ``"accl"`` backends of torch.distributed, for CPU tensors and those of devices of the
    library, and have PyTorch's switch ``torch.distributed.config.use_torchcomms`` take this package's torchcomms.
    Calling it again changes nothing. It doesn't replace a backend that another package has registered."""
    from chorus import _patches

    _patches.apply("use_torchcomms", _give_torchcomms)
    if _gpus() and "cuda" not in drivers:
        from chorus import _streams

        serve("cuda", "hip" if torch.version.hip else "cuda", _streams.cuda)
    for name in NAMES:
        if name.upper() not in dist.Backend._plugins:
            _register(name)


def _give_torchcomms(c10d: Any) -> None:
    from chorus.torchcomms import _switch

    _switch.give(c10d)


def _gpus() -> bool:
    """Whether PyTorch was built for GPUs and the machine seems to have one. PyTorch itself would start the vendor's
    library for the answer, after which a process can't fork."""
    if torch.version.hip:
        return os.path.exists("/dev/kfd")
    return bool(torch.version.cuda) and (os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg"))


def _register(name: str) -> None:
    dist.Backend.register_backend(name, _creators[name], extended_api=True, devices=["cpu", *drivers])


def serve(
    name: str,
    driver: str | Callable[[], str],
    native: Callable[[torch.device], int] | None = None,
    begun: Callable[[], bool] | None = None,
) -> None:
    """Take the tensors of ``torch.device(name)``, which the library's ``driver`` serves; PyTorch's extension for the
    device calls this. ``driver`` may be a function, which is called when the name is first needed. ``native`` returns
    the native handle of the current stream, for devices whose streams PyTorch itself makes. For others ``begun`` says
    whether the program has begun to use the device: then groups may use a vendor's library for its tensors."""
    drivers[name] = driver
    if begun is not None:
        _devices.begun[name] = begun
    if native is not None:
        from chorus import _streams

        _streams.natives[name] = native
    for name in NAMES:
        plugin = dist.Backend._plugins.get(name.upper())
        if plugin is not None and plugin.creator_fn is _creators[name]:
            _register(name)


def _create(backend: str, options: Any, backend_options: Any, caller: dict[str, Any]) -> ProcessGroup:
    """A group with one of the backends.

    ``backend_options`` is what the user gave as ``pg_options``: None, a dict of
    hints for the communicator, or ProcessGroupNCCL.Options for one of GPUs.
    """
    from chorus import _nccl, _streams
    from chorus._comm import Communicator
    from chorus._pg_options import split_options
    from chorus._pytorch_groups import reset_group_count
    from chorus.errors import InvalidArgumentError, UnsupportedError
    from chorus.process_group import ProcessGroup, timeout_ns

    others = _other_backends(backend, options, caller)
    config = caller.get("backend_config")
    own = {"cpu", *drivers}
    if config is not None:
        own &= {device for device, name in config.get_device_backend_map().items() if name == backend}
    if not own and not others:
        raise UnsupportedError(
            f"chorus: a group of {config} serves no device: there are only {' and '.join(['cpu', *drivers])} here"
        )
    given, abort = backend_options, _of_world("_abort")
    backend_options, for_libraries = split_options(given, own & {*_streams.natives, *_devices.begun})
    hints = backend_options if isinstance(backend_options, dict) else None
    if hints and "abort_on_error" in hints:
        hints = dict(hints)
        abort = hints.pop("abort_on_error")
    if backend_options is None and given is not None and not isinstance(given, dict):
        _nccl.complete(given, options)
    if backend_options is not None and hints is None and not others:
        raise InvalidArgumentError(
            f"chorus: pg_options must be a dict of hints, such as {{'fabric': 'tcp'}}, not {type(backend_options).__name__}"  # noqa: E501
        )
    carrier, hints = _carrier(backend, options, hints)
    alone = carrier in LIBRARIES
    if alone and not isinstance(given, dict):
        hints |= _nccl.hints_of(given) or {}
    if alone:
        hints = {**_nccl.defaults(), **hints}
    device: Any = _placed(carrier, caller.get("device_id")) if alone else caller.get("device_id")
    parts = None if alone or backend != NAME else _Parts(own, for_libraries, options, device)
    try:
        comm = Communicator.create(
            options.group_rank,
            options.group_size,
            options.store,
            backend=carrier,
            device=device if alone else None,
            name=_name(options, caller),
            timeout_ns=timeout_ns(options.timeout),
            hints=hints,
            abort_on_error=_nccl.abort_on_error(abort) if alone else None,
            job_ranks=options.global_ranks_in_group,
            job_size=dist.get_world_size() if options.global_ranks_in_group and dist.is_initialized() else 0,
            again=carrier != "gloo",
        )
    except BaseException:
        if not options.global_ranks_in_group:
            reset_group_count()
        raise
    group = ProcessGroup(comm, options.store, options.timeout)
    group._hints, group._abort = hints, abort
    group._ours = own & {device.type} if alone and device is not None else own
    if alone and _nccl.blocking_wait():
        comm.block()
    if parts is not None:
        try:
            parts.add(group)
        except BaseException as error:
            comm.abort(f"the group could not be made: {error}")
            if not options.global_ranks_in_group:
                reset_group_count()
            raise
        if isinstance(given, dict):
            _warn_of_unused(for_libraries, group)
    for part in (group, *group._libraries.values()):
        part._options = None if isinstance(given, dict) else given
    if "cpu" not in group._ours:
        comm.leave_host()
    for device, (kind, other) in others.items():
        group._add_backend(torch.device(device), kind, other)
    if not alone and isinstance(device, torch.device) and device.type in drivers and device.type in group._ours:
        if not _streams.foreign(device):  # tensors of GPUs, which only a library's backend takes, are refused
            comm.bind(device)
    return group


class _Parts:
    """The parts of a group for the tensors of GPUs, which a library like NCCL carries out. They're chosen before and
    after the ranks meet for the group. ``own`` are the types of device that it serves, and ``device`` is
    init_process_group's device_id.

    Devices whose streams PyTorch makes have one always. Others have one if the program or the world names the backend,
    or if all ranks have a library. A group without hints of its own takes the world's.
    """

    def __init__(self, own: set[str], hints: dict[str, dict[str, str]], options: Any, device: Any):
        from chorus import _streams
        from chorus._offers import Offers

        self._hints, self._device = hints, device
        self._world: Any = dist.group.WORLD if dist.is_initialized() else None
        self._ranks = list(options.global_ranks_in_group)
        self._world_libraries: dict[str, Any] = getattr(self._world, "_libraries", {})
        self.named = dict(getattr(self._world, "_named", {}))
        foreign = own & set(_streams.natives)
        kinds = own & set(_devices.begun) - foreign
        self.named.update({kind: h["backend"] for kind, h in hints.items() if kind in kinds and "backend" in h})
        sure = kinds & {*self.named, *(self._world_libraries if self._ranks else ())}
        self._kinds = foreign | {kind for kind in sure if self.named.get(kind) != NAME}
        self._offers = Offers(kinds - sure, device, options.store, options.group_rank, options.group_size)

    def add(self, group: ProcessGroup) -> None:
        """Give the group its parts, after the ranks have met."""
        group._named = self.named
        kinds = self._kinds | self._offers.agreed()
        if not kinds:
            return
        from chorus._gpu_group import part_of

        job = (self._ranks, dist.get_world_size()) if self._ranks and self._world is not None else ([], 0)
        for kind in [kind for kind in drivers if kind in kinds and kind in group._ours]:
            theirs = self._world_libraries.get(kind)
            of_world = theirs if self._ranks else None
            inherited = {"backend": of_world.carrier, **of_world._hints} if of_world is not None else {}
            own = dict(self._hints.get(kind, inherited))
            abort = own.pop("abort_on_error", getattr(theirs, "_abort", None) if group._abort is None else group._abort)
            part = part_of(group, kind, _library(own.pop("backend", self.named.get(kind))), own, job)
            part._abort = abort
            if of_world is not None and of_world.eager and kind not in self._hints:
                part.split_from = of_world, self._ranks
        if isinstance(self._device, torch.device) and self._device.type in kinds:
            group.bound_device_id = self._device  # makes PyTorch connect at once, and split


def _warn_of_unused(hints: dict[str, dict[str, str]], group: ProcessGroup) -> None:
    """Warn of hints for types of device that no library serves in a group."""
    for kind, own in hints.items():
        if kind not in group._libraries and own and own.get("backend") != NAME:
            warnings.warn(
                f"chorus: {group.comm.name!r}: pg_options for {kind} ({', '.join(own)}) have no effect: not all ranks "
                f"offer the same library and a GPU of their own; name the library, as {kind!r}: {{'backend': 'nccl'}}",
                stacklevel=2,
            )


def _placed(carrier: str | None, device: Any) -> torch.device:
    """The device of a group whose backend has no host: init_process_group's device_id, or else the current one."""
    from chorus.errors import InvalidArgumentError

    if isinstance(device, torch.device) and device.type in drivers:
        return device
    if device is None and "cuda" in drivers:
        return torch.device("cuda", torch.cuda.current_device())
    if device is not None or len(drivers) != 1:
        raise InvalidArgumentError(
            f"chorus: {carrier} is for {' or '.join(drivers) or 'no device here'}: pass device_id=torch.device(...)"
        )
    return torch.empty(0, device=next(iter(drivers))).device


def _created(backend: str, options: Any, backend_options: Any) -> ProcessGroup:
    """Make a group; PyTorch calls this for every group. Errors about hints say where the program has given them."""
    from chorus import _patches
    from chorus.errors import InvalidArgumentError

    try:
        return _create(backend, options, backend_options, _patches.locals_of_creation())
    except InvalidArgumentError as error:
        if isinstance(backend_options, dict) and any(str(name) in str(error) for name in backend_options):
            error.args = (f"{error} (pg_options={backend_options!r})",)
        raise


_creators = {name: functools.partial(_created, name) for name in NAMES}


def _carrier(backend: str, options: Any, given: dict[str, Any] | None) -> tuple[str | None, dict[str, str]]:
    """The library's backend that carries out a group's operations, and its hints; by default the world's."""
    from chorus._pg_options import text
    from chorus.errors import InvalidArgumentError

    world: Any = dist.group.WORLD if dist.is_initialized() else None
    if backend == ACCL:
        if given is None and getattr(getattr(world, "comm", None), "backend", None) == ACCL:
            return ACCL, world._hints
        if given is None and ACCL in defaults:
            given = defaults[ACCL](options.group_rank, options.group_size)
        return ACCL, {k if "." in k else f"{ACCL}.{k}": text(v) for k, v in (given or {}).items()}
    hints = dict(given or {})
    theirs = getattr(getattr(world, "comm", None), "backend", None)
    library = _library(hints.pop("backend", theirs if theirs in (*LIBRARIES, MPI) else None), MPI)
    if library is not None:
        return library, hints
    inherited = "gloo" if theirs == "gloo" else NAME
    wire = hints.pop("wire", inherited)
    if wire not in (NAME, "gloo"):
        raise InvalidArgumentError(f"chorus: pg_options: wire is chorus or gloo, not {wire!r}")
    if wire == NAME:
        return None, hints
    return "gloo", {**hints, "own_store": "true"}


def _library(name: str | None, *others: str) -> str | None:
    """The library's backend that ``pg_options`` names, or None. It may be one of others, too."""
    from chorus.errors import InvalidArgumentError

    known = (*LIBRARIES, *others)
    if name is not None and name not in known:
        raise InvalidArgumentError(f"chorus: pg_options: backend is one of {', '.join(known)}, not {name!r}")
    return name


def _of_world(name: str) -> Any:
    """An attribute of the world; None if it has none."""
    return getattr(dist.group.WORLD, name, None) if dist.is_initialized() else None


def _name(options: Any, caller: dict[str, Any]) -> str:
    """A group's name in messages: its description if it has one, such as ``default_pg`` or ``mesh_dp``, else PyTorch's
    name for it."""
    description = caller.get("group_desc")
    return str(description if description not in (None, "", "undefined") else options.group_id or "world")


def _other_backends(ours: str, options: Any, caller: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The backends of a group's other devices, by device type.

    PyTorch takes a process group that is written in Python for the whole group. It drops the
    backends that it made before, and makes none after. Only the local variables of its function that
    calls us, ``_new_process_group_helper``, tell which there should be.
    """
    from chorus.errors import UnsupportedError

    config, group = caller.get("backend_config"), caller.get("pg")
    if config is None or group is None:
        return {}
    found: dict[str, tuple[Any, Any]] = {}
    for device, name in config.get_device_backend_map().items():
        if name == ours:
            continue
        if name in NAMES:
            raise UnsupportedError(f"chorus: {ours!r} and {name!r} can't be in one group; each serves all devices")
        kind = dist.Backend.backend_type_map[name]
        try:
            backend = group._get_backend(torch.device(device))
        except RuntimeError:  # PyTorch would have made it after this backend
            store = PrefixStore(f"{device}/", caller["prefix_store"])
            backend = _make(name, store, options, caller.get("backend_options"))
        found[device] = kind, backend
    return found


def _make(name: str, store: Store, options: Any, backend_options: Any) -> Any:
    """A backend of PyTorch, as _new_process_group_helper makes it."""
    from chorus.errors import UnsupportedError

    rank, size, timeout = options.group_rank, options.group_size, options.timeout
    if name == dist.Backend.NCCL:
        if not dist.is_nccl_available():
            raise UnsupportedError("chorus: this PyTorch was built without NCCL")
        nccl: Any = dist.ProcessGroupNCCL
        if not isinstance(backend_options, nccl.Options):
            backend_options = nccl.Options()
            backend_options.is_high_priority_stream = False
        backend_options._timeout = timeout
        backend_options.global_ranks_in_group = options.global_ranks_in_group
        backend_options.group_name = options.group_id
        backend = nccl(store, rank, size, backend_options)
        backend._set_sequence_number_for_group()
        return backend
    if name == dist.Backend.GLOO:
        gloo: Any = dist.ProcessGroupGloo
        backend = gloo(store, rank, size, timeout=timeout)
        backend._set_sequence_number_for_group()
        return backend
    plugin = dist.Backend._plugins.get(name.upper())
    if plugin is None:
        raise UnsupportedError(f"chorus: the backend {name!r} can't be in one group with chorus")
    if not plugin.extended_api:
        return plugin.creator_fn(store, rank, size, timeout)
    theirs = _DistributedBackendOptions()
    theirs.store = store
    for field in ("group_rank", "group_size", "timeout", "group_id", "global_ranks_in_group"):
        setattr(theirs, field, getattr(options, field))
    return plugin.creator_fn(theirs, backend_options)


def make_group(
    store: Store, rank: int, size: int, timeout: timedelta, name: str, hints: dict[str, Any] | None = None
) -> ProcessGroup:
    """A group of the ranks that meet on a store, unknown to PyTorch: for frameworks with groups of their own.

    ``hints`` are those of ``pg_options``. The ranks wait for each other, for ``timeout`` at most.
    """
    options = _DistributedBackendOptions()
    options.store, options.timeout, options.group_id = store, timeout, name
    options.group_rank, options.group_size = rank, size
    return _create(NAME, options, hints, {})


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """A barrier that names the ranks that didn't come within the timeout.

    It does the same as ``torch.distributed.monitored_barrier``, which refuses every backend but Gloo up to
    PyTorch 2.13. Raises :class:`chorus.TimeoutError`, on every rank that came; see
    :meth:`ProcessGroup.monitored_barrier`.
    """
    from chorus.process_group import ours

    ours(group).monitored_barrier(timeout, wait_all_ranks)


def split_group(ranks: list[int], group: Any = None, **options: Any) -> ProcessGroup | None:
    """A group of some of a group's ranks, known to PyTorch like one of ``new_group``.

    Every rank of ``group`` (default: the world) calls it with the ranks, in ``group``, of its own part, in the
    order of their new ranks; a rank that isn't among those it passes gets None. Options are
    those of :meth:`ProcessGroup.split_group`. ``torch.distributed.split_group`` itself needs
    an accelerator.
    """
    from chorus._pytorch_groups import adopt
    from chorus.process_group import ours

    parent = ours(group)
    part = parent.split_group(ranks, **options)
    if part is None:
        return None
    adopt(part, part.group_name, [dist.get_global_rank(parent, r) for r in ranks], part.get_group_store())
    return part


def failure(group: Any = None) -> Exception | None:
    """Why a group (default: the world) is broken, with all facts; None if it isn't.

    If PyTorch passes an error through C++, as DistributedDataParallel's backward does, the program
    gets a RuntimeError with its text. This function returns the :class:`chorus.Error` itself.
    """
    from chorus.process_group import ours

    return ours(group).failure
