"""A device made outside of this repository's packages: examples/thirdparty/mydevice, as docs/new-device.md says."""

import os
import pathlib
import shutil
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
HERE = ROOT / "examples" / "thirdparty" / "mydevice"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Where it's installed."""
    for tool in ("go", "cc"):
        if shutil.which(tool) is None:
            pytest.skip(f"left out: there is no {tool}")
    target, scratch = tmp_path_factory.mktemp("installed"), tmp_path_factory.mktemp("scratch")
    build = ["-q", "build_py", "-d", target, "egg_info", "-e", scratch, "dist_info", "-o", target]
    subprocess.run(
        [sys.executable, "setup.py", *map(str, build)], cwd=HERE, check=True, capture_output=True, timeout=900
    )
    return target


def run(target, program, **env):
    env = {**os.environ, "PYTHONPATH": str(target), **env}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=240, env=env
    )


def test_it_is_there(installed):
    done = run(installed, """
        import torch
        x = torch.tensor([[1., 2.], [3., 4.]], device=torch.device("mydevice", 1))
        print(x + 2, x.cpu().tolist(), torch.mydevice.device_count(), torch.accelerator.current_accelerator())
        print(hasattr(torch, "accinte"), open("/proc/self/maps").read().count("libchorus.so"))
        import chorus
        print(chorus.version() != "")
        try:
            chorus._where.use("/elsewhere.so")
        except ImportError as error:
            print(error)
    """)  # fmt: skip
    assert done.stdout.startswith(
        "tensor([[3., 4.],\n        [5., 6.]], device='mydevice:1') "
        "[[1.0, 2.0], [3.0, 4.0]] 2 mydevice\nFalse 0\nTrue\nchorus: "
    ), done.stdout + done.stderr
    assert "libmydevice.so is loaded in this process, and /elsewhere.so can't be as well" in done.stdout


def test_one_of_several(installed, tmp_path):
    ask = "import torch; print(torch._C._get_privateuse1_backend_name())"
    assert run(installed, ask).stdout == "mydevice\n"
    assert run(installed, ask, TORCH_ACCINTE_DEVICE="accinte").stdout == "accinte\n"
    done = run(installed, """
        import torch
        try:
            torch.nonesuch.current_device()
        except RuntimeError as error:
            print(error)
    """, TORCH_ACCINTE_DEVICE="nonesuch")  # fmt: skip
    assert done.stdout.endswith("set TORCH_ACCINTE_DEVICE to one of accinte, mydevice\n"), done.stderr
    first = "import torch_accinte, torch; print(torch.ones(1, device='mydevice').device, torch_accinte.plug.__name__)"
    assert run(installed, first).stdout == "mydevice:0 plug\n"


def test_it_passes(installed):
    env = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", "torch_accinte.check", "mydevice"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    missing = [line.strip().split(": ")[1] for line in done.stdout.splitlines() if "missing, optional" in line]
    # What the driver leaves out: graphs, traces, and memory of other processes.
    assert set(missing) == {
        "torch.accelerator.Graph",
        "torch.profiler has the device's kernels",
        "tensors of other processes (torch.multiprocessing)",
    }, done.stdout


def test_it_communicates(installed, tmp_path):
    """Collectives between two processes, in the order of the streams."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import sys
        import torch
        import torch.distributed as dist

        if __name__ == "__main__":
            rank = int(sys.argv[1])
            store = dist.FileStore(sys.argv[2], 2)
            where = torch.device("mydevice", rank)
            dist.init_process_group("chorus", store=store, rank=rank, world_size=2, device_id=where)
            x = torch.zeros(1 << 16, device=f"mydevice:{rank}")
            for i in range(20):
                x += rank + 1
                dist.all_reduce(x)
                x /= 2
            wanted = 0.0
            for i in range(20):
                wanted = (2 * wanted + 3) / 2
            assert torch.allclose(x.cpu(), torch.full((1 << 16,), wanted)), (x[0], wanted)
            dist.destroy_process_group()
            print("done")
    """)
    )
    command = [sys.executable, str(program)]
    env = {**os.environ, "PYTHONPATH": str(installed)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    ranks = [subprocess.Popen([*command, str(r), str(tmp_path / "store")], env=env, **pipes) for r in range(2)]
    for r in ranks:
        out, _ = r.communicate(timeout=240)
        assert r.returncode == 0 and out.endswith("done\n"), out
