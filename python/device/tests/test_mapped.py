"""Ordinary CPU tensors in memory that peers map."""

import os
import random
import threading

import pytest
import torch
import torch.distributed as dist

import chorus


@pytest.fixture
def mapped():
    chorus.use_shared_allocator()
    yield
    chorus.use_shared_allocator(False)


def test_new_tensors_of_a_page_and_more(mapped):
    assert chorus.is_shared(torch.randn(1024)) and chorus.is_shared(torch.ones(10, 1000) @ torch.ones(1000, 200))
    assert not chorus.is_shared(torch.empty(1023)) and torch.empty(0).data_ptr() == 0
    x = torch.empty(0)
    assert chorus.is_shared(x.resize_(1 << 20)) and x.untyped_storage().resizable()
    assert torch.empty(1 << 16).data_ptr() % 64 == 0
    kept = torch.arange(2048)
    chorus.use_shared_allocator(False)
    assert not chorus.is_shared(torch.randn(2048)) and chorus.is_shared(kept) and kept.sum() == 2047 * 1024


def test_freed_memory_is_used_again(mapped):
    for elements in (1024, 5000, 1 << 18, 3 << 20):
        x = torch.empty(elements)
        at = x.data_ptr()
        del x
        assert torch.empty(elements).data_ptr() == at, elements


def test_threads_share_nothing_by_accident(mapped):
    wrong = []

    def work(seed):
        choose, kept = random.Random(seed), []
        for i in range(300):
            kept.append(torch.full((choose.choice([1, 1024, 1500, 4096, 100_000, 300_000]),), float(seed * 1000 + i)))
            if len(kept) > 8:
                x = kept.pop(choose.randrange(len(kept)))
                if x[0] // 1000 != seed or not bool((x == x[0]).all()):
                    wrong.append((seed, i))
        if choose.random() < 0.5:
            others.extend(kept)  # another thread frees them

    others = []
    threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    others.clear()
    assert not wrong


def test_child_made_by_fork(mapped):
    inherited = torch.ones(5000)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            own = torch.full((5000,), 2.0)
            inherited[0] = 7.0
            copied = inherited.clone()
            del own, copied
            try:
                chorus.use_shared_allocator()
            except RuntimeError as error:
                code = 0 if "spawn" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert inherited[0] == 7.0 and torch.equal(inherited[1:], torch.ones(4999))
    assert chorus.is_shared(torch.empty(5000))


def _training(peers):
    chorus.use_shared_allocator()
    try:
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
        shared = chorus.is_shared(next(model.parameters()))
        ddp = torch.nn.parallel.DistributedDataParallel(model)
        x = torch.randn(32, 64, generator=torch.Generator().manual_seed(peers.rank))
        ddp(x).square().mean().backward()
        y = torch.full((100_000,), float(peers.rank))
        dist.all_reduce(y)
        return shared, chorus.is_shared(y), bool((y == 1).all()), [p.grad.tolist() for p in model.parameters()]
    finally:
        chorus.use_shared_allocator(False)


def test_training(pair):
    first, second = pair.run(_training)
    assert first[:3] == second[:3] == (True, True, True) and first[3] == second[3]
