"""First use: a program imports nothing but torch."""

import pathlib
import subprocess
import sys
import textwrap

import alone
import pytest
from children import path_with
from versions import since

PROGRAM = """
import torch
if not torch.accinte.is_available():
    exit()
x = torch.tensor([[1., 2.], [3., 4.]], device=torch.device("accinte"))
y = x + 2
print("Result y:\\n", y); print(f"Device of y: {y.device}")
z = y.cpu()
print("Result z:\\n", z); print(f"Device of z: {z.device}")
"""

PRINTS = """\
Result y:
 tensor([[3., 4.],
        [5., 6.]], device='accinte:0')
Device of y: accinte:0
Result z:
 tensor([[3., 4.],
        [5., 6.]])
Device of z: cpu
"""


def run(program, **env):
    import os

    env = {**os.environ, **env}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=240, env=env
    )


def test_the_program():
    done = run(PROGRAM)
    assert done.returncode == 0, done.stderr
    assert done.stdout == PRINTS


def test_the_program_with_these_three_packages_alone(tmp_path):
    """The distributions chorus-comms, chorus-device and torch-accinte are enough."""
    done = alone.run(PROGRAM, tmp_path, *alone.OURS)
    assert (done.returncode, done.stdout) == (0, PRINTS), done.stderr


def test_no_device_is_installed(tmp_path):
    """With chorus-device alone ``import torch`` adds nothing, and what needs a device says so."""
    done = alone.run("""
        import torch, chorus, chorus_device
        print(torch._C._get_privateuse1_backend_name(), hasattr(torch, "accinte"))
        for needs in (chorus_device.load, chorus.use_shared_allocator):
            try:
                needs()
            except RuntimeError as error:
                print(error)
    """, tmp_path, "chorus-comms", "chorus-device")  # fmt: skip
    none = "there is no device to plug in: no package with one is installed"
    assert done.stdout.splitlines() == [
        "privateuseone False",
        none,
        f"use_shared_allocator needs a device of the package chorus-device, such as that of torch-accinte: {none}",
    ], done.stderr
    assert done.stderr == ""


