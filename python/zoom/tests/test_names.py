"""The names of the original's torch.zoom, and of torch.cuda."""

import importlib
import pathlib
import re
import sys
import types
import warnings

import pytest
import torch
from test_zoom import D, run

ORIGINAL = """
    BFloat16Storage BoolStorage ByteStorage CharStorage ComplexDoubleStorage ComplexFloatStorage DeferredZoomCallError
    DoubleStorage Event ExternalStream FloatStorage HalfStorage IntStorage LongStorage OutOfMemoryError ShortStorage
    Stream StreamContext ZoomPluggableAllocator _is_compiled _is_in_bad_fork _lazy_call _lazy_init amp
    caching_allocator_alloc caching_allocator_delete can_device_access_peer change_current_allocator
    current_blas_handle current_device current_stream default_generators default_stream device device_count device_of
    empty_cache get_allocator_backend get_amp_supported_dtype get_device_capability get_device_name
    get_device_properties get_rng_state get_rng_state_all get_sync_debug_mode graph graph_pool_handle graphs init
    init_zoom initial_seed ipc_collect is_available is_bf16_supported is_current_stream_capturing is_initialized
    make_graphed_callables manual_seed manual_seed_all max_memory_allocated max_memory_cached max_memory_reserved
    mem_get_info memory memory_allocated memory_cached memory_reserved memory_snapshot memory_stats
    memory_stats_as_nested_dict memory_summary random reset_accumulated_memory_stats reset_max_memory_allocated
    reset_max_memory_cached reset_peak_memory_stats seed seed_all set_device set_per_process_memory_fraction
    set_rng_state set_rng_state_all set_stream set_sync_debug_mode stream synchronize
""".split()


@pytest.mark.anywhere
def test_names_are_there():
    assert [name for name in ORIGINAL if not hasattr(torch.zoom, name)] == []
    zoom = ("memory", "random", "graphs", "amp", "version", "tunable")
    for name in (*("zoom." + name for name in zoom), "backends.zoom"):
        importlib.import_module("torch." + name)
    assert torch.zoom.memory.memory_allocated is torch.zoom.memory_allocated and torch.backends.zoom.is_built()
    assert sys.modules["torch.zoom"] is torch.zoom and torch.zoom._is_compiled()


def left_out():
    """The names of torch.cuda that docs/zoom.md says are missing, with the reasons."""
    page = (pathlib.Path(__file__).parents[3] / "docs/zoom.md").read_text()
    table = page.split("These names of `torch.cuda` aren't there:")[1].split("\n\n")[1]
    rows = re.findall(r"^\| (.+) \| (.+) \|$", table, re.M)
    return {name: why for names, why in rows for name in re.findall(r"`(\w+)`", names)}


@pytest.mark.anywhere
def test_names_of_cuda():
    """Each name of torch.cuda is there, or the page has the reason why it isn't."""

    def theirs(value):
        where = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
        return where is not None and where.startswith("torch.cuda")

    cuda = {name for name, value in vars(torch.cuda).items() if not name.startswith("_") and theirs(value)}
    lacks = {name for name in cuda if not hasattr(torch.zoom, name)}
    assert lacks - set(left_out()) == set() and len(cuda) > 80
    assert {name for name in left_out() if hasattr(torch.zoom, name)} == set()


@pytest.mark.anywhere
def test_properties():
    """They are those of torch.cuda that programs ask for, with the types that they have there."""
    found = [torch.zoom.get_device_properties(i) for i in range(torch.zoom.device_count())]
    for i, p in enumerate(found):
        assert p.name and p.total_memory > 0 and p.multi_processor_count >= 1 and type(p.host_access) is bool
        assert re.fullmatch(r"\w{8}(-\w{4}){3}-\w{12}", str(p.uuid)) and p.uuid.int
        assert torch.zoom.get_device_capability(i) == (p.major, p.minor)
        assert p.library.startswith(("CUDA ", "HIP ", f"OpenCL {p.major}.{p.minor}")) and p.major >= 1
    assert len({p.uuid for p in found}) == len(found)


def test_properties_of_an_older_library(monkeypatch):
    """One that doesn't know the last fields leaves them as they are."""
    from chorus import _lib

    get = _lib.library.chorus_device_get

    def older(device, info):
        status = get(device, info)
        info._obj.uuid, info._obj.views = None, 0
        return status

    monkeypatch.setattr(_lib.library, "chorus_device_get", older)
    found = torch.zoom.get_device_properties(0)
    assert found.name and found.uuid is None and found.host_access is None


@pytest.mark.anywhere
def test_registering_again():
    """As in the original's programs. Another module is still refused."""
    torch.utils.rename_privateuse1_backend("zoom")
    torch._register_device_module("zoom", torch.zoom)
    torch.utils.generate_methods_for_privateuse1_backend(unsupported_dtype=None)
    torch.utils.generate_methods_for_privateuse1_backend()
    with pytest.raises(RuntimeError, match="The runtime module of 'zoom' has already been registered"):
        torch._register_device_module("zoom", torch.cuda)
    with pytest.raises(RuntimeError, match="has already been set"):
        torch.utils.rename_privateuse1_backend("other")


