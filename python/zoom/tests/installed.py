"""torch-zoom as if it were installed, for this process and those that it starts: the tests' environment has it not, as
there the device is accinte."""

import atexit
import os
import pathlib
import shutil
import sys
import tempfile

import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[3]
POCL = ROOT / ".venvs" / "opencl"


def put():
    """Let this process and its children find the package, and PoCL if there is one for the tests."""
    project = tomllib.loads((ROOT / "python" / "zoom" / "pyproject.toml").read_text())["project"]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="torch-zoom-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    info = folder / "torch_zoom-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1.0\n")
    points = project["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in entries.items()) for group, entries in points]
    (info / "entry_points.txt").write_text("\n".join(lines))
    paths = [str(folder), str(ROOT / "python" / "zoom")]
    sys.path[:0] = paths
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ["CHORUS_TORCH_DEVICE"] = "zoom"
    if "CHORUS_OPENCL_LIBRARY" not in os.environ and POCL.exists():
        os.environ["VIRTUAL_ENV"] = str(POCL)
