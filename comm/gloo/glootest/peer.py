# Ranks of PyTorch for tests of Go: one process imports PyTorch and forks one for each rank that it's told of, which
# costs milliseconds in place of seconds.
#
# Each line of its input is a rank: {"id", "env", "dir", "script", "out", "ns"}. The output is a line with PyTorch's
# version, and a line "id pid" for each rank, and "id 0 status" when it has ended. A rank runs the script, or else the
# list of steps in DIR/steps.json; what it prints goes to OUT.

import ctypes
import faulthandler
import functools
import json
import os
import select
import signal
import sys
import traceback
import zlib
from datetime import timedelta

import torch
import torch.distributed as dist


PERIOD = 251 * 29  # elements, after which an input begins again


@functools.cache
def period(dtype, rank, nan):
    """The first elements of a rank's input, which then begins again; the Go side has the same formula."""
    if dtype.is_complex:  # two numbers each
        return numbers(dtype.to_real(), rank, 2 * PERIOD, nan).view(dtype)
    return numbers(dtype, rank, PERIOD, nan)


def numbers(dtype, rank, count, nan):
    i = torch.arange(count, dtype=torch.int64)
    k = (i * 7919 + rank * 104729) % 251
    if dtype in (torch.float32, torch.float64):
        x = ((k - 125).to(torch.float64) / 997).to(dtype)
        if nan:
            x[i % 29 == 5 * rank + 3] = float("nan")
        return x
    if dtype.is_floating_point:
        return ((k % 120 + 8) * (1 - 2 * (k % 2))).to(torch.float32).div(16).to(dtype)
    if dtype == torch.bool:
        return k % 3 > 0
    if dtype == torch.uint8:
        return k.to(dtype)
    return ((k - 125) * (400 if dtype == torch.int64 else 1)).to(dtype)