@pytest.mark.anywhere
def test_seeds_load_no_driver():
    """A program that seeds everything may fork: nothing was loaded. The seed is that of the device's first numbers."""
    done = run("""
        import os, torch
        torch.manual_seed(7)
        loaded = lambda: "libchorus" in open("/proc/self/maps").read()
        print(loaded(), torch.zoom.is_initialized(), torch.zoom._is_in_bad_fork())
        torch.zoom.manual_seed_all(8), torch.zoom.use_philox(False), torch.zoom.manual_seed(7)
        print(loaded())
        if torch.zoom.is_available():
            x = torch.rand(5, generator=torch.Generator().manual_seed(7))
            assert torch.equal(torch.rand(5, device="zoom").cpu(), x)
            torch.zoom.use_philox()
            torch.zoom.manual_seed(-3)
            x = torch.rand(5, device="zoom")
            torch.manual_seed(-3)
            assert torch.equal(torch.rand(5, device="zoom"), x) and torch.zoom.initial_seed() == 2**64 - 3
        print("done")
    """)  # fmt: skip
    assert done.stdout == "False False False\nFalse\ndone\n", done.stdout + done.stderr


@pytest.mark.long
def test_deferred_calls():
    done = run("""
        import torch
        def fails():
            raise ValueError("this one")
        torch.zoom._lazy_call(lambda: print("called"))
        torch.zoom._lazy_call(fails)
        print("before", torch.zoom.is_initialized())
        try:
            torch.ones(2, device="zoom")
        except torch.zoom.DeferredZoomCallError as error:
            print(str(error).splitlines()[0], "torch.zoom._lazy_call(fails)" in str(error) or "<string>" in str(error))
        print(torch.ones(2, device="zoom").tolist(), torch.zoom.is_initialized())
        torch.zoom._lazy_call(lambda: print("at once"))
    """)  # fmt: skip
    assert done.stdout.splitlines() == [
        "before False", "called", "Zoom call failed lazily at initialization with error: this one True",
        "[1.0, 1.0] True", "at once",
    ], done.stdout + done.stderr  # fmt: skip


def test_waits_are_found():
    x = torch.arange(4.0, device=D)
    assert torch.zoom.get_sync_debug_mode() == 0
    try:
        for mode in (1, "warn"):
            torch.zoom.set_sync_debug_mode(mode)
            assert torch.zoom.get_sync_debug_mode() == 1
            with pytest.warns(UserWarning, match="called a synchronizing zoom operation: aten::_local_scalar_dense"):
                assert x.sum().item() == 6
        torch.zoom.set_sync_debug_mode("error")
        y = x * 2 + x.roll(1)  # nothing waits
        for wait in (y.nonzero, y.cpu, torch.zoom.current_stream().synchronize, lambda: y[y > 1]):
            with pytest.raises(RuntimeError, match="called a synchronizing zoom operation"):
                wait()
        torch.zoom.synchronize()  # as on CUDA
    finally:
        torch.zoom.set_sync_debug_mode("default")
    assert y.tolist() == [3, 2, 5, 8]
    for bad in ("loud", 3, -1):
        with pytest.raises(RuntimeError, match="invalid value of debug_mode, expected one of"):
            torch.zoom.set_sync_debug_mode(bad)


def test_storages():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        s = torch.ones(3, device=D).storage()
        assert s.type() == "torch.zoom.FloatStorage" and isinstance(s, torch.zoom.FloatStorage)
        made = torch.zoom.LongStorage(4)
        assert made.device == torch.device("zoom:0") and made.dtype == torch.int64 and len(made) == 4
        assert not any(isinstance(x, torch.zoom.FloatStorage) for x in (made, torch.ones(1).storage()))
        with pytest.raises(RuntimeError, match="Not available for Zoom storage"):
            torch.zoom.ByteStorage.from_buffer(b"", "native")
        assert torch.zoom.HalfStorage.dtype == torch.float16 and torch.is_storage(made)


def test_memory():
    at = torch.zoom.caching_allocator_alloc(1000, 0, torch.zoom.Stream())
    assert at and torch.zoom.memory_allocated() >= 1000
    torch.zoom.caching_allocator_delete(at)
    with pytest.raises(ValueError, match="is no memory of caching_allocator_alloc"):
        torch.zoom.caching_allocator_delete(at)
    with pytest.raises(TypeError, match="stream is int"):
        torch.zoom.caching_allocator_alloc(8, 0, 17)
    with pytest.raises(ValueError):
        torch.zoom.caching_allocator_alloc(0)
    with pytest.warns(FutureWarning, match="torch.zoom.memory_cached is now torch.zoom.memory_reserved"):
        assert torch.zoom.memory_cached() == torch.zoom.memory_reserved()
    with pytest.warns(FutureWarning):
        torch.zoom.reset_max_memory_allocated()
    assert torch.zoom.get_allocator_backend() == "native"
    for refused, given in (torch.zoom.change_current_allocator, [None]), (torch.zoom.ZoomPluggableAllocator, [""] * 3):
        with pytest.raises(NotImplementedError, match="can't be replaced"):
            refused(*given)
    torch.zoom.memory._record_memory_history()
    x = torch.ones(1 << 10, device=D)
    snapshot = torch.zoom.memory._snapshot()
    torch.zoom.memory._record_memory_history(enabled=None)
    assert any(event["action"] == "alloc" for event in snapshot["device_traces"][0]) and x.numel()
    assert torch.zoom.memory_snapshot() and "allocated_bytes" in torch.zoom.memory_summary()


def test_autocast_of_float32():
    assert torch.zoom.is_bf16_supported()
    x = torch.rand(4, 4, device=D)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.autocast(D, dtype=torch.float32):
            assert (x @ x).dtype == torch.float32 and (x.half() @ x.half()).dtype == torch.float32


@pytest.mark.long
@pytest.mark.anywhere
def test_without_autoload(tmp_path):
    done = run("""
        import torch
        print(hasattr(torch, "zoom"))
        import torch_zoom
        print(torch.zoom is torch_zoom, torch.device("zoom"))
    """, TORCH_DEVICE_BACKEND_AUTOLOAD="0")  # fmt: skip
    assert done.stdout == "False\nTrue zoom\n", done.stdout + done.stderr
