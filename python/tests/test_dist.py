"""The files that `make wheels` and `make release` put into dist, for users."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
from worlds import longest

import chorus

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
MACHINES = {"x86_64": 62, "aarch64": 183}  # e_machine of an ELF file
TOOLS = ROOT / ".venvs" / "wheels" / "bin" / "python"

pytestmark = [
    longest,
    pytest.mark.skipif(not any(DIST.glob("*.whl")), reason="there are no wheels: make wheels"),
]


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def wheel(machine):
    (found,) = DIST.glob(f"chorus_comms-*_{machine}.whl")
    return found


@pytest.fixture(params=MACHINES)
def unpacked(request, tmp_path):
    """The machine of a wheel, its folder of modules and its command."""
    if not any(DIST.glob(f"*_{request.param}.whl")):
        pytest.skip("left out: make wheels was asked for another machine's")
    with zipfile.ZipFile(wheel(request.param)) as archive:
        archive.extractall(tmp_path)
    (command,) = tmp_path.glob("*.data/scripts/chorus")
    command.chmod(0o755)
    return request.param, tmp_path, command


def test_wheel(unpacked):
    """Any Python 3, glibc 2.17; a library that asks for glibc 2.14 at most and nothing but it, and a command that asks
    for nothing."""
    machine, folder, command = unpacked
    assert wheel(machine).name == f"chorus_comms-{chorus.__version__}-py3-none-manylinux_2_17_{machine}.whl"
    library = folder / "chorus" / "libchorus.so"
    for file in library, command:
        image = file.read_bytes()
        assert image[:5] == b"\x7fELF\x02" and int.from_bytes(image[18:20], "little") == MACHINES[machine], file
    needs = run("readelf", "--dynamic", "--version-info", "--wide", library)
    versions = {tuple(int(n) for n in v.split(".")) for v in re.findall(r"Name: GLIBC_([0-9.]+)", needs)}
    # The first glibc for aarch64 is 2.17.
    assert versions and max(versions) <= ((2, 14) if machine == "x86_64" else (2, 17)), versions
    libraries = set(re.findall(r"NEEDED.*\[(.*)\]", needs))
    loader = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}[machine]  # which has __tls_get_addr
    assert libraries <= {"libc.so.6", "libpthread.so.0", "libdl.so.2", loader}, libraries
    assert "NEEDED" not in run("readelf", "--dynamic", "--wide", command)
    (info,) = folder.glob("*.dist-info")
    licences = {p.name: p.read_text() for p in (info / "licenses").iterdir()}
    assert "BSD 3-Clause" in licences["LICENSE"] or "Redistribution and use" in licences["LICENSE"]
    assert "golang.org/x/sys" in licences["LICENSE-THIRD-PARTY"]
    names = {p.relative_to(folder / "chorus").as_posix() for p in (folder / "chorus").rglob("*") if p.is_file()}
    assert {"__init__.py", "py.typed", "torchcomms/comm.py", "bench/__main__.py"} <= names, names


@pytest.mark.skipif(not TOOLS.exists(), reason="make wheels hasn't run here: its tools are missing")
def test_auditwheel(unpacked):
    machine, _, _ = unpacked
    said = run(TOOLS, "-m", "auditwheel", "show", wheel(machine))
    assert f'"manylinux_2_17_{machine}"' in said, said


def test_command(unpacked):
    """It knows its version, and makes a plan; under emulation where the processor is another."""
    machine, _, command = unpacked
    how = []
    if machine != os.uname().machine:
        how = [shutil.which(f"qemu-{machine}-static") or pytest.skip(f"qemu-{machine}-static is not installed")]
    assert chorus.__version__ in run(*how, command, "--version")
    assert "all_reduce" in run(*how, command, "plan", "all_reduce", "--world", "4")


LOADS = r"""
#include <dlfcn.h>
#include <stdio.h>
#include "chorus.h"
#define FUNCTION(name) __typeof__(&name) f_##name = (__typeof__(&name))dlsym(library, #name)

