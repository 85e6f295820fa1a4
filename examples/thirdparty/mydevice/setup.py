"""Builds libmydevice.so, with Go and a C compiler."""

import os
import pathlib
import subprocess

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent


class Build(build_py):
    def run(self) -> None:
        super().run()
        where = ["go", "list", "-m", "-f", "{{.Dir}}", "github.com/chorus-comms/chorus"]
        chorus = subprocess.run(where, cwd=HERE, check=True, capture_output=True, text=True).stdout.strip()
        target = (HERE if self.editable_mode else pathlib.Path(self.build_lib).resolve()) / "mydevice" / "libmydevice.so"
        environment = {**os.environ, "PACKAGE": "./library"}
        subprocess.run(["sh", f"{chorus}/capi/build.sh", str(target)], cwd=HERE, env=environment, check=True)


setup(cmdclass={"build_py": Build})
