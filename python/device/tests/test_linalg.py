"""Linear algebra by a library, on GPUs that are stand-ins with a stand-in for cuSOLVER."""

import os
import pathlib
import subprocess
import sys

import pytest
from children import path_with

PROGRAM = """
import os, types
import torch, chorus_device

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "1"  # for the stand-in, which loads its emulated devices itself

import linalg_cases
chorus_device.plug("sim", driver="cuda", module=types.ModuleType("sim"))
brief = {"sizes": (3,), "batches": ((2,),), "dtypes": (torch.float64,)}
ran = set()

def then():
    ran.update(k.split("::")[1].split(".")[0] for k, c in chorus_device.operators().items() if c.fallback)

n = linalg_cases.compare("sim", **(brief if BRIEF else {}), then=then)
native = {k.split("::")[1].split(".")[0] for k, c in chorus_device.operators().items() if c.native}
print(n > 40, chorus_device.kernels()["solved"] > 40, sorted(set(WANTED) - native))
assert not chorus_device._device.c().absent_operators()
ran.discard("linalg_vector_norm")  # a reduction, by a kernel where one compiles
print(sorted(name for name in ran if "linalg" in name or name in WANTED))
"""

# The operators of PyTorch's that reach the library, in one of their forms.
WANTED = [
    "linalg_cholesky_ex", "_cholesky_solve_helper", "linalg_lu_factor_ex", "linalg_lu", "linalg_lu_solve",
    "_linalg_solve_ex", "linalg_inv_ex", "_linalg_det", "_linalg_slogdet", "linalg_qr", "geqrf",
    "linalg_householder_product", "linalg_solve_triangular", "_linalg_eigh", "_linalg_svd", "ormqr", "linalg_lstsq",
    "cholesky_inverse", "lu_unpack",
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("brief", [1, 0])
def test_cusolver(standin_library, brief):
    if not brief and not os.environ.get("CHORUS_TEST_LONG"):
        pytest.skip("left out: CHORUS_TEST_LONG=1 compares all sizes and types")
    env = dict(os.environ, CHORUS_LIBRARY=str(standin_library), TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    env["PYTHONPATH"] = path_with(pathlib.Path(__file__).parent)
    program = f"BRIEF, WANTED = {brief}, {WANTED}\n" + PROGRAM
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, env=env)
    # What the library doesn't do, and lstsq with another driver than gels.
    fallback = str(["_linalg_eigvals", "linalg_lstsq", "linalg_matrix_exp"])
    assert done.stdout.splitlines() == ["True True []", fallback], done.stdout + done.stderr
