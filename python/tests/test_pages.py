"""Lines of Python on pages are excerpts of tested files, which the tests of package docs compare, or run here."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest
from page_blocks import ROOT, blocks

# The other pages are for the host.
DEVICES = {
    "docs/new-device.md": "accinte", "docs/torch-device.md": "accinte", "docs/torchcomms.md": "accinte",
    "python/accinte/README.md": "accinte", "docs/zoom.md": "zoom", "python/zoom/README.md": "zoom",
}  # fmt: skip
NEEDS = {"docs/frameworks.md": "ray"}


def pages():
    found = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "python").glob("**/README.md")]
    found = sorted(str(p.relative_to(ROOT)) for p in found if ".venv" not in p.parts and blocks(p))
    return [p for p in found if p not in NEEDS or importlib.util.find_spec(NEEDS[p])]


@pytest.mark.long
@pytest.mark.parametrize("device", ["", "accinte", "zoom"], ids=["host", "accinte", "zoom"])
def test_lines_of_pages(device, tmp_path):
    """Each block runs to its end."""
    if device and importlib.util.find_spec("chorus_device") is None:
        pytest.skip("chorus-device is not installed")
    if device == "zoom" and not (ROOT / ".venvs" / "opencl" / "ok").exists():
        pytest.skip("left out: no OpenCL driver is here; make opencl installs one")
    mine = [p for p in pages() if DEVICES.get(p, "") == device]
    done = subprocess.run(
        [sys.executable, pathlib.Path(__file__).with_name("page_blocks.py"), device, *mine], cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
        env={**os.environ, "CHORUS_TORCH_DEVICE": device or "accinte"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert all(f"{p}: " in done.stdout for p in mine), done.stdout
