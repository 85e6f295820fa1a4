import gc
import threading

import pytest
import torch
from versions import since

D = torch.device("accinte:0")


def test_figures():
    before = torch.accinte.memory_allocated()
    x = torch.empty(1 << 20, device=D)
    assert torch.accinte.memory_allocated() == before + (4 << 20) == torch.accelerator.memory_allocated()
    assert torch.accinte.memory_reserved() >= torch.accinte.memory_allocated()
    torch.accinte.reset_peak_memory_stats()
    y = torch.empty(1 << 20, device=D)
    del y
    assert torch.accinte.max_memory_allocated() == before + (8 << 20) == torch.accelerator.max_memory_allocated()
    assert (
        torch.accelerator.memory_stats()["allocated_bytes.all.current"]
        == torch.accinte.memory_stats()["allocated_bytes.all.current"]
    )
    torch.accelerator.reset_accumulated_memory_stats()
    assert torch.accinte.memory_stats()["num_device_alloc"] == 0
    del x
    free, total = torch.accinte.mem_get_info()
    assert 0 < free <= total
    if hasattr(torch.accelerator, "get_memory_info"):
        assert (free, total) == torch.accelerator.get_memory_info()
    torch.accinte.empty_cache()
    assert torch.accinte.memory_reserved() <= torch.accinte.memory_allocated() + (20 << 20)


def test_out_of_memory():
    with pytest.raises(torch.OutOfMemoryError, match=r"^accinte out of memory. Tried to allocate 1024.00 GiB. Device"):
        torch.empty(1 << 40, dtype=torch.uint8, device=D)
    torch.ones(3, device=D)


def test_memory_is_used_again():
    x = torch.empty(1 << 20, device=D)
    at = x.data_ptr()
    del x
    assert torch.empty(1 << 20, device=D).data_ptr() == at


def test_record_stream():
    s = torch.Stream(D)
    x = torch.ones(1 << 20, device=D)
    with s:
        s.wait_stream(torch.accinte.current_stream())
        y = x * 2
    x.record_stream(s)
    del x
    s.synchronize()
    assert y.eq(2).all()


def test_storages():
    x = torch.arange(6.0, device=D)
    s = x.untyped_storage()
    assert s.nbytes() == 24 and s.device == D
    s.resize_(48)
    assert s.nbytes() == 48 and x.tolist() == [0, 1, 2, 3, 4, 5]
    y = torch.empty(0, device=D).set_(s)
    assert y.numel() == 12 and y.data_ptr() == x.data_ptr()
    z = torch.empty(0, device=D).set_(s, 2, (2, 2), (1, 2))
    assert z.tolist() == [[2, 4], [3, 5]]
    assert s.clone().data_ptr() != s.data_ptr() and s.cpu().nbytes() == 48
    empty = torch.empty(3, device=D).set_()
    assert empty.numel() == 0
    with pytest.raises(RuntimeError, match="Pin memory can only be on CPU|Only dense CPU tensors can be pinned|pin"):
        torch.empty(3, device=D, pin_memory=True)


def leaks(f, times=20):
    f()
    gc.collect()
    before = torch.accinte.memory_allocated()
    for _ in range(times):
        f()
    gc.collect()
    return torch.accinte.memory_allocated() - before


def test_no_leaks():
    def train():
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)).to(D)
        opt = torch.optim.Adam(model.parameters())
        for _ in range(2):
            opt.zero_grad()
            model(torch.randn(4, 8, device=D)).square().mean().backward()
            opt.step()

    def cycle():
        a, b = [torch.empty(1 << 16, device=D)], []
        a.append(b)
        b.append(a)

    for f in (lambda: torch.ones(1000, device=D) + 1, lambda: torch.ones(9, device=D).view(3, 3).t().sum(), train,
              cycle,
              lambda: torch.randn(100, device=D).sort()):  # fmt: skip
        assert leaks(f) == 0


