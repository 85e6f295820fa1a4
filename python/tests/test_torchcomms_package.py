"""The distribution that gives chorus.torchcomms the name torchcomms, and the examples, which use that name."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch.distributed
from worlds import free_port, sample

PYTHON = pathlib.Path(__file__).resolve().parents[1]
EXAMPLES = PYTHON / "examples" / "torchcomms"

WORDS = {
    "quick_start": (2, ["rank 1 of 2 on cpu: the sum is 3"]),
    "asynchronous": (2, ["rank 0: computed 65536", "[0.5, 1.5, 2.5, 3.5]"]),
    "file_store": (3, ["rank 2: all right, and rank 1 of 2 in half_0", "rank 1: all right, and rank 0 of 1 in half_1"]),
    "send_recv": (3, ["rank 0: rank 2 is on the left", "rank 1: rank 0 is on the left"]),
    "custom_options": (2, ["rank 0: TimeoutError: ranks (1,) did not come in 0.3 s"]),
    "windows": (2, ["rank 0: rank 1 has 2 and 3", "rank 1: rank 0 has 12 and 13"]),
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The distribution is built and installed into a directory of its own; returns an environment that finds it."""
    target = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source")  # building leaves files behind
    subprocess.run(["cp", "-r", str(PYTHON / "torchcomms"), str(source)], check=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--no-index",
         "--no-build-isolation", "--target", str(target), str(source / "torchcomms")], check=True,
    )  # fmt: skip
    return dict(os.environ, PYTHONPATH=str(target), OMP_NUM_THREADS="1")


def test_this_environment(tmp_path):
    """The name is a package's or nothing's: make python puts the folder python on the path, which has a folder of this
    name."""
    code = "import torchcomms; print(torchcomms.new_comm.__name__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "new_comm\n" or "No module named 'torchcomms'" in done.stderr, done.stderr


@pytest.mark.long
def test_editable(tmp_path):
    """The right package is imported even if the distribution's folder, which has its name, is on the path, too."""
    source, target = tmp_path / "python", tmp_path / "site"
    source.mkdir()
    subprocess.run(["cp", "-r", str(PYTHON / "torchcomms"), str(source)], check=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--no-index",
         "--no-build-isolation", "--target", str(target), "--editable", str(source / "torchcomms")], check=True,
    )  # fmt: skip
    code = f"import site; site.addsitedir({str(target)!r}); import torchcomms; print(torchcomms.new_comm.__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=source,
        env=dict(os.environ, PYTHONPATH=str(PYTHON)),
        capture_output=True,
        text=True,
    )
    assert done.stdout == "new_comm\n", done.stderr


def run(environment, code):
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def test_every_example_is_run():
    assert sorted(p.stem for p in EXAMPLES.glob("*.py")) == sorted(WORDS)


@pytest.mark.long
@pytest.mark.parametrize("name", sample(sorted(WORDS), "quick_start", "windows"))
def test_example(installed, name, tmp_path):
    ranks, words = WORDS[name]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--rdzv-backend=c10d",
         "--rdzv-endpoint=localhost:0", str(EXAMPLES / f"{name}.py"), str(tmp_path / "store")],
        env=installed, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for word in words:
        assert word in done.stdout, done.stdout
    assert "finalized" not in done.stderr


@pytest.mark.long
def test_import_torch_is_quiet(installed):
    if not hasattr(torch.distributed.distributed_c10d, "_TORCHCOMM_AVAILABLE"):
        pytest.skip("this PyTorch doesn't look for torchcomms")
    done = run(installed, "import sys, torch; print([m for m in sys.modules if 'torchcomms' in m],"
        " torch.distributed.distributed_c10d._TORCHCOMM_AVAILABLE)")  # fmt: skip
    assert done.stdout == "['torchcomms'] False\n" and done.stderr == ""
    assert not run(dict(installed, TORCH_DISTRIBUTED_USE_TORCHCOMMS="1"), "import torch").stderr


