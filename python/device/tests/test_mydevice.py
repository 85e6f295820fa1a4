"""A device from outside of this repository's packages: examples/thirdparty/mydevice, built as in docs/new-device.md."""

import os
import pathlib
import shutil
import subprocess
import sys
import textwrap

import alone
import pytest
from worlds import longest

ROOT = pathlib.Path(__file__).resolve().parents[3]
HERE = ROOT / "examples" / "thirdparty" / "mydevice"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder in which it's installed."""
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
            chorus._libpath.use("/elsewhere.so")
        except ImportError as error:
            print(error)
    """)  # fmt: skip
    assert done.stdout.startswith(
        "tensor([[3., 4.],\n        [5., 6.]], device='mydevice:1') "
        "[[1.0, 2.0], [3.0, 4.0]] 2 mydevice\nFalse 0\nTrue\nchorus: "
    ), done.stdout + done.stderr
    assert "libmydevice.so is loaded in this process, and /elsewhere.so can't be as well" in done.stdout


@longest
@pytest.mark.long
def test_one_of_several(installed, tmp_path):
    ask = "import torch; print(torch._C._get_privateuse1_backend_name())"
    assert run(installed, ask).stdout == "mydevice\n"
    assert run(installed, ask, CHORUS_TORCH_DEVICE="accinte").stdout == "accinte\n"
    done = run(installed, """
        import torch
        try:
            torch.nonesuch.current_device()
        except RuntimeError as error:
            print(error)
    """, CHORUS_TORCH_DEVICE="nonesuch")  # fmt: skip
    assert "no installed package has a device 'nonesuch', which CHORUS_TORCH_DEVICE names: " in done.stdout, done.stderr
    assert done.stdout.endswith("set CHORUS_TORCH_DEVICE to one of accinte, mydevice\n"), done.stderr
    other = tmp_path / "other-1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (other / "entry_points.txt").write_text("[chorus_device.devices]\nother = other\n")
    done = run(f"{installed}:{tmp_path}", """
        import torch
        for module in torch.mydevice, torch.other:
            print(module.is_available())
            try:
                module.current_device()
            except RuntimeError as error:
                print(error)
        print(hasattr(torch, "accinte"))
    """)  # fmt: skip
    for name in ("mydevice", "other"):
        says = f"False\ntorch.device({name!r}) can't be used: PyTorch has one place for a device from outside: "
        assert says + "set CHORUS_TORCH_DEVICE to one of accinte, mydevice, other\n" in done.stdout, done.stderr
    assert done.stdout.endswith("\nFalse\n"), done.stdout
    first = "import chorus_device, torch; print(torch.ones(1, device='mydevice').device, chorus_device.plug.__name__)"
    assert run(installed, first).stdout == "mydevice:0 plug\n"


@longest
@pytest.mark.long
def test_it_needs_no_other_device(installed, tmp_path):
    done = alone.run("""
        import torch
        x = torch.ones(2, device="mydevice") + 1
        print(x.cpu().tolist(), torch._C._get_privateuse1_backend_name())
        import torch_accinte
    """, tmp_path, "chorus-comms", "chorus-device", PYTHONPATH=str(installed))  # fmt: skip
    assert done.stdout == "[2.0, 2.0] mydevice\n", done.stderr
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'torch_accinte'\n")


def test_it_passes(installed):
    env = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", "chorus_device.check", "mydevice"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    missing = [line.strip().split(": ")[1] for line in done.stdout.splitlines() if "missing, optional" in line]
    # The driver doesn't have graphs, traces, and memory of other processes.
    assert set(missing) == {
        "torch.accelerator.Graph",
        "torch.profiler has the device's kernels",
        "tensors of other processes (torch.multiprocessing)",
    }, done.stdout


@pytest.fixture(scope="module")
def apart(installed, tmp_path_factory):
    """An environment with torch.device("apart"): tests/apart.py, installed with its dependencies."""
    target = tmp_path_factory.mktemp("apart")
    shutil.copy(pathlib.Path(__file__).with_name("apart.py"), target)
    info = target / "apart-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: apart\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[chorus_device.devices]\napart = apart\n")
    return {"APART_LIBRARY": str(installed / "mydevice" / "libmydevice.so"), "target": str(target)}


def test_operators_without_host_access_to_memory(apart):
    """Tensors are copied to the host and back, only the parts that an operator uses: views, in-place, out=, resized,
    lists."""
    done = run(apart["target"], """
        import copy, ctypes, threading, torch
        import torch.nn.functional as F
        count = torch.apart.staged_bytes
        d = lambda t: t.to("apart")

        def both(f, *made):
            own = [d(t.clone()) for t in made]
            host = [t.clone() for t in made]
            got, want = f(*own), f(*host)
            for a, b in zip([got, *own], [want, *host], strict=True):
                assert torch.equal(a.cpu(), b), (f, a, b)

        x = torch.rand(6, 8)
        both(lambda t: t + 2, x)
        both(lambda t: t[1:5, ::3].mul_(3), x)                       # a view, in place
        both(lambda t: torch.add(t, t, out=torch.empty(0, device=t.device)), x)
        both(lambda t: torch.add(t[0], 1, out=t[1]), x)              # out= shares its storage with an argument
        both(lambda t: t.t().contiguous().view(-1)[3:].clone(), x)
        both(lambda t: t.double().to(torch.int16), x)
        both(lambda t: t[1:].copy_(t[:-1].clone()), x)
        both(lambda t: t.resize_(3).add_(1), x)
        both(lambda t: torch.add(torch.ones(20, device=t.device), 1, out=t[2:5]), torch.arange(10.))
        both(lambda t: torch.cat(torch._foreach_add([t, t[1]], 1)[:1]), x)
        both(lambda t: t[t > 0.5], x)
        both(lambda t: t.nonzero(), x)
        both(lambda t: t.index_put_((torch.tensor([1, 1], device=t.device),), t[0].clone(), accumulate=True), x)
        both(lambda t: torch.sort(t, dim=0, out=(torch.empty(0, device=t.device), torch.empty(0, device=t.device,
             dtype=torch.long)))[1], x)
        both(lambda t: t.conj().imag.abs(), torch.rand(4, dtype=torch.complex64))
        assert d(x)[2, 3].item() == x[2, 3].item() and d(torch.empty(0, 3)).sum().item() == 0
        mean, var = torch.zeros(8), torch.ones(8)
        both(lambda t, m, v: F.batch_norm(t, m, v, training=True), x, mean, var)  # which its schema doesn't tell

        # As little as it takes: one element there and back; plain copies are the device's.
        big = torch.zeros(1 << 20, device="apart")
        before = count()
        big[5:6].add_(1)
        assert count() - before == 8, count() - before
        before = count()
        assert big.clone().cpu().sum() == 1 and torch.equal(big[5:7].cpu(), torch.tensor([1.0, 0.0]))
        big.copy_(torch.ones(1 << 20))
        assert count() - before == 0 and count(1) == 0

        # In the order of the stream, and each operator a whole for other threads.
        total = torch.zeros(1000, device="apart")
        stream = torch.Stream("apart")
        stream.wait_stream(torch.apart.current_stream())
        def add():
            with stream:
                for _ in range(50):
                    total.add_(1)
        threads = [threading.Thread(target=add) for _ in range(3)]
        for t in threads: t.start()
        for t in threads: t.join()
        torch.apart.current_stream().wait_stream(stream)
        assert (total.cpu() == 150).all()

        # Training has the CPU's bits.
        layers = torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
        model = torch.nn.Sequential(*layers)
        models = [model, copy.deepcopy(model).to("apart")]
        for m in models:
            steps = torch.optim.AdamW(m.parameters(), foreach=True)
            for i in range(3):
                m(torch.arange(32.).reshape(4, 8).to(next(m.parameters()).device)).square().sum().backward()
                steps.step()
                steps.zero_grad()
        for a, b in zip(*(m.state_dict().values() for m in models), strict=True):
            assert torch.equal(a, b.cpu())
        print("done")
    """, **{k: v for k, v in apart.items() if k != "target"})  # fmt: skip
    assert done.stdout == "done\n", done.stdout + done.stderr


@longest
@pytest.mark.long
def test_checks_that_pass_without_host_access_to_memory(apart):
    env = {**os.environ, "PYTHONPATH": apart["target"], "APART_LIBRARY": apart["APART_LIBRARY"]}
    groups = ["memory", "operators", "autograd", "amp", "serialization", "compiler", "graphs"]
    command = [sys.executable, "-m", "chorus_device.check", "apart", "--only", *groups]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    missing = [line.strip().split(": ")[1] for line in done.stdout.splitlines() if "missing, optional" in line]
    assert missing == ["torch.accelerator.Graph"], done.stdout


@longest
@pytest.mark.long
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