int main(int argc, char **argv) {
	void *library = dlopen(argv[1], RTLD_NOW);
	if (!library) { puts(dlerror()); return 1; }
	FUNCTION(chorus_version); FUNCTION(chorus_comm_create); FUNCTION(chorus_submit); FUNCTION(chorus_last_error);
	chorus_comm comm;
	chorus_comm_options options = {.size = sizeof options, .rank = 0, .world_size = 1, .abort_on_error = -1};
	float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	chorus_op op = {.size = sizeof op, .kind = CHORUS_ALL_REDUCE, .dtype = CHORUS_FLOAT32, .reduction = CHORUS_SUM,
			.in = x, .in_count = 8, .out = x, .out_count = 8};
	if (f_chorus_comm_create(&options, &comm) || f_chorus_submit(comm, &op, NULL)) {
		puts(f_chorus_last_error()->message);
		return 1;
	}
	printf("%s: %g\n", f_chorus_version(), x[7]);
	return 0;
}
"""


@pytest.mark.skipif(not TOOLS.exists(), reason="make wheels hasn't run here: its compiler is missing")
def test_library(unpacked, tmp_path):
    """A C program loads it and reduces; for another processor it runs under emulation, with that machine's glibc."""
    machine, folder, _ = unpacked
    how, env = [], dict(os.environ)
    if machine != os.uname().machine:
        how = [shutil.which(f"qemu-{machine}-static") or pytest.skip(f"qemu-{machine}-static is not installed")]
        root = pathlib.Path(f"/usr/{machine}-linux-gnu")
        if not (root / "lib" / "libc.so.6").exists():
            pytest.skip(f"{root} has no glibc (Debian: libc6-arm64-cross)")
        env["QEMU_LD_PREFIX"] = str(root)
    (tmp_path / "loads.c").write_text(LOADS)
    run(TOOLS, "-m", "ziglang", "cc", "-target", f"{machine}-linux-gnu.2.17", "-I", ROOT / "capi",
        "-o", tmp_path / "loads", tmp_path / "loads.c", "-ldl")  # fmt: skip
    said = run(*how, tmp_path / "loads", folder / "chorus" / "libchorus.so", env=env)
    assert said == f"{chorus.__version__}: 8\n", said


def test_sdist(tmp_path):
    """It builds with what it asks for, which brings Go along, where there's no Go; only a C compiler is the
    machine's."""
    (sdist,) = DIST.glob("chorus_comms-*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    base = sdist.name.removesuffix(".tar.gz")
    for file in (
        "go/go.mod", "go/capi/chorus.h", "go/comm/comm.go", "go/vendor/modules.txt", "go/cmd/chorus/main.go",
        "LICENSE-THIRD-PARTY",
    ):  # fmt: skip
        assert f"{base}/{file}" in names, file
    assert not [n for n in names if n.endswith("_test.go") and "/vendor/" not in n]
    go = tmp_path / "none" / "go"
    go.parent.mkdir()
    go.write_text("#!/bin/sh\nexit 127\n")
    go.chmod(0o755)
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    env = {k: v for k, v in os.environ.items() if k != "GO"}
    env["PATH"] = os.pathsep.join([f"{tmp_path}/venv/bin", str(go.parent), env["PATH"]])
    run(tmp_path / "venv" / "bin" / "pip", "wheel", "--no-deps", "-w", tmp_path, sdist, env=env)
    (built,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(built) as archive, zipfile.ZipFile(wheel("x86_64")) as ours:
        strip = re.compile(r"chorus_comms-[^/]*/(RECORD|WHEEL)$")
        assert {n for n in archive.namelist() if not strip.search(n)} == {
            n for n in ours.namelist() if not strip.search(n)
        }


def sums(folder):
    """The entries of the file of checksums, by system; each file is checked."""
    (file,) = folder.glob("chorus-*-SHA256SUMS")
    found = {}
    for line in file.read_text().splitlines():
        digest, name = line.split()
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name
        found[name] = digest
    return found


def test_release(tmp_path):
    """Archives, checksums and a bill of materials; another build, of a clone elsewhere and with nothing kept, has the
    same bytes."""
    if run("git", "status", "--porcelain", "--untracked-files=no", cwd=ROOT):
        pytest.skip("the checkout has changes, which a clone has not")
    run("make", "release", cwd=ROOT)
    ours, version = sums(DIST), chorus.__version__
    systems = ("linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64")
    assert set(ours) == {f"chorus-{version}-{s}.tar.gz" for s in systems} | {f"chorus-{version}-sbom.cdx.json"}
    bill = json.loads((DIST / f"chorus-{version}-sbom.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    assert {"golang.org/x/sys", "github.com/spf13/cobra"} <= {c["name"] for c in bill["components"]}
    for system in systems:
        with tarfile.open(DIST / f"chorus-{version}-{system}.tar.gz") as archive:
            names = {pathlib.PurePath(n).name for n in archive.getnames()}
            assert names >= {"chorus", "LICENSE", "LICENSE-THIRD-PARTY", "README.md", "CHANGELOG.md"}
            if system == "linux-amd64":
                archive.extractall(tmp_path / "archive", filter="data")
    if os.uname().machine == "x86_64":
        assert version in run(tmp_path / "archive" / f"chorus-{version}-linux-amd64" / "chorus", "--version")
    run("git", "clone", "-q", ROOT, tmp_path / "clone")
    run("make", "release", cwd=tmp_path / "clone", env=os.environ | {"GOCACHE": str(tmp_path / "cache")})
    assert sums(tmp_path / "clone" / "dist") == ours