@pytest.mark.long
@pytest.mark.parametrize("first", ["torch", "torchcomms"])
def test_modules_are_the_same(installed, first):
    """Modules are the same in any order of imports, under both names."""
    run(installed, f"""if True:
        import {first}, torch, torchcomms
        import chorus.torchcomms as ours
        import torchcomms.objcol, torchcomms.functional.collectives, torchcomms.hooks.fr, torchcomms.distwrap
        from torchcomms import ReduceOp, TorchComm, new_comm, device_mesh
        from torchcomms._comms import OpName, RemovableHandle, AllReducePreHookArgs, SplitPostHookArgs, _BackendWrapper
        from torchcomms.functional.async_tensor import TorchCommsAsyncTensor
        from torchcomms.device_mesh import init_device_mesh, _create_torchcomm_process_group, _flatten_with_comm
        import chorus.torchcomms.functional.collectives
        assert new_comm is ours.new_comm and torchcomms.objcol is ours.objcol and torchcomms.hooks.fr is ours.hooks.fr
        assert torchcomms.functional.collectives is chorus.torchcomms.functional.collectives
        assert ours.objcol.__spec__.name == "chorus.torchcomms.objcol" and device_mesh is ours.device_mesh
        import torchcomms._backend_wrapper
        backend = torch._C._distributed_c10d.Backend
        assert issubclass(_BackendWrapper, backend) or torchcomms._backend_wrapper.MISSING
        for name in [*torchcomms.__all__, *ours.__all__]:
            assert getattr(torchcomms, name) is getattr(ours, name)
        assert set(ours.__all__) <= set(dir(torchcomms)) and not hasattr(torchcomms, "nothing")
        try:
            import torchcomms.nothing
        except ModuleNotFoundError:
            pass
        else:
            raise AssertionError
        try:
            new_comm("ncclx", torch.device("cuda"), "x")
        except RuntimeError as error:
            assert "NCCLX" in str(error) and "no CUDA" in str(error), error
    """)


def test_a_world_of_one_and_no_finalize(installed):
    """Without a launcher a process is a world of its own; a communicator that isn't finalized causes a warning."""
    environment = {k: v for k, v in installed.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    done = run(environment, """if True:
        import torch, torchcomms
        comm = torchcomms.new_comm("gloo", torch.device("cpu"))
        assert comm.get_size() == 1 and torchcomms.new_comm("fake", "cpu", "dropped").get_size() == 1
        kept = torchcomms.new_comm("fake", "cpu", "kept")
        mesh = torchcomms.device_mesh.init_device_mesh((comm,), ("dp",))
        x = torch.ones(2)
        torch.distributed.all_reduce(x)
        assert torch.distributed.get_world_size() == 1 and mesh.get_group().get_comm() is comm
        torch.distributed.destroy_process_group()
        assert not torch.distributed.is_initialized()
        try:
            comm.finalize()
        except RuntimeError as error:
            assert "finalized" in str(error)
    """)
    for name in ("dropped", "kept"):
        assert f"<TorchComm '{name}': rank 0 of 1, fake> was not finalized" in done.stderr
    assert done.stderr.count("was not finalized") == 2 and "Error" not in done.stderr, done.stderr


MEETING = """
import torch
from chorus import torchcomms
for name in ("first", "second", None, None, "first"):
    comm = torchcomms.new_comm("gloo", "cpu", name)
    x = torch.tensor([float(comm.get_rank())])
    comm.all_reduce(x, torchcomms.ReduceOp.SUM, False)
    assert x.item() == 1, x
    comm.finalize()
"""


def test_ranks_meet_at_master_addr():
    """Processes that are started by hand meet at MASTER_ADDR: rank 0 serves the store."""
    common = {k: v for k, v in os.environ.items() if not k.startswith("TORCHELASTIC")}
    common.update(WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=str(free_port()))
    meeting = [sys.executable, "-c", MEETING]
    ranks = [subprocess.Popen(meeting, env=dict(common, RANK=str(r)), stderr=subprocess.PIPE, text=True)
             for r in range(2)]  # fmt: skip
    for rank in ranks:
        _, errors = rank.communicate(timeout=100)
        assert rank.returncode == 0, errors