def test_autoload_can_be_switched_off():
    done = run("import torch; print(hasattr(torch, 'accinte'))", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.stdout == "False\n", done.stderr


def test_plugged_in_without_autoload():
    """A program imports the device's package."""
    done = run(
        "import torch, torch_accinte; print(torch.accinte is torch_accinte, torch.ones(2, device='accinte').cpu())",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert done.stdout == "True tensor([1., 1.])\n", done.stderr


def test_load():
    """``load`` plugs the device in if autoload is off; a second call changes nothing."""
    done = run(
        """
        import torch, chorus_device
        print(hasattr(torch, "accinte"))
        chorus_device.load()
        module = torch.accinte
        chorus_device.load()
        chorus_device._autoload()
        print(torch.accinte is module, torch.ones(2, device="accinte").cpu())
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert done.stdout == "False\nTrue tensor([1., 1.])\n", done.stderr


def test_autoload_again():
    done = run("""
        import torch, chorus_device
        module = torch.accinte
        chorus_device._autoload()
        print(torch.accinte is module, torch.accinte.is_available())
    """)
    assert done.stdout == "True True\n", done.stderr


def test_waiting_without_the_library():
    done = run(
        """
        import torch
        for wait in (torch.accinte.synchronize, torch.accinte.default_stream):
            try:
                wait()
            except RuntimeError as error:
                print("can't be used" in str(error), "nowhere" in str(error))
    """,
        CHORUS_LIBRARY="/nowhere/libchorus.so",
    )
    assert done.stdout == "True True\n" * 2, done.stderr


FROM_META = """
    import warnings
    warnings.simplefilter("ignore")
    import torch, torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    dist.init_process_group("chorus", store=dist.HashStore(), rank=0, world_size=1)
    with torch.device("meta"):
        module = torch.nn.Linear(4, 4)
    fully_shard(module, mesh=init_device_mesh("accinte", (1,)))
    module.to_empty(device="accinte")
    try:
        module.reset_parameters()
    except RuntimeError as error:
        print("torch.accinte.use_philox()" in str(error))
    torch.accinte.use_philox()
    module.reset_parameters()
    weight = module.weight.to_local()
    print(weight.abs().max().item() <= 0.5, weight.unique().numel() > 10)
    dist.destroy_process_group()
"""


def test_fsdp_from_meta():
    """DTensor draws the parameters; it needs offsets, and its error says so."""
    done = run(FROM_META)
    assert done.stdout == "True\nTrue True\n", done.stderr


def test_import_is_quick():
    """Compilers and distributed tensors get the device's registrations when they're imported, not before."""
    done = run("import sys, torch; print([m for m in ('torch._dynamo', 'torch._inductor') if m in sys.modules])")
    assert done.stdout == "[]\n", done.stderr


def test_why_it_could_not_be_loaded():
    """``import torch`` succeeds, and the use of the device raises the cause."""
    done = run("""
        import sys
        class Broken:
            def find_spec(self, name, path=None, target=None):
                if name == "chorus_device._C":
                    raise ImportError("libstdc++ is too old")
        sys.meta_path.insert(0, Broken())
        import torch
        print(torch.accinte.is_available(), torch.accinte.device_count())
        try:
            torch.accinte.current_stream()
        except RuntimeError as error:
            print(error, "|", type(error.__cause__).__name__)
    """)
    assert done.stdout == "False 0\ntorch.device('accinte') can't be used: libstdc++ is too old | ImportError\n", (
        done.stderr
    )


def test_a_package_that_is_not_installed():
    """``import torch`` doesn't find the device that the variable names. The program's import of its package plugs it
    in, as without autoload."""
    done = run(
        """
        import torch
        try:
            torch.zoom.current_device()
        except RuntimeError as error:
            print(error)
        import torch_zoom
        from chorus_device import _plug
        print(torch.zoom is torch_zoom, torch._C._get_privateuse1_backend_name(), _plug.failure)
        """,
        CHORUS_TORCH_DEVICE="zoom",
        PYTHONPATH=path_with(pathlib.Path(__file__).resolve().parents[2] / "zoom"),
    )
    assert done.stdout == (
        "torch.device('zoom') can't be used: no installed package has a device 'zoom', which CHORUS_TORCH_DEVICE "
        "names: set CHORUS_TORCH_DEVICE to one of accinte\nTrue zoom None\n"
    ), done.stderr


def test_one_place_for_a_device():
    done = run("""
        import types, torch, chorus_device
        try:
            chorus_device.plug("zoom", driver="accinte", module=types.ModuleType("zoom"))
        except RuntimeError as error:
            print(error)
    """)
    assert "'accinte' has taken it in this process: 'zoom' can't have it as well" in done.stdout, done.stderr


def test_host_code_that_touches_device_memory_ends():
    """The process ends, also if C code reads the memory: the address isn't mapped in the host."""
    import signal

    done = run("""
        import ctypes, torch
        x = torch.ones(4, device="accinte")
        print("about to read", flush=True)
        ctypes.string_at(x.data_ptr(), 16)
        print("read")
    """)
    assert done.stdout == "about to read\n"
    assert done.returncode == -signal.SIGSEGV or "SIGSEGV" in done.stderr


def test_importing_torch_loads_no_library():
    """A child made by fork from a process that has only imported PyTorch can use the device, and chorus."""
    done = run("""
        import os, torch
        print("libchorus" in open("/proc/self/maps").read(), flush=True)
        if os.fork() == 0:
            x = torch.ones(2, device="accinte") + 1
            import chorus
            print(x.cpu().tolist(), bool(chorus.version()), torch.accinte._is_in_bad_fork(), flush=True)
            os._exit(0)
        os.wait()
        print(torch.accinte.device_count() > 0, "libchorus" in open("/proc/self/maps").read())
    """)
    assert done.stdout == "False\n[2.0, 2.0] True False\nTrue True\n", done.stderr


def test_no_library(tmp_path):
    """The first use raises that the library is missing."""
    (tmp_path / "chorus").mkdir()
    (tmp_path / "chorus/__init__.py").write_text("def _autoload(): pass\n")
    (tmp_path / "chorus/backend.py").write_text("def serve(name, driver, begun): pass\n")
    (tmp_path / "chorus/_patches.py").write_text("def apply(name, argument): pass\n")
    (tmp_path / "chorus/_libpath.py").write_text(f"def library(): return {str(tmp_path / 'libchorus.so')!r}\n")
    done = run("""
        import torch
        print(torch.accinte.is_available())
        try:
            torch.ones(2, device="accinte")
        except RuntimeError as error:
            print(str(error).splitlines()[0])
    """, PYTHONPATH=path_with(tmp_path))  # fmt: skip
    first, second = done.stdout.splitlines()
    assert first == "False", done.stdout
    assert second.startswith("torch.device('accinte') can't be used: libchorus.so can't be loaded: "), done.stdout
    assert "no accinte device can be used" in done.stderr


def test_fork():
    done = run("""
        import os, torch
        torch.ones(2, device="accinte")
        if os.fork() == 0:
            try:
                torch.accinte.init()
            except RuntimeError as error:
                print(error, torch.accinte._is_in_bad_fork(), flush=True)
            os._exit(0)
        os.wait()
    """)
    assert done.stdout.startswith("Cannot re-initialize AccInte in forked subprocess."), done.stderr
    assert done.stdout.endswith(" True\n")


def test_any_use_may_be_the_first():
    """Each kind of use opens the device, and loads the library."""
    done = run("""
        import os, torch
        for first in ("mem_get_info()", "set_per_process_memory_fraction(0.5)", "memory_stats()", "MemPool()",
                      "default_stream().synchronize()", "profiler.emit_ranges().__enter__()", "staged_bytes()",
                      "memory._record_memory_history()", "use_mem_pool(torch.accinte.MemPool()).__enter__()"):
            if (child := os.fork()) == 0:
                try:
                    eval("torch.accinte." + first)
                except BaseException as error:
                    print(first, repr(error), flush=True)
                os._exit(0)
            status = os.waitpid(child, 0)[1]
            if status:
                print(first, "ended with", status, flush=True)
    """)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


@pytest.mark.parametrize("first", ["torch_accinte", "chorus_device"])
def test_the_package_can_be_imported_first(first):
    done = run(f"import {first}, torch; print({first}.plug.__name__, torch.ones(1, device='accinte').device)")
    assert done.stdout == "plug accinte:0\n", done.stderr


SETTLED = """
import os, weakref, torch
from chorus_device import _device

class Thing:
    pass

def alive():
    "Whether autograd's thread still has what the pass was begun with, when the pass is over for its caller."
    thing = Thing()
    ref = weakref.ref(thing)
    torch._C._stash_obj_in_tls("thing", thing)  # tasks of autograd take what is there along
    del thing
    (x * 2).sum().backward()
    torch._C._stash_obj_in_tls("thing", None)
    if settling:
        _device.c().drain_autograd(60)
    return ref() is not None

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # the caller goes on before the thread has let go
x = torch.ones(2, 4, device="accinte", requires_grad=True)
for settling in (False, True):
    print(sum(alive() for _ in range(300)) > 0)
"""


@since(2, 13, "a value in its thread-local state loses a reference that it doesn't own")
def test_autograd_threads_drop_their_objects():
    done = run(SETTLED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1] == "False", "they still have what a pass was begun with"
    if done.stdout.split()[0] == "False":
        pytest.skip("they are always faster than their callers on this machine")


END = """
import sys, threading, time, torch
from chorus_device import _device

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        if "STUCK":
            threading.Event().wait()
        return g * 2

def step():
    Twice.apply(torch.ones(2, 4, device="accinte", requires_grad=True)).sum().backward()

class Spy:
    def __getattr__(self, name):
        return getattr(extension, name)

    def drain_autograd(self, seconds):
        extension.drain_autograd(min(seconds, 1))
        print("settled")

extension = _device.c()
_device.c = Spy
torch.ones(2, 4, device="accinte") * 2  # the first Meta kernel in Python imports much
threading.Thread(target=step, daemon=True).start() if "STUCK" else step()
time.sleep(0.5 if "STUCK" else 0)
"""


@pytest.mark.parametrize("stuck", ["", "stuck"])
def test_the_end_after_a_backward_pass(stuck):
    """Autograd's threads drop Python objects before the interpreter's end, whose wait for a stuck one has a limit."""
    done = run(END.replace("STUCK", stuck))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "settled\n"
