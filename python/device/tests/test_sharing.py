"""torch.multiprocessing shares tensors of the device."""

import gc
import os
import pickle
import signal
import time
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
import torch.multiprocessing as mp
from chorus_device import sharing

D = "accinte"
spawn = mp.get_context("spawn")


def soon(what, seconds=60):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        gc.collect()
        time.sleep(0.01)


def kept():
    return len(sharing.sharer().storages)


def changes(got, answers):
    """A process that doubles each tensor that it gets, until it gets None."""
    while (x := got.get()) is not None:
        for t in x:
            t.detach().mul_(2)
        torch.accelerator.synchronize()
        answers.put([(str(t.device), tuple(t.size()), t.stride(), type(t).__name__, t.requires_grad) for t in x])
        del t, x
        gc.collect()


class Other:
    """Another process, that runs a function with two queues."""

    def __init__(self, f):
        self.got, self.answers = spawn.Queue(), spawn.Queue()
        self.process = spawn.Process(target=f, args=(self.got, self.answers), daemon=True)
        self.process.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.got.put(None)
            self.process.join(60)
            assert self.process.exitcode == 0
        self.process.kill()
        self.process.join()

    def ask(self, x):
        self.got.put(x)
        return self.answers.get(timeout=100)


def test_both_have_the_memory():
    before = [torch.accinte.memory_allocated(i) for i in range(2)]
    with Other(changes) as other:
        base = torch.arange(24.0, device=D)
        tensors = [base.view(2, 3, 4).transpose(0, 2), base[5:9], torch.ones(3, dtype=torch.int16, device="accinte:1"),
                   torch.nn.Parameter(torch.ones(2, device=D)), torch.ones(2, device=D, requires_grad=True),
                   torch.empty(0, device=D), torch.ones((), dtype=torch.bfloat16, device="accinte:1")]  # fmt: skip
        want = [(str(t.device), tuple(t.size()), t.stride(), type(t).__name__, t.requires_grad) for t in tensors]
        assert other.ask(tensors) == want
        wanted = torch.arange(24.0) * 2
        wanted[5:9] *= 2
        assert torch.equal(base.cpu(), wanted)
        for t in tensors[2:5]:
            assert torch.equal(t.detach().cpu(), torch.full_like(t.detach().cpu(), 2))
        soon(lambda: kept() == 0)
        with torch.Stream(D):  # the other process must see its work done
            x = torch.zeros(1 << 18, device=D)
            for _ in range(50):
                x += 1
            other.ask([x])
        assert x.eq(100).all()
        del base, tensors, t, x
        soon(lambda: [torch.accinte.memory_allocated(i) for i in range(2)] == before)


def holds(got, answers):
    x = got.get()
    answers.put(x.sum().item())
    if got.get() == "drop":
        del x
        gc.collect()
        answers.put("dropped")
        got.get()


def test_memory_is_kept_until_it_is_dropped():
    before = torch.accinte.memory_allocated()
    with Other(holds) as other:
        x = torch.ones(1 << 16, device=D)
        assert other.ask(x) == 1 << 16
        del x
        gc.collect()
        assert torch.accinte.memory_allocated() == before + (4 << 16) and kept() == 1
        assert other.ask("drop") == "dropped"
        soon(lambda: torch.accinte.memory_allocated() == before and kept() == 0)


def test_a_killed_receiver_drops_it():
    before = torch.accinte.memory_allocated()
    other = Other(holds)
    assert other.ask(torch.ones(1 << 16, device=D)) == 1 << 16
    gc.collect()
    assert kept() == 1
    os.kill(other.process.pid, signal.SIGKILL)
    other.process.join()
    soon(lambda: torch.accinte.memory_allocated() == before and kept() == 0)


def shares(got, answers):
    x = torch.arange(1000.0, device=D)
    torch.accinte.synchronize()
    answers.put(x)
    answers.put(x)
    got.get()


def test_a_killed_sharer_leaves_nothing():
    shm = set(os.listdir("/dev/shm"))
    other = Other(shares)
    x = other.answers.get(timeout=100)
    late = other.answers._reader.recv_bytes()  # a message that is unpickled only after its sender is gone
    with pytest.raises(RuntimeError, match="received from another process, and can't be passed on"):
        ForkingPickler.dumps(x)
    os.kill(other.process.pid, signal.SIGKILL)
    other.process.join()
    assert torch.equal(x.cpu(), torch.arange(1000.0))  # this process still has the memory
    x += 1
    assert x[0].item() == 1
    with pytest.raises(RuntimeError, match=f"process {other.process.pid}, which shared a tensor, has ended"):
        pickle.loads(late)
    del x
    gc.collect()
    assert not {f for f in os.listdir("/dev/shm") if f.startswith(("chorus", "torch"))} - shm


def test_within_a_process():
    x = torch.ones(3, device=D)
    sent = ForkingPickler.dumps(x)
    y = pickle.loads(sent)
    assert y.data_ptr() == x.data_ptr() and kept() == 0
    with pytest.raises(RuntimeError, match="received once"):
        pickle.loads(sent)
    z = torch.ones(2, device=D, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="non-leaf"):
        ForkingPickler.dumps(z)
    storage = pickle.loads(ForkingPickler.dumps(x.untyped_storage()))
    assert storage.data_ptr() == x.data_ptr()
    assert torch.equal(pickle.loads(ForkingPickler.dumps(torch.ones(2))), torch.ones(2))  # CPU tensors, by PyTorch


def test_unauthenticated_clients_are_refused():
    import multiprocessing
    from multiprocessing.connection import Client

    address = sharing.sharer().address
    with pytest.raises(multiprocessing.AuthenticationError):
        Client(address, "AF_UNIX", authkey=b"guessed")
    x = torch.ones(3, device=D)
    with Other(holds) as other:
        assert other.ask(x) == 3