def values(dtype, rank, count, nan):
    """A rank's input."""
    once = period(dtype, rank, nan)
    return once[:count].clone() if count <= PERIOD else once.repeat(-(-count // PERIOD))[:count]


def split(count, sender, receiver):
    """How many elements a rank sends to another in the uneven all-to-all."""
    return count * (sender + 2 * receiver + 1) // 16


def run(case, group, rank, n, wait):
    """Begin a step and return its results, which are there when what was given to wait is over."""
    kind, count, root = case["kind"], case["count"], case["root"] % n
    dtype = getattr(torch, case["dtype"])
    op = getattr(dist.ReduceOp, case["op"].upper()) if case["op"] else None
    world = lambda r: dist.get_global_rank(group, r)
    nan = case["nan"]
    x = values(dtype, rank, count, nan)
    blocks = lambda: values(dtype, rank, n * count, nan)  # large
    cut = lambda: list(blocks().view(n, count))
    empty = lambda k: torch.full((k,), 1, dtype=dtype)
    if kind == "all_reduce":
        wait(dist.all_reduce(x, op=op, group=group, async_op=True))
        return [x]
    if kind == "reduce":
        wait(dist.reduce(x, world(root), op=op, group=group, async_op=True))
        return [x] if rank == root else []
    if kind == "broadcast":
        wait(dist.broadcast(x, world(root), group=group, async_op=True))
        return [x]
    if kind == "all_gather":
        out = [empty(count) for _ in range(n)]
        wait(dist.all_gather(out, x, group=group, async_op=True))
        return out
    if kind == "all_gather_single":
        out = empty(n * count)
        wait(dist.all_gather_into_tensor(out, x, group=group, async_op=True))
        return [out]
    if kind == "reduce_scatter_single":
        out = empty(count)
        wait(dist.reduce_scatter_tensor(out, blocks(), op=op, group=group, async_op=True))
        return [out]
    if kind == "reduce_scatter":
        out = empty(count)
        wait(dist.reduce_scatter(out, cut(), op=op, group=group, async_op=True))
        return [out]
    if kind == "all_to_all_single":
        out = empty(n * count)
        wait(dist.all_to_all_single(out, blocks(), group=group, async_op=True))
        return [out]
    if kind == "all_to_all":
        out = [empty(count) for _ in range(n)]
        wait(dist.all_to_all(out, cut(), group=group, async_op=True))
        return out
    if kind == "all_to_all_v_single":
        sent = [split(count, rank, r) for r in range(n)]
        got = [split(count, r, rank) for r in range(n)]
        out = empty(sum(got))
        wait(dist.all_to_all_single(out, values(dtype, rank, sum(sent), nan), got, sent, group=group, async_op=True))
        return [out]
    if kind == "gather":
        out = [empty(count) for _ in range(n)] if rank == root else None
        wait(dist.gather(x, out, world(root), group=group, async_op=True))
        return out or []
    if kind == "scatter":
        out = empty(count)
        ins = cut() if rank == root else None
        wait(dist.scatter(out, ins, world(root), group=group, async_op=True))
        return [out]
    if kind == "barrier":
        wait(dist.barrier(group=group, async_op=True))
        return []
    if kind == "ring":  # everybody sends to the next rank, and receives from the one before
        out = empty(count)
        work = dist.isend(x, world((rank + 1) % n), group=group, tag=7)
        dist.recv(out, world((rank + n - 1) % n), group=group, tag=7)
        work.wait()
        return [out]
    if kind == "any":  # everybody sends to the root, which doesn't say from whom it receives
        if rank != root:
            dist.send(x, world(root), group=group, tag=case["tag"])
            return []
        outs = {}
        for _ in range(n - 1):
            out = empty(count)
            outs[dist.recv(out, group=group, tag=case["tag"])] = out
        return [outs[r] for r in sorted(outs)]
    raise ValueError(kind)


def play(directory):
    """Run the steps, and keep a checksum of the results of each in DIR/RANK, or the results themselves."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=float(os.environ.get("PEER_TIMEOUT", "60"))))
    with open(f"{directory}/steps.json") as f:
        steps = json.load(f)
    raw = os.environ.get("PEER_RAW") == "1"
    group, pending = dist.group.WORLD, []
    with open(f"{directory}/{dist.get_rank()}", "wb") as f:

        def collect():
            for works, outs in pending:
                for w in works:
                    w.wait()
                total = 0
                for t in outs:
                    data = t.view(torch.uint8).numpy()
                    if raw:
                        f.write(data)
                    else:
                        total = zlib.crc32(data, total)
                if not raw:
                    f.write(total.to_bytes(4, "little"))
            pending.clear()

        for i, step in enumerate(steps):
            try:
                if step["kind"] == "new_group":
                    collect()
                    if group is not dist.group.WORLD and group is not dist.GroupMember.NON_GROUP_MEMBER:
                        dist.destroy_process_group(group)
                    group = dist.new_group(step["ranks"]) if step["ranks"] else dist.group.WORLD
                elif group is not dist.GroupMember.NON_GROUP_MEMBER:
                    works = []
                    outs = run(step, group, dist.get_rank(group), dist.get_world_size(group), works.append)
                    pending.append((works, outs))
                    if not step["async"]:
                        collect()
            except BaseException as e:
                raise RuntimeError(f"step {i}, {step}: {e}") from e
        collect()
    dist.destroy_process_group()


def enter(libc, there, here):
    """Go to another namespace, unless this process is there."""
    if os.stat(there).st_ino != os.stat(here).st_ino:
        with open(there) as f:
            if libc.setns(f.fileno(), 0):
                raise OSError(ctypes.get_errno(), there)


def rank(order):
    """The life of one rank."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    os.environ.update(order["env"])
    out = os.open(order["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    faulthandler.enable()
    status = 1
    try:
        for kind in ("user", "net") if order["ns"] else ():
            enter(libc, f"{order['ns']}/{kind}", f"/proc/self/ns/{kind}")
        if order["script"]:
            exec(order["script"], {"__name__": "__main__", "directory": order["dir"], "run": run})
        else:
            play(order["dir"])
        status = 0
    except SystemExit as e:
        status = e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def serve():
    """Fork ranks until the input ends; they end with this process."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    ids, rest = {}, b""
    print(torch.__version__, flush=True)
    while True:
        for fd in select.select([0, woken], [], [])[0]:
            got = os.read(fd, 1 << 16)
            if fd == 0 and not got:
                return
            if fd == 0:
                rest += got
        *lines, rest = rest.split(b"\n")
        for line in lines:
            order = json.loads(line)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                rank(order)
            ids[pid] = order["id"]
            print(order["id"], pid, flush=True)
        while ids:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            print(ids.pop(pid), 0, os.waitstatus_to_exitcode(status), flush=True)


serve()
