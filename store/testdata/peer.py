"""A PyTorch process that keeps stores for a Go test.

Reads one JSON request a line from stdin and answers it with one line on stdout,
each request on a thread of its own, so that a call that waits holds up nobody.
Byte strings travel as latin-1 text.
"""
import datetime
import json
import sys
import threading

import torch.distributed as dist

stores = {}
opened = {}
kept = []
alone = threading.Lock()
out = threading.Lock()
BLOCKING = {"get", "wait", "multi_get", "queue_pop", "barrier"}
SILENT = {"set", "append", "multi_set", "queue_push"}


def seconds(s):
    return datetime.timedelta(seconds=s)


def raw(x):
    if isinstance(x, str):
        return x.encode("latin-1")
    if isinstance(x, list):
        return [raw(y) for y in x]
    return x


def text(x):
    if isinstance(x, bytes):
        return x.decode("latin-1")
    if isinstance(x, str):
        return x.encode("utf-8", "surrogateescape").decode("latin-1")
    if isinstance(x, list):
        return [text(y) for y in x]
    return x


def new(kind, a):
    if kind == "tcp":
        more = {"use_libuv": a.get("libuv", True)} if hasattr(dist.TCPStore, "libuvBackend") else {}
        return dist.TCPStore(a["host"], a["port"], a.get("world"), a.get("master", False),
                             seconds(a["timeout"]), a.get("wait", False), **more)
    if kind == "file":
        return dist.FileStore(a["path"], a["world"])
    if kind == "prefix":
        return dist.PrefixStore(a["prefix"], stores[a["base"]])
    raise ValueError(kind)


def call(name, method, args, timeout):
    s = stores[name]
    # One client of PyTorch carries one request at a time, waits included.
    if method in BLOCKING and isinstance(s, dist.TCPStore):
        s = s.clone() if hasattr(s, "clone") else new("tcp", dict(opened[name], port=s.port, master=False))
    # A FileStore of PyTorch 1 does not survive two threads.
    if isinstance(s, dist.FileStore) and not hasattr(s, "clone"):
        if method in BLOCKING:
            s = new("file", opened[name])
            kept.append(s)  # its destructor would write to the file
        else:
            with alone:
                return invoke(s, method, args, timeout)
    return invoke(s, method, args, timeout)


def invoke(s, method, args, timeout):
    args = [raw(a) for a in args or []]
    if method == "wait_here":
        return s.wait(args, seconds(timeout))
    if method == "wait":
        return s.wait(args[0], seconds(timeout))
    if method == "barrier":
        return s.barrier(args[0], args[1], seconds(timeout))
    if timeout and method in BLOCKING and not isinstance(s, dist.PrefixStore):
        s.set_timeout(seconds(timeout))
    r = getattr(s, method)(*args)
    if method in SILENT:
        s.num_keys()  # is answered after the server has done what came before
        return None
    return r


def handle(q):
    try:
        if "new" in q:
            stores[q["as"]] = new(q["new"], q["args"])
            opened[q["as"]] = q["args"]
            r = getattr(stores[q["as"]], "port", 0) if q["new"] == "tcp" else 0
        elif "drop" in q:
            del stores[q["drop"]]
            r = None
        else:
            r = text(call(q["on"], q["method"], q["args"], q.get("timeout", 0)))
        a = {"id": q["id"], "result": r}
    except Exception as e:
        a = {"id": q["id"], "error": f"{type(e).__name__}: {e}"}
    with out:
        print(json.dumps(a), flush=True)


for line in sys.stdin:
    threading.Thread(target=handle, args=(json.loads(line),), daemon=True).start()
