"""The groups that PyTorch knows."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from chorus._devices import drivers


def reset_group_count() -> None:
    """Reset PyTorch's count of groups if there is no world, so that a new attempt gives the world the same name.

    PyTorch names groups by how many this process has begun, and would look for its peers under another name.
    destroy_process_group does the same.
    """
    if not dist.is_initialized():
        dist.distributed_c10d._world.group_count = 0


def adopt(group: dist.ProcessGroup, name: str, global_ranks: list[int], store: Store | None) -> None:
    """Make a group known to PyTorch like one of ``new_group``; ``global_ranks`` are its members in the world."""
    c10d: Any = dist.distributed_c10d
    world = c10d._world
    world.pg_map[group] = (group.name(), store)
    world.pg_names[group] = name
    world.pg_backend_config[group] = ",".join(f"{kind}:{group.name()}" for kind in ("cpu", *drivers))
    world.pg_group_ranks[group] = {r: i for i, r in enumerate(global_ranks)}
    tag = f"ptd:{name}"
    world.pg_to_tag[group] = tag
    world.tags_to_pg.setdefault("", []).append(group)
    world.tags_to_pg.setdefault(tag, []).append(group)
    c10d._register_process_group(name, group)
