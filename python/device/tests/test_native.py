"""Operators that kernels of the device compute, on a device of OpenCL: see native_cases.py."""

import ctypes.util
import json
import os
import pathlib
import subprocess
import sys

import pytest
from worlds import longest

HERE = pathlib.Path(__file__).parent
INTEL = HERE.parents[2] / ".venvs" / "opencl-intel" / "lib" / "libintelocl.so"
FAMILIES = "elementwise reductions rows products small_products places composed weights conversions orders lists draws"
FAMILIES = [*FAMILIES.split(), "sparse", "refusals"]  # the last one: of refusal_cases.py
NETWORKS = ["convolutions", "pools", "interpolations", "networks"]  # of network_cases.py


def environment():
    env = dict(os.environ)
    if INTEL.exists():
        env.setdefault("CHORUS_OPENCL_LIBRARY", str(INTEL))
    return env


def run(*arguments, **env):
    command = [sys.executable, HERE / "native_cases.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, env={**environment(), **env})
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    if last.startswith("no device:"):
        pytest.skip("left out: " + last)
    return json.loads(last)


def test_sample():
    told = run(*FAMILIES)
    assert told["failures"] == []
    assert told["native"] > 500
    # The fallback has types that the CPU refuses, and operators that aren't native.
    # Of these it has the error of a given result that is too narrow, or has another size.
    assert told["fallback"].keys().isdisjoint({"aten::add.Tensor", "aten::add_.Tensor", "aten::mm", "aten::mm.out"})
    assert all(told["fallback"].get(name, 0) <= 1 for name in ("aten::add.out", "aten::sum.IntList_out"))
    names = "baddbmm.out addbmm addmv.out _unique unique_dim_consecutive linspace.out logspace.out __lshift__.Scalar"
    names += " _weight_norm_interface _weight_norm_interface_backward _coalesce sparse_mask"
    for name in names.split():
        assert told["fallback"].get("aten::" + name, 0) == 0, name


def test_networks():
    told = run(*NETWORKS)
    assert told["failures"] == []
    assert told["native"] > 500
    assert not {name for name in told["fallback"] if "batch_norm" in name or "attention" in name}
    assert not {name for name in told["fallback"] if "grid_sampler_3d" in name or "multilabel" in name}


@longest
@pytest.mark.long
def test_sparse():
    told = run("--all", "sparse")
    assert told["failures"] == []
    of_kernels = "_coalesce _convert_indices_from_coo_to_csr.out _convert_indices_from_csr_to_coo.out addmm_ addmv.out"
    of_kernels += " sparse_mask _to_sparse_csr _to_sparse_csc _embedding_bag_backward searchsorted.Tensor index_add.out"
    of_kernels = (of_kernels + " _index_put_impl_ nonzero").split()
    assert told["fallback"].keys().isdisjoint({"aten::" + name for name in of_kernels})


@longest
@pytest.mark.long
@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "sparse"] + NETWORKS)
def test_all(family):
    assert run("--all", family)["failures"] == []


@pytest.mark.long
def test_library():
    """Products of matrices by CLBlast, where it's installed, and by kernels where the file isn't there."""
    library = ctypes.util.find_library("clblast") or os.environ.get("CHORUS_BLAS_LIBRARY")
    if library:
        told = run("products", CHORUS_BLAS_LIBRARY=library)
        assert told["failures"] == [] and told["kernels"]["multiplied"] > 10
    told = run("products", CHORUS_BLAS_LIBRARY="/nonesuch.so")
    assert told["failures"] == [] and told["kernels"]["multiplied"] == 0


@pytest.mark.long
def test_switched_off():
    told = run("rows", CHORUS_DEVICE_KERNELS="false")
    assert told["failures"] == [] and told["native"] == 0 and told["fallback"]
