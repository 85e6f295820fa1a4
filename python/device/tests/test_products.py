"""Products of matrices by a library, on GPUs that are stand-ins with a stand-in for cuBLAS."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, types, warnings
import torch, chorus_device

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "1"  # for the stand-in, which loads its emulated devices itself

chorus_device.plug("sim", driver="cuda", module=types.ModuleType("sim"))
x, y = torch.arange(6.0).view(2, 3), torch.arange(12.0).view(3, 4)
a, b = x.to("sim"), y.to("sim")
assert torch.equal((a @ b).cpu(), x @ y)
out = torch.ones(4, 2, device="sim")
assert torch.equal(torch.addmm(out, b.t(), a.t(), beta=2, alpha=3, out=out).cpu(), 2 + 3 * (y.t() @ x.t()))
print("by the library:", chorus_device.kernels()["multiplied"])
torch.use_deterministic_algorithms(True)
try:
    a @ b
    print("deterministic")
except RuntimeError as error:
    print(error)
torch.use_deterministic_algorithms(True, warn_only=True)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    a @ b
print("warnings:", sum("it uses CuBLAS" in str(w.message) for w in said))
"""

# PyTorch's words.
TEXT = (
    "Deterministic behavior was enabled with either `torch.use_deterministic_algorithms(True)` or "
    "`at::Context::setDeterministicAlgorithms(true)`, but this operation is not deterministic because it uses CuBLAS "
    "and you have CUDA >= 10.2. To enable deterministic behavior in this case, you must set an environment variable "
    "before running your PyTorch application: CUBLAS_WORKSPACE_CONFIG=:4096:8 or CUBLAS_WORKSPACE_CONFIG=:16:8. For "
    "more information, go to https://docs.nvidia.com/cuda/cublas/index.html#results-reproducibility"
)


@pytest.mark.long
def test_cublas(standin_library):
    for config, text, warnings in (("", TEXT, 1), (":16:8", "deterministic", 0)):
        env = dict(os.environ, CHORUS_LIBRARY=str(standin_library), CUBLAS_WORKSPACE_CONFIG=config)
        env["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=240, env=env)
        assert done.stdout.splitlines() == ["by the library: 2", text, f"warnings: {warnings}"], done.stderr
