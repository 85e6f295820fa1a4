"""The build of the extension."""

import os
import pathlib
import subprocess
import sys
import sysconfig
import tarfile

import pytest

HERE = pathlib.Path(__file__).resolve().parent.parent
LIBRARY = HERE / "chorus_device" / f"_C{sysconfig.get_config_var('EXT_SUFFIX')}"


def test_an_up_to_date_extension_is_not_compiled_again(tmp_path):
    sources = [*(HERE / "csrc").rglob("*.*"), HERE / "setup.py"]
    if not list(HERE.glob("build/made-*")) or LIBRARY.stat().st_mtime <= max(f.stat().st_mtime for f in sources):
        pytest.skip("left out: make python has built no extension of these sources")
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    before = LIBRARY.stat().st_mtime
    done = subprocess.run([sys.executable, "setup.py", "-q", "editable_wheel", "--mode=compat", "--dist-dir", tmp_path],
                          cwd=HERE, env=environment, capture_output=True, text=True, timeout=100)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("*.whl")) and LIBRARY.stat().st_mtime == before


def test_a_source_distribution_has_what_the_extension_is_compiled_of(tmp_path):
    subprocess.run([sys.executable, "setup.py", "-q", "egg_info", "-e", tmp_path, "sdist", "-d", tmp_path],
                   cwd=HERE, check=True, capture_output=True, timeout=100)  # fmt: skip
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        found = {file.name.split("/csrc/")[1] for file in opened if "/csrc/" in file.name and file.isfile()}
    assert found == {str(file.relative_to(HERE / "csrc")) for file in (HERE / "csrc").rglob("*.*")} | {"chorus.h"}
