"""Compiles the extension against the installed PyTorch. It needs a C++ compiler, and nothing else.

The header of libchorus.so is the checkout's, or, in an sdist, the copy in csrc.
"""

import concurrent.futures
import importlib.util
import logging
import os
import pathlib
import shlex
import shutil
import subprocess
import sysconfig
import time
import zlib

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

HERE = pathlib.Path(__file__).resolve().parent
CSRC = HERE / "csrc"
HEADER = HERE.parent.parent / "capi" / "chorus.h"
FLAGS = ["-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"]
FLAGS += ["-Wno-unused-parameter", "-Wno-missing-field-initializers"]
FLAGS += ["-DFMT_HEADER_ONLY"]  # Kineto's headers use fmt, of which PyTorch exports no functions
logging.disable(logging.INFO)  # setuptools' lists of copied files


def torch_root() -> pathlib.Path:
    """PyTorch's folder, found without an import: PyTorch would load the device that is being built."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise SystemExit(
            "chorus-device: PyTorch is not installed here; its extension is compiled against it "
            "(pip needs --no-build-isolation)"
        )
    return pathlib.Path(spec.origin).parent


def pieces(sources: list[str], n: int) -> list[list[str]]:
    """The sources in n parts of about the same size."""
    parts: list[list[str]] = [[] for _ in range(min(n, len(sources)))]
    for source in sorted(sources, key=lambda s: -os.path.getsize(s)):
        min(parts, key=lambda p: sum(map(os.path.getsize, p))).append(source)
    return parts


class Build(build_ext):
    """Compiles one piece for each processor, in parallel. PyTorch's headers take most of the time, and a piece reads
    them once."""

    def build_extension(self, ext: Extension) -> None:
        root = torch_root()
        compiler = shlex.split(os.environ.get("CXX", "c++"))
        if shutil.which(compiler[0]) is None:
            raise SystemExit(f"chorus-device: its extension needs a C++ compiler; {compiler[0]} was not found")
        own = [CSRC, *([HEADER.parent] if HEADER.exists() else []), sysconfig.get_path("include")]
        theirs = [root / "include", root / "include/torch/csrc/api/include"]
        flags = [*FLAGS, *(f"-I{d}" for d in own), *(f"-isystem{d}" for d in theirs)]
        flags += shlex.split(os.environ.get("CXXFLAGS", ""))
        objects = pathlib.Path(self.build_temp).resolve()
        objects.mkdir(parents=True, exist_ok=True)

        def compile(number: int, sources: list[str]) -> str:
            piece, target = objects / f"piece{number}.cpp", objects / f"piece{number}.o"
            piece.write_text("".join(f'#include "{HERE / s}"\n' for s in sources))
            subprocess.run([*compiler, *flags, "-c", str(piece), "-o", str(target)], check=True)
            say(f"piece {number + 1} is compiled")
            return str(target)

        target = kept = pathlib.Path(self.get_ext_fullpath(ext.name)).resolve()
        notes = objects
        if self.editable_mode:  # setuptools' directories are new each time
            kept, notes = HERE / "chorus_device" / target.name, HERE / "build"
            notes.mkdir(exist_ok=True)
        # The versions that it was built with: builds for several versions of PyTorch may share the directory.
        made_with = notes / f"made-{zlib.crc32(os.fsencode(kept)):08x}"
        command = shlex.join([*compiler, *flags])
        same = made_with.exists() and made_with.read_text() == command
        made_of = [*ext.sources, *map(str, CSRC.rglob("*.h")), str(HEADER), str(root / "version.py"), __file__]
        newest = max(os.path.getmtime(f) for f in made_of if os.path.exists(f))
        if same and kept.exists() and kept.stat().st_mtime > newest:
            if kept != target:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(kept, target)
            return
        begun = time.time()

        def say(what: str) -> None:  # pip shows it with -v
            print(f"chorus-device: {time.time() - begun:.0f} s: {what}", flush=True)

        with concurrent.futures.ThreadPoolExecutor() as pool:
            parts = pieces(ext.sources, len(os.sched_getaffinity(0)))
            say(f"{len(ext.sources)} sources are compiled in {len(parts)} pieces; on two cores that takes minutes")
            made = list(pool.map(compile, range(len(parts)), parts))
        target.parent.mkdir(parents=True, exist_ok=True)
        libraries = [f"-L{root / 'lib'}", "-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10", "-ldl"]
        libraries += shlex.split(os.environ.get("LDFLAGS", ""))
        subprocess.run([*compiler, "-shared", *made, "-o", str(target), *libraries], check=True)
        os.utime(target, (begun, begun))  # so that a source that changed during the build is newer
        made_with.write_text(command)


class Sdist(sdist):
    """An sdist with the library's header."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        if HEADER.exists():
            self.copy_file(str(HEADER), str(pathlib.Path(base_dir) / "csrc" / HEADER.name))


setup(
    ext_modules=[Extension("chorus_device._C", sorted(str(f.relative_to(HERE)) for f in CSRC.rglob("*.cpp")))],
    cmdclass={"build_ext": Build, "sdist": Sdist},
)
