"""The job files of docs/clusters.md, with this host as both of two nodes."""

import contextlib
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

import pytest
from jobs import ROOT, command
from worlds import longest

from chorus.bench.port import free_port

CLUSTERS = ROOT / "examples" / "clusters"
# Each rank prints its environment and doesn't load PyTorch.
PROGRAM = """\
import os
who = " ".join(os.environ[n] for n in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
os.write(1, f"I am {who} and {os.environ['MASTER_ADDR']}\\n".encode())  # at once: others write to the same pipe
"""
# Slurm's srun starts the tasks of a step, with these variables.
SRUN = """\
#!/bin/bash
[ -n "$SLURM_JOB_ID" ] || exit 9
export SLURM_NTASKS=$((2 * TASKS)) SLURM_STEP_ID=0
for task in $(seq 0 $((SLURM_NTASKS - 1))); do
	SLURM_PROCID=$task SLURM_NODEID=$((task / TASKS)) SLURM_LOCALID=$((task % TASKS)) "$@" &
	tasks+=($!)
done
for task in "${tasks[@]}"; do wait "$task" || exit 1; done
"""


def folder(path):
    """A folder with the program, and with commands that replace this host's in the job files."""
    (path / "bin").mkdir()
    (path / "train.py").write_text(PROGRAM)
    for name, text in {
        "srun": SRUN,
        "scontrol": '#!/bin/bash\n[ "$*" = "show hostnames localhost,other" ] && echo localhost && echo other\n',
    }.items():
        (path / "bin" / name).write_text(text)
        (path / "bin" / name).chmod(0o755)
    (path / "bin" / "chorus").symlink_to(command())
    (path / "bin" / "python3").symlink_to(sys.executable)
    secret = path / "job.secret"
    secret.write_text("0123456789abcdef" * 4)
    secret.chmod(0o600)
    programs = f"{path}/bin:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    return dict(os.environ, PATH=programs, PYTHON_EXEC=sys.executable,
        CHORUS_SECRET_FILE=str(secret), OMP_NUM_THREADS="1")  # fmt: skip


def run(path, environment, *command):
    return subprocess.run(command, cwd=path, env=environment, capture_output=True, text=True, timeout=120)


def low_port():
    """A free port among those that the files compute from a job's number."""
    for port in range(20000 + os.getpid() % 9000, 30000):
        with contextlib.suppress(OSError), socket.socket() as s:
            s.bind(("127.0.0.1", port))
            return port
    raise OSError("no free port")


def said(done):
    assert done.returncode == 0, done.stderr
    return sorted(re.findall(r"I am (.*)", done.stdout))


TORCHRUN = pytest.param("torchrun", 1, marks=pytest.mark.long)


@pytest.mark.parametrize("name, tasks", [("train", 1), TORCHRUN, ("srun", 2)])
def test_slurm(tmp_path, name, tasks):
    environment = folder(tmp_path)
    environment |= {"SLURM_JOB_ID": str(7 * 10000 + low_port() - 20000), "SLURM_JOB_NODELIST": "localhost,other",
        "SLURM_NNODES": "2", "TASKS": str(tasks), "RANKS": "2"}  # fmt: skip
    lines = said(run(tmp_path, environment, "bash", CLUSTERS / f"{name}.sbatch"))
    assert [line.split(" and ")[0] for line in lines] == ["0 4 0", "1 4 1", "2 4 0", "3 4 1"]
    if name == "srun":
        assert all(line.endswith("and localhost") for line in lines)


def test_tasks():
    """srun starts as many tasks for each node as the tests do: a launcher on each node, or a rank for each task."""
    for name, tasks in ("train", 1), ("torchrun", 1), ("srun", 4):
        text = (CLUSTERS / f"{name}.sbatch").read_text()
        assert "#SBATCH --nodes=2\n" in text and f"#SBATCH --ntasks-per-node={tasks} " in text


@pytest.mark.long
@pytest.mark.parametrize("launcher", ["chorus run", "torchrun"])
def test_kubernetes(tmp_path, launcher):
    """The variables of the manifest start a Python program in each pod; only the first pod's name is this host's."""
    environment = folder(tmp_path)
    text = (CLUSTERS / "kubernetes" / "job" / "job.yaml").read_text()
    given = dict(re.findall(r'- \{name: (PET_\w+), value: "(.*)"\}', text))
    assert given.keys() == {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_RDZV_ENDPOINT"}
    assert given["PET_RDZV_ENDPOINT"] == "train-0.train:29400"
    given["PET_RDZV_ENDPOINT"] = f"localhost:{free_port()}"
    pods = [
        subprocess.Popen(
            [*launcher.split(), "train.py"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
            env=environment | given | {"PET_NODE_RANK": str(index)},
        )
        for index in range(int(given["PET_NNODES"]))
    ]
    try:
        found = [re.findall(r"I am (\d+ \d+ \d+)", pod.communicate(timeout=60)[0]) for pod in pods]
    finally:
        for pod in pods:
            pod.kill()
            pod.wait()
    assert [sorted(f) for f in found] == [["0 8 0", "1 8 1", "2 8 2", "3 8 3"], ["4 8 0", "5 8 1", "6 8 2", "7 8 3"]]
    assert all(pod.returncode == 0 for pod in pods)


@pytest.fixture(scope="module")
def slurm():
    """A real Slurm with two nodes, each a host of its own: what runs a command there."""
    script = ROOT / "scripts" / "slurm.sh"
    with tempfile.TemporaryDirectory(prefix="slurm") as place:
        try:
            started = subprocess.run(
                [script, "start", place, "2", str(os.getpid())], capture_output=True, text=True, timeout=120
            )
            if started.returncode == 77:
                pytest.skip(f"left out: {started.stderr.strip()}")
            assert started.returncode == 0, started.stderr
            yield [script, "run", place]
        finally:
            subprocess.run([script, "stop", place], timeout=60)


@longest
@pytest.mark.long
@pytest.mark.parametrize(
    "name, tasks",
    [("train", 1), ("torchrun", 1), ("srun", 2)],
)
def test_real_slurm(tmp_path, slurm, name, tasks):
    """The training of the README, with two ranks on each of two nodes."""
    environment = folder(tmp_path)
    for stand_in in "srun", "scontrol", "python3":
        (tmp_path / "bin" / stand_in).unlink()
    environment |= {"RANKS": "2", "PROGRAM": str(ROOT / "python" / "examples" / "ddp.py")}
    file = CLUSTERS / f"{name}.sbatch"
    output = tmp_path / "output"
    done = run(
        tmp_path, environment, *slurm, "sbatch", "--wait", f"--output={output}", f"--ntasks-per-node={tasks}", file
    )
    said = output.read_text() if output.exists() else "nothing"
    assert done.returncode == 0, done.stderr + said
    assert re.search(r"loss after 100 steps: \d\.\d+", said)
