"""Devices whose memory the process can't touch, as that of most GPUs: OpenCL's without shared memory."""

import pytest
from test_zoom import run

pytestmark = pytest.mark.long

BUFFERS = {"CHORUS_OPENCL_SHARED_MEMORY": "false"}


def lines(program):
    done = run(program, **BUFFERS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_indexes():
    """Operators with indexes are the device's, and nothing goes through the host but the words of their errors."""
    said = lines("""
        import torch
        import torch.nn.functional as F
        x = torch.arange(10.0, device="zoom")
        good, bad = (torch.tensor(list, device="zoom") for list in ([1, 3], [1, 30]))
        x[good] = 7
        print(torch.zoom.get_device_properties(0).host_access, x.gather(0, good).tolist(), x[good].sum().item())
        weight = torch.randn(5000, 64, device="zoom", requires_grad=True)
        logits = torch.randn(2, 5000, device="zoom", requires_grad=True)
        (F.embedding(good, weight).sum() + F.cross_entropy(logits, good)).backward()
        print(torch.zoom.fallback_counts(), torch.zoom.memory.staged_bytes() < 1 << 19)
        waits = {"item": lambda t: t.sum().item(), "cpu": lambda t: t.cpu(), "to": lambda t: t.to("cpu", torch.int8),
                 "device": lambda t: torch.zoom.synchronize(),
                 "stream": lambda t: torch.zoom.current_stream().synchronize()}
        for name, wait in waits.items():
            read = x[bad]
            try:
                wait(read)
            except IndexError as error:
                print(name, str(error).split(" on ")[0])
            wait(read)
    """)  # fmt: skip
    assert said[:2] == ["False [7.0, 7.0] 14.0", "{} True"]
    waits = ("item", "cpu", "to", "device", "stream")
    assert said[2:] == [f"{wait} index out of range in aten::index" for wait in waits]


def test_indexes_of_streams_and_threads():
    """An error of one stream is raised at a wait for another one that comes after it, once, and is never lost to the
    words of other threads."""
    said = lines("""
        import threading
        import torch
        x = torch.arange(10.0, device="zoom")
        good, bad = (torch.tensor(list, device="zoom") for list in ([1, 3], [1, 30]))
        side = torch.zoom.Stream()

        def raises(wait):
            try:
                wait()
            except IndexError as error:
                return str(error).split(" on ")[0]
            return "nothing"

        for _ in range(2):
            with side:
                read = x[bad]
            torch.zoom.current_stream().wait_stream(side)
            print(raises(read.sum().item), "then", raises(read.sum().item), raises(side.synchronize))
        ops = (lambda: x[good], lambda: x.gather(0, good), lambda: x.index_select(0, good), lambda: x.take(good))
        x[bad]
        done, over = threading.Barrier(301), threading.Event()

        def others():
            for op in ops:
                op()
            done.wait(200)
            over.wait(200)

        threads = [threading.Thread(target=others) for _ in range(300)]
        for t in threads:
            t.start()
        done.wait(200)
        print(raises(x.sum().item), "then", raises(torch.zoom.synchronize))
        over.set()
        for t in threads:
            t.join()
    """)  # fmt: skip
    error = "index out of range in aten::index"
    assert said == [f"{error} then nothing nothing"] * 2 + [f"{error} then nothing"]


CUSTOM = """
        import ctypes, threading, torch

        class Apart:
            \"\"\"What another thread does on a stream. It gives its result, or an error, or "held".\"\"\"
            def __init__(self, stream, do):
                self.result = "held"
                def work():
                    try:
                        with stream:
                            self.result = do()
                    except Exception as error:
                        self.result = error
                self.thread = threading.Thread(target=work, daemon=True)
                self.thread.start()
            def get(self):
                self.thread.join(100)
                return self.result

        here, side = torch.zoom.current_stream(), torch.zoom.Stream()
"""


def test_fallback_on_busy_streams():
    """An operator without a kernel holds no stream, and copies back what it has written and nothing else."""
    said = lines(CUSTOM + """
        library = torch.library.Library("plain", "DEF")
        library.define("second(Tensor(a!) column, Tensor read) -> Tensor")

        def second(column, read):
            done = [Apart(s, lambda: torch.ones(3, device="zoom").sum().item()).get() for s in (here, side)]
            done.append(Apart(here, lambda: (whole[:, 0].fill_(5), other.fill_(6), torch.zoom.synchronize())).get()[2])
            print(*done)
            column.add_(read)
            return read + 1

        library.impl("second", second, "CPU")
        for whole in (torch.zeros(4, 3, device="zoom"), torch.zeros(4, 3, device="zoom", dtype=torch.complex64)):
            other = torch.ones(4, device="zoom", dtype=whole.dtype)
            result = torch.ops.plain.second(whole[:, 1], other)
            print(whole.real.tolist(), other.real.tolist(), result.real.tolist())
        packed = torch.zeros(4, 3, device="zoom", dtype=torch.complex64)
        packed.conj()[:, 2].copy_(torch.tensor([1 + 2j, 3j, 0, 4]))
        print(packed[:, 2].tolist())
        results = []
        for s in [torch.zoom.Stream() for _ in range(12)]:
            with s:
                results.append(torch.linalg.eigvals(torch.eye(3, device="zoom")).real)
        torch.zoom.synchronize()
        print({tuple(r.tolist()) for r in results})
    """)  # fmt: skip
    after = f"{[[5.0, 1.0, 0.0]] * 4} {[6.0] * 4} {[2.0] * 4}"
    assert said == ["3.0 3.0 None", after] * 2 + ["[(1-2j), -3j, -0j, (4-0j)]", "{(1.0, 1.0, 1.0)}"]


def test_fallback_writes_large_columns():
    """A kernel puts what an operator without one has written in a column there, so that one copy brings all of it.
    Elements that share memory are copied each."""
    said = lines(CUSTOM + """
        from chorus_device._device import c
        library = torch.library.Library("plain", "DEF")
        library.define("rise(Tensor(a!) column) -> ()")
        library.impl("rise", lambda column: [column.add_(1), None][1], "CPU")
        whole = torch.zeros(1 << 15, 3, device="zoom")
        for part in (whole[:, 1], whole.t()[1:, 1:], whole[:3].diagonal(), whole.flatten().as_strided((2, 2), (2, 2))):
            copied, launched = torch.zoom.memory.staged_bytes(), c().kernel_counts(0)["launched"]
            torch.ops.plain.rise(part)
            launched = c().kernel_counts(0)["launched"] - launched
            print(launched, torch.zoom.memory.staged_bytes() - copied < 8 * whole.nbytes)
        print(whole[:4].tolist(), whole[4:].sum(0).tolist())
    """)  # fmt: skip
    first = [[2.0, 1.0, 2.0], [0.0, 4.0, 1.0], [0.0, 2.0, 2.0], [0.0, 2.0, 1.0]]
    assert said == ["1 True"] * 3 + ["0 True", f"{first} {[0.0, 65528.0, 32764.0]}"]


def test_compiled_kernels_of_the_host():
    """A kernel of torch.compile's, which runs on the host, leaves alone what it only reads."""
    said = lines(CUSTOM + """
        from chorus_device.inductor import _launch
        kind = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p))

        @kind
        def kernel(cells):  # y = x + 1; another stream writes to x meanwhile
            x, y = (ctypes.cast(ctypes.cast(cells[k], ctypes.POINTER(ctypes.c_void_p))[0],
                                ctypes.POINTER(ctypes.c_float)) for k in (0, 1))
            print(Apart(side, lambda: (tensor.fill_(7), torch.zoom.synchronize())).get()[1])
            for k in range(4):
                y[k] = x[k] + 1

        tensor, result = torch.zeros(4, device="zoom"), torch.zeros(4, device="zoom")
        _launch(ctypes.cast(kernel, ctypes.c_void_p).value, "add", 1, tensor, result)
        print(tensor.tolist(), result.tolist())
    """)  # fmt: skip
    assert said == ["None", f"{[7.0] * 4} {[1.0] * 4}"]


def test_graphs():
    """A graph has kernels, with those at indexes; its replay's error is raised at a wait. An operator of the host's
    can't be captured, and says so."""
    said = lines("""
        import torch
        x, at = torch.arange(4.0, device="zoom"), torch.tensor([1, 3], device="zoom")
        x[at].add(1)
        torch.zoom.synchronize()
        graph = torch.zoom.Graph()
        with torch.zoom.graph(graph):
            y = x[at] + 1
        for value in (2, 9, 0):
            at.fill_(value)
            graph.replay()
            try:
                print(y.tolist())
            except IndexError as error:
                print(str(error).split(" on ")[0])
        copied = torch.zoom.memory.staged_bytes()
        at.add_(1).sum().item()
        print(torch.zoom.memory.staged_bytes() - copied)  # no words, as the graph didn't run
        failed = torch.zoom.Graph()
        matrix = torch.eye(3, device="zoom")
        try:
            with torch.zoom.graph(failed):
                torch.linalg.eigvals(matrix)
        except RuntimeError as error:
            print(str(error).splitlines()[0])
        print(torch.linalg.eigvals(matrix).real.tolist())
    """)  # fmt: skip
    assert said[:4] == ["[3.0, 3.0]", "index out of range in aten::index", "[1.0, 1.0]", "0"]
    assert "can't be captured" in said[4] and "eigvals" in said[4] and said[5] == "[1.0, 1.0, 1.0]"


def test_threads_pinned_memory_and_traces():
    """Autograd's threads, several threads on a stream, memory used by several streams, pinned memory, and a trace."""
    said = lines("""
        import threading
        import torch
        from torch.profiler import ProfilerActivity, profile
        total = torch.zeros(1, device="zoom")
        library = torch.library.Library("plain", "DEF")
        library.define("add(Tensor(a!) to, float n) -> ()")
        library.impl("add", lambda to, n: [to.add_(n), None][1], "CPU")

        def work(n):
            for _ in range(20):
                torch.ops.plain.add(total, n)

        threads = [threading.Thread(target=work, args=(n,)) for n in (1.0, 100.0)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        print(total.item())
        weight = torch.randn(50, 8, device="zoom", requires_grad=True)
        picked = torch.nn.functional.embedding(torch.tensor([1, 1, 49], device="zoom"), weight)
        torch.linalg.eigvalsh(picked[:, :3] @ picked[:, :3].T).sum().backward()  # the fallback in autograd's thread
        print(weight.grad[2:49].abs().sum().item(), bool(weight.grad[49].abs().sum() > 0))
        side = torch.zoom.Stream()
        big = torch.ones(1 << 20, device="zoom")
        with side:
            side.wait_stream(torch.zoom.default_stream())
            for _ in range(20):
                out = big * 3
        big.record_stream(side)
        del big
        torch.full((1 << 20,), 8.0, device="zoom")
        torch.zoom.default_stream().wait_stream(side)
        print(out.sum().item() / (1 << 20))
        host = torch.arange(1000.0).pin_memory()
        there = host.to("zoom", non_blocking=True)
        back = torch.empty(1000, pin_memory=True)
        back.copy_(there * 2, non_blocking=True)
        torch.zoom.synchronize()
        print(host.is_pinned(), back.equal(host * 2), there[::2].cpu().equal(host[::2]))
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as trace:
            torch.linalg.eigvals(there[:9].reshape(3, 3)).abs().sum().item()
        print(any("eigvals" in e.key for e in trace.key_averages()))
    """)  # fmt: skip
    assert said == ["2020.0", "0.0 True", "3.0", "True True True", "True"]


def test_interrupts():
    """Ctrl-C during a copy to the host is raised when the copy is over, since its memory may be freed then."""
    said = lines("""
        import signal
        import torch
        x = torch.full((1024, 1024), 1e-3, device="zoom")
        (x @ x).sum().item()
        pinned = torch.empty(1024, 1024)
        for read in (lambda: y[0, 0].item(), lambda: pinned.copy_(y)):
            y = x
            for _ in range(8):
                y = y @ x
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            try:
                read()
            except KeyboardInterrupt:
                print(torch.zoom.current_stream().query())
            print(y[0, 0].item() > 0)
    """)  # fmt: skip
    assert said == ["True", "True"] * 2
