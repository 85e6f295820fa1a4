"""Device meshes over communicators made by hand, for tensor parallelism and FSDP."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from chorus._pytorch_groups import adopt
from chorus.backend import register
from chorus.torchcomms._types import ReduceOp
from chorus.torchcomms._wrapper import CommGroup
from chorus.torchcomms.comm import TorchComm


def _create_torchcomm_process_group(
    comm: TorchComm,
    group_name: str,
    backend_str: str = "torchcomm",
    global_ranks_mapping: dict[int, int] | None = None,
) -> CommGroup:
    """A communicator as a process group that torch.distributed knows by name.

    ``global_ranks_mapping`` gives the group's rank for each of its members' global ranks;
    without it the two are the same. ``backend_str`` is ignored; the backend is "chorus".
    """
    register()
    group = CommGroup(comm)
    group.setGroupName(group_name)
    mapping = global_ranks_mapping or {r: r for r in range(comm.get_size())}
    adopt(group, group_name, sorted(mapping, key=mapping.__getitem__), None)
    return group


def init_device_mesh(
    mesh_dim_comms: tuple[TorchComm, ...],
    mesh_dim_names: tuple[str, ...],
    _global_comm: TorchComm | None = None,
) -> DeviceMesh:
    """A mesh whose dimension i is communicated over by ``mesh_dim_comms[i]``. Collective.

    The global ranks are those of ``_global_comm``, which may be left out if there is only one dimension;
    its group becomes torch.distributed's world if there is none yet. Raises RuntimeError
    if it's needed and missing, and ValueError if the communicators don't form a mesh.
    """
    if len(mesh_dim_comms) != len(mesh_dim_names) or not mesh_dim_comms:
        raise ValueError(f"{len(mesh_dim_comms)} communicators and {len(mesh_dim_names)} names of dimensions")
    if _global_comm is None and len(mesh_dim_comms) > 1:
        raise RuntimeError("a mesh of several dimensions needs a communicator of all ranks: _global_comm")
    everybody = _global_comm or mesh_dim_comms[0]
    shape = [comm.get_size() for comm in mesh_dim_comms]
    mesh = _arranged(everybody, [comm.get_rank() for comm in mesh_dim_comms], shape)
    if not dist.is_initialized():
        world: Any = _create_torchcomm_process_group(everybody, everybody.get_name())
        dist.distributed_c10d.GroupMember.WORLD = world
    here = tuple(comm.get_rank() for comm in mesh_dim_comms)
    groups: list[Any] = []
    for dim, (comm, name) in enumerate(zip(mesh_dim_comms, mesh_dim_names, strict=True)):
        line = mesh[here[:dim] + (slice(None),) + here[dim + 1 :]].tolist()
        groups.append(
            _create_torchcomm_process_group(comm, name, global_ranks_mapping={r: i for i, r in enumerate(line)})
        )
    kind = everybody.get_device().type
    if len(groups) == 1:
        return DeviceMesh.from_group(groups[0], kind, mesh_dim_names=mesh_dim_names)
    return DeviceMesh.from_group(groups, kind, mesh, mesh_dim_names=mesh_dim_names)


def _arranged(everybody: TorchComm, mine: list[int], shape: list[int]) -> torch.Tensor:
    """The global ranks at their places in the mesh, exchanged by all ranks."""
    places = torch.empty(everybody.get_size(), len(mine), dtype=torch.int64)
    everybody.all_gather_single(places, torch.tensor([mine]), False)
    mesh = torch.full(shape, -1, dtype=torch.int)
    if mesh.numel() == len(places) and bool((places < torch.tensor(shape)).all()):
        mesh[tuple(places.t())] = torch.arange(len(places), dtype=torch.int)
    # All ranks must learn whether the mesh is valid.
    fine = torch.tensor([int((mesh >= 0).all())])
    everybody.all_reduce(fine, ReduceOp.MIN, False)
    if not fine.item():
        raise ValueError(f"communicators of {shape} ranks don't form a mesh of {everybody.get_size()}")
    return mesh


def _flatten_with_comm(
    mesh: DeviceMesh, mesh_dim_name: str, comm: TorchComm, global_ranks: list[int], layout: Any = None
) -> DeviceMesh:
    """Several dimensions of a mesh as one, ``mesh[mesh_dim_name]``, over a communicator of its own.

    ``global_ranks`` are the members in the communicator's order. ``layout`` is ignored: it follows from them.
    """
    mapping = {r: i for i, r in enumerate(global_ranks)}
    group: Any = _create_torchcomm_process_group(comm, mesh_dim_name, global_ranks_mapping=mapping)
    flat: Any = DeviceMesh.from_group(group, mesh.device_type, mesh_dim_names=(mesh_dim_name,))
    if not hasattr(mesh, "_get_root_mesh"):  # PyTorch 2.6 has tables of all meshes instead
        tables: Any = torch.distributed.device_mesh._mesh_resources
        tables.child_to_root_mapping[flat] = tables.get_root_mesh(mesh)
        tables.root_to_flatten_mapping.setdefault(tables.get_root_mesh(mesh), {})[mesh_dim_name] = flat
        return flat  # type: ignore[no-any-return]
    root: Any = mesh._get_root_mesh()
    flat._root_mesh = root
    root._flatten_mapping[mesh_dim_name] = flat
    return flat  # type: ignore[no-any-return]
