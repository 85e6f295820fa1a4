# One rank of PyTorch in a job with ranks in Go: runs a list of operations and keeps what it got.
#
# usage: peer.py DIR    DIR/cases.json is the list; rank r writes the raw bytes of its results, in order, to DIR/r.

import json
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

directory = sys.argv[1]
TIMEOUT = timedelta(seconds=float(os.environ.get("PEER_TIMEOUT", "60")))


def values(dtype, rank, count):
    """The first elements of a rank's input; the Go side has the same formula."""
    i = torch.arange(count, dtype=torch.int64)
    k = (i * 7919 + rank * 104729) % 251
    if dtype in (torch.float32, torch.float64):
        x = ((k - 125).to(torch.float64) / 997).to(dtype)
        x[i % 29 == 5 * rank + 3] = float("nan")
        return x
    if dtype.is_floating_point:
        return ((k % 120 + 8) * (1 - 2 * (k % 2))).to(torch.float32).div(16).to(dtype)
    if dtype == torch.bool:
        return k % 3 > 0
    if dtype == torch.uint8:
        return k.to(dtype)
    return ((k - 125) * (400 if dtype == torch.int64 else 1)).to(dtype)


def split(count, sender, receiver):
    """How many elements a rank sends to another in the uneven all-to-all."""
    return count * (sender + 2 * receiver + 1) // 16


def run(case, group, rank, n):
    kind, count, root = case["kind"], case["count"], case["root"] % n
    dtype = getattr(torch, case["dtype"])
    op = getattr(dist.ReduceOp, case["op"].upper()) if case["op"] else None
    world = lambda r: dist.get_global_rank(group, r)
    x = values(dtype, rank, count)
    blocks = values(dtype, rank, n * count)
    empty = lambda k: torch.full((k,), 1, dtype=dtype)
    if kind == "all_reduce":
        dist.all_reduce(x, op=op, group=group)
        return [x]
    if kind == "reduce":
        dist.reduce(x, world(root), op=op, group=group)
        return [x] if rank == root else []
    if kind == "broadcast":
        dist.broadcast(x, world(root), group=group)
        return [x]
    if kind == "all_gather":
        out = [empty(count) for _ in range(n)]
        dist.all_gather(out, x, group=group)
        return out
    if kind == "all_gather_single":
        out = empty(n * count)
        dist.all_gather_into_tensor(out, x, group=group)
        return [out]
    if kind == "reduce_scatter_single":
        out = empty(count)
        dist.reduce_scatter_tensor(out, blocks, op=op, group=group)
        return [out]
    if kind == "reduce_scatter":
        out = empty(count)
        dist.reduce_scatter(out, list(blocks.split(count)) if count else [blocks.clone() for _ in range(n)], op=op, group=group)
        return [out]
    if kind == "all_to_all_single":
        out = empty(n * count)
        dist.all_to_all_single(out, blocks, group=group)
        return [out]
    if kind == "all_to_all":
        out = [empty(count) for _ in range(n)]
        dist.all_to_all(out, [blocks[r * count:(r + 1) * count].clone() for r in range(n)], group=group)
        return out
    if kind == "all_to_all_v_single":
        sent = [split(count, rank, r) for r in range(n)]
        got = [split(count, r, rank) for r in range(n)]
        out = empty(sum(got))
        dist.all_to_all_single(out, values(dtype, rank, sum(sent)), got, sent, group=group)
        return [out]
    if kind == "gather":
        out = [empty(count) for _ in range(n)] if rank == root else None
        dist.gather(x, out, world(root), group=group)
        return out or []
    if kind == "scatter":
        out = empty(count)
        ins = [blocks[r * count:(r + 1) * count].clone() for r in range(n)] if rank == root else None
        dist.scatter(out, ins, world(root), group=group)
        return [out]
    if kind == "barrier":
        dist.barrier(group=group)
        return []
    if kind == "ring":  # everybody sends to the next rank, and receives from the one before
        out = empty(count)
        work = dist.isend(x, world((rank + 1) % n), group=group, tag=7)
        dist.recv(out, world((rank + n - 1) % n), group=group, tag=7)
        work.wait()
        return [out]
    if kind == "any":  # everybody sends to the root, which doesn't say from whom it receives
        if rank != root:
            dist.send(x, world(root), group=group, tag=root)
            return []
        outs = {}
        for _ in range(n - 1):
            out = empty(count)
            outs[dist.recv(out, group=group, tag=root)] = out
        return [outs[r] for r in sorted(outs)]
    raise ValueError(kind)


dist.init_process_group("gloo", timeout=TIMEOUT)
rank, n = dist.get_rank(), dist.get_world_size()
with open(f"{directory}/cases.json") as f:
    cases = json.load(f)
with open(f"{directory}/{rank}", "wb") as f:
    group = dist.group.WORLD
    for case in cases:
        if case["kind"] == "new_group":
            group = dist.new_group(case["ranks"]) if case["ranks"] else dist.group.WORLD
            continue
        if group is dist.GroupMember.NON_GROUP_MEMBER:
            continue
        try:
            for t in run(case, group, dist.get_rank(group), dist.get_world_size(group)):
                f.write(t.contiguous().view(torch.uint8).numpy().tobytes())
        except BaseException as e:
            raise RuntimeError(f"{case}: {e}") from e
dist.destroy_process_group()
