"""Builds libchorus.so into the package, with Go and a C compiler.

The Go sources are those around this directory. CHORUS_LIBRARY names a library that
was built before, for machines without Go.
"""

import os
import pathlib
import platform
import re
import shutil
import subprocess

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = "libchorus.so"


def build_library(target: pathlib.Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if built := os.environ.get("CHORUS_LIBRARY"):
        shutil.copyfile(built, target)
        return
    script = HERE.parent / "capi" / "build.sh"
    if not script.exists():
        raise SystemExit(f"chorus: {script} is missing: build from a checkout, or set CHORUS_LIBRARY")
    for tool, why in ((os.environ.get("GO", "go"), "Go"), (os.environ.get("CC", "cc"), "a C compiler")):
        if shutil.which(tool) is None:
            raise SystemExit(f"chorus: building needs {why}; {tool} was not found")
    subprocess.run(["sh", str(script), str(target)], check=True)
    target.with_suffix(".h").unlink(missing_ok=True)  # cgo's; ours is capi/chorus.h


class BuildPy(build_py):
    def run(self) -> None:
        super().run()
        # An editable installation uses the package where it is.
        root = HERE if self.editable_mode else pathlib.Path(self.build_lib)
        build_library(root / "chorus" / LIBRARY)


class Wheel(bdist_wheel):
    """Any Python, this platform: the package is Python and a library that knows nothing of it."""

    def get_tag(self) -> tuple[str, str, str]:
        # The newest version of a glibc symbol that the library asks for says on which systems it runs.
        library = pathlib.Path(self.bdist_dir) / "chorus" / LIBRARY
        if not library.exists():  # an editable installation, which goes nowhere
            return super().get_tag()
        minors = [int(v) for v in re.findall(rb"GLIBC_2\.(\d+)\0", library.read_bytes())]
        return "py3", "none", f"manylinux_2_{max(minors, default=17)}_{platform.machine()}"


class Binary(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(cmdclass={"build_py": BuildPy, "bdist_wheel": Wheel}, distclass=Binary)