def test_fraction():
    total = torch.accinte.mem_get_info()[1]
    torch.accinte.set_per_process_memory_fraction(0.25)
    try:
        assert torch.accinte.get_per_process_memory_fraction() == 0.25
        with pytest.raises(torch.OutOfMemoryError, match="GiB allowed"):
            torch.empty(total // 2, dtype=torch.uint8, device=D)
    finally:
        torch.accinte.set_per_process_memory_fraction(1.0)
    with pytest.raises(ValueError, match="Allowed range"):
        torch.accinte.set_per_process_memory_fraction(1.5)
    del total


def test_figures_for_people():
    x = torch.ones(1 << 20, device=D)
    nested = torch.accinte.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"]["current"] == torch.accinte.memory_allocated() >= x.nbytes
    summary = torch.accinte.memory_summary()
    assert "allocated_bytes, MiB" in summary and "large_pool" in summary
    assert "large_pool" not in torch.accinte.memory_summary(abbreviated=True)


def test_snapshot(tmp_path):
    from torch.cuda import _memory_viz

    torch.accinte.memory._record_memory_history()
    try:
        x = torch.empty(12345, device=D)
        y = torch.empty(10, device=D)
        del y
        snapshot = torch.accinte.memory._snapshot()
    finally:
        torch.accinte.memory._record_memory_history(None)
    blocks = [b for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated"]
    assert any(b["address"] == x.data_ptr() and b["requested_size"] == x.nbytes for b in blocks)
    assert [e["action"] for e in snapshot["device_traces"][0]][-3:] == ["free_requested", "free_completed", "snapshot"]
    assert "MiB" in _memory_viz.segsum(snapshot) and "<html" in _memory_viz.trace_plot(snapshot)
    torch.accinte.memory._dump_snapshot(str(tmp_path / "dump"))
    assert not torch.accinte.memory._snapshot()["device_traces"][0] and (tmp_path / "dump").stat().st_size > 100


def test_stacks(tmp_path):
    """A snapshot has the lines of the program that made each allocation, of live and of freed memory: in threads, in
    autograd functions, and whether or not the allocating thread holds the GIL."""
    from torch.cuda import _memory_viz

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    kept = []

    def outer():
        def inner():
            kept.append(torch.empty(4321, device=D))

        inner()

    w = torch.ones(3000, device=D, requires_grad=True)
    torch.accinte.memory._record_memory_history(max_entries=1000)
    try:
        outer()
        thread = threading.Thread(target=lambda: kept.append(torch.empty(5432, device=D) + 1))
        thread.start()
        thread.join()
        Double.apply(w).sum().backward()
        snapshot = torch.accinte.memory._snapshot()
    finally:
        torch.accinte.memory._record_memory_history(None)
    names = {
        b["address"]: [f["name"] for f in b["frames"]]
        for s in snapshot["segments"]
        for b in s["blocks"]
        if b["state"] == "active_allocated"
    }
    mine = names[kept[0].data_ptr()]
    assert [n.rpartition(".")[2] for n in mine[:3]] == ["inner", "outer", "test_stacks"]
    assert any("<lambda>" in n for n in names[kept[1].data_ptr()])
    trace = snapshot["device_traces"][0]
    assert any("backward" in f["name"] for e in trace for f in e["frames"] if e["action"] == "alloc")
    line = next(f for e in trace for f in e["frames"] if f["name"].endswith("inner"))
    assert line["filename"] == __file__ and "kept.append" in open(__file__).read().splitlines()[line["line"] - 1]
    freed = [e for e in trace if e["action"] == "free_completed" and e["size"] == 4 * 5432]
    assert freed and freed[0]["frames"]
    lines = []
    _memory_viz.memory(snapshot, lines.append)
    assert any("inner" in x for x in lines) and "<html" in _memory_viz.trace_plot(snapshot)

    torch.accinte.memory._record_memory_history(context=None)
    try:
        outer()
        assert not torch.accinte.memory._snapshot()["device_traces"][0][-2]["frames"]
    finally:
        torch.accinte.memory._record_memory_history(None)
    for wrong in ({"enabled": "some"}, {"context": "none"}, {"stacks": "cpp"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            torch.accinte.memory._record_memory_history(**wrong)


@since(2, 13, "torch.accelerator has no empty_host_cache")
def test_host_figures():
    torch.accelerator.empty_host_cache()  # waits for enqueued work that uses it
    before = torch.accinte.host_memory_stats()
    x = torch.ones(5000).pin_memory()  # 20,000 bytes in a block of 32 KiB
    after = torch.accinte.host_memory_stats()
    for name in ("active_bytes.current", "active_bytes.allocated"):
        assert after[name] == before[name] + 32768
    assert after["active_requests.current"] == before["active_requests.current"] + 1
    y = x.to(D, non_blocking=True)
    del x
    torch.accinte.synchronize()
    torch.empty(1).pin_memory()  # makes the allocator check which blocks are free
    torch.accelerator.empty_host_cache()
    nested = torch.accinte.host_memory_stats_as_nested_dict()
    assert nested["active_bytes"]["current"] <= before["active_bytes.current"]
    assert nested["num_host_free"] > before["num_host_free"] and nested["host_free_time"]["count"] > 0
    torch.accinte.reset_peak_host_memory_stats()
    torch.accinte.reset_accumulated_host_memory_stats()
    now = torch.accinte.host_memory_stats()
    assert now["active_bytes.peak"] == now["active_bytes.current"] and now["num_host_free"] == 0
    assert y[0].item() == 1


def test_no_history():
    for ended in (None, False):
        torch.accinte.memory._record_memory_history()
        torch.accinte.memory._record_memory_history(enabled=ended)
        before = len(torch.accinte.memory._snapshot(0)["device_traces"][0])
        torch.empty(1 << 20, device="accinte")
        assert len(torch.accinte.memory._snapshot(0)["device_traces"][0]) == before


def test_memory_pool():
    pool = torch.accinte.MemPool()
    others = []
    with torch.accinte.use_mem_pool(pool):
        x = torch.empty(1 << 16, device=D)
        thread = threading.Thread(target=lambda: others.append(torch.empty(1 << 16, device=D)))
        thread.start()
        thread.join()
    y = torch.empty(1 << 16, device=D)

    def within(t):
        return any(s["address"] <= t.data_ptr() < s["address"] + s["total_size"] for s in pool.snapshot())

    assert within(x) and not within(y) and not within(others[0]) and pool.use_count() == 1
    at = x.data_ptr()
    del x
    assert not within(torch.empty(1 << 16, device=D))
    with torch.accinte.use_mem_pool(pool):
        assert torch.empty(1 << 16, device=D).data_ptr() == at
    others.clear()
