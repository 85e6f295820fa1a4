"""A libchorus.so with stand-ins for NCCL and for the drivers of GPUs, on emulated devices."""

import os
import pathlib
import shutil
import subprocess

import forks
import pytest
from children import path_with

ROOT = pathlib.Path(__file__).resolve().parents[3]
NEWEST = "2.32"


def build(path):
    """Write the library to a file."""
    if shutil.which(os.environ.get("GO", "go")) is None:
        pytest.skip("there is no Go to build the library with")
    environment = dict(os.environ, PACKAGE="./comm/nccl/nccltest/libchorus")
    command = ["sh", str(ROOT / "capi" / "build.sh"), str(path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def server(library):
    """A server that runs programs with such a library."""
    path = path_with(ROOT / "python" / "torchcomms" / "src", ROOT / "python" / "tests")
    return forks.Server(CHORUS_LIBRARY=str(library), PYTHONPATH=path, OMP_NUM_THREADS="1")


def run(standin, tmp_path, ranks, program, *args, level=NEWEST, statuses=None, **environment):
    """A program's output. Asserts that its ranks end with the ``statuses``, by default 0."""
    out, err, ended = ran(standin, tmp_path, ranks, program, *args, level=level, **environment)
    assert ended == (statuses or [0] * ranks), out + err
    assert "finalized" not in err, err
    return out


def ran(standin, tmp_path, ranks, program, *args, level=NEWEST, **environment):
    """The output of a program, its errors and its statuses. Its ranks have torchrun's environment variables, without
    torchrun, whose agent would be one more process with PyTorch."""
    import torch.distributed as dist

    script = tmp_path / "program.py"
    script.write_text(program)
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    library = {"CHORUS_NCCL_LIBRARY": f"ncclsim-{level}", **environment}
    return standin.run(
        tmp_path, script, ranks, *args, MASTER_ADDR="localhost", MASTER_PORT=store.port,
        TORCHELASTIC_USE_AGENT_STORE="True", **library,
    )  # fmt: skip


# The library treats PyTorch's tensors and streams as foreign ones, like CUDA's: the stand-in's devices "cuda", over the
# same emulated devices, take them.
FOREIGN = """
import ctypes, os, torch, torch.distributed as dist
from chorus import _lib, backend
from chorus.errors import check

def opened(device):
    place = ctypes.c_uint64()
    check(_lib.library.chorus_device_open(f"accinte:{device.index}".encode(), ctypes.byref(place)))
    return place.value

def native(device):
    if torch.accinte.current_stream(device) == torch.accinte.default_stream(device):
        return 0
    stream, handle = ctypes.c_uint64(), ctypes.c_uint64()
    check(_lib.library.chorus_stream_current(opened(device), ctypes.byref(stream)))
    check(_lib.library.chorus_stream_native(stream, ctypes.byref(handle)))
    return handle.value

backend.serve("accinte", "cuda", native)
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("accinte", rank % 2)
torch.accinte.set_device(device)
"""
