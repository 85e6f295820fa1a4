# Runs a list of collectives on PyTorch's Gloo backend and keeps every rank's results.
#
# usage: gloo.py DIR    DIR/cases.json is the list; rank r of the world of n writes DIR/n.r.
#
# The file has the raw bytes of the results of one case after the other; a case
# that Gloo refuses leaves nothing but a line in DIR/refused.n.r.

import ctypes
import json
import os
import sys
import warnings

import torch
import torch.distributed as dist

warnings.filterwarnings("ignore")

WORLD = 4
directory = sys.argv[1]
DTYPES = {
    "float32": torch.float32, "float64": torch.float64, "float16": torch.float16, "bfloat16": torch.bfloat16,
    "int32": torch.int32, "int64": torch.int64, "uint8": torch.uint8,
}


def values(dtype, rank, start, count):
    """Elements start to start + count of a rank's input; the Go side has the same formula."""
    i = torch.arange(start, start + count, dtype=torch.int64)
    k = (i * 7919 + rank * 104729) % 251
    if dtype in (torch.float32, torch.float64):
        return ((k - 125).to(torch.float64) / 997).to(dtype)
    if dtype.is_floating_point:  # exact in 8 bits
        return ((k % 120 + 8) * (1 - 2 * (k % 2))).to(torch.float32).div(16).to(dtype)
    if dtype == torch.uint8:
        return k.to(dtype)
    return ((k - 125) * (400 if dtype == torch.int64 else 1)).to(dtype)


def split(count, sender, receiver):
    """How many elements a rank sends to another in the uneven all-to-all."""
    return count * (sender + 2 * receiver + 1) // 16


def run(case, group, rank, n):
    kind, count, root = case["kind"], case["count"], case["root"]
    dtype = DTYPES[case["dtype"]]
    op = getattr(dist.ReduceOp, case["op"].upper()) if case["op"] else None
    x = values(dtype, rank, 0, count)
    blocks = values(dtype, rank, 0, n * count)
    empty = lambda k: torch.full((k,), 99, dtype=dtype)
    if kind == "all_reduce":
        dist.all_reduce(x, op=op, group=group)
        return [x]
    if kind == "reduce":
        dist.reduce(x, root, op=op, group=group)
        return [x] if rank == root else []
    if kind == "broadcast":
        dist.broadcast(x, root, group=group)
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
    if kind == "all_to_all_single":
        out = empty(n * count)
        dist.all_to_all_single(out, blocks, group=group)
        return [out]
    if kind == "all_to_all_v_single":
        sent = [split(count, rank, s) for s in range(n)]
        got = [split(count, r, rank) for r in range(n)]
        out = empty(sum(got))
        dist.all_to_all_single(out, values(dtype, rank, 0, sum(sent)), got, sent, group=group)
        return [out]
    if kind == "gather":
        out = [empty(count) for _ in range(n)] if rank == root else None
        dist.gather(x, out, root, group=group)
        return out or []
    if kind == "scatter":
        out = empty(count)
        dist.scatter(out, list(blocks.split(count)) if rank == root else None, root, group=group)
        return [out]
    raise ValueError(kind)


def main(rank):
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=WORLD)
    with open(f"{directory}/cases.json") as f:
        cases = json.load(f)
    for n in (2, 3, 4):
        group = dist.new_group(list(range(n)))
        if rank >= n:
            continue
        with open(f"{directory}/{n}.{rank}", "wb") as out, open(f"{directory}/refused.{n}.{rank}", "w") as refused:
            for case in cases:
                case = dict(case, root=case["root"] % n)
                try:
                    results = run(case, group, rank, n)
                except RuntimeError as e:
                    print(case["kind"], case["op"], case["dtype"], file=refused)
                    continue
                for t in results:
                    out.write(ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()))
    dist.barrier()
    dist.destroy_process_group()


# One import for all ranks: PyTorch has no threads yet when they part.
children = []
me = 0
for r in range(1, WORLD):
    child = os.fork()
    if child == 0:
        me = r
        break
    children.append(child)
main(me)
if me != 0:
    os._exit(0)
if any(os.waitpid(c, 0)[1] != 0 for c in children):
    sys.exit("a rank failed")
