"""Products of matrices by a library, on GPUs that are stand-ins, as cuBLAS, cuBLASLt and cuSPARSE are."""

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


# Kernels don't compile there, so that PyTorch's CPU kernels do what the library refuses.
BYTES = """
import os, types
import torch, chorus_device
from torch.nn.functional import ScalingType

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "1"
chorus_device.plug("sim", driver="cuda", module=types.ModuleType("sim"))

def on(x):  # strides as they are
    return x.to("sim") if x.is_contiguous() else x.t().to("sim").t()

def compare(what, f, *tensors):
    want, before = f(*tensors), chorus_device.kernels()["multiplied"]
    got = f(*[on(t) if isinstance(t, torch.Tensor) else t for t in tensors])
    assert got.dtype == want.dtype and torch.equal(got.cpu().float(), want.float()), what
    print(what, chorus_device.kernels()["multiplied"] - before)

a = torch.arange(32 * 16).view(32, 16) % 7 - 3
b = (torch.arange(16 * 48).view(48, 16) % 5 - 2).t()
i, j = a.to(torch.int8), b.to(torch.int8)
compare("int8", torch._int_mm, i, j)
compare("int8, rows", torch._int_mm, i, j.contiguous())
compare("int8, odd", torch._int_mm, i[:, :15].contiguous(), j[:15].t().contiguous().t())
e4, e5 = torch.float8_e4m3fn, torch.float8_e5m2
number, rows = torch.tensor(0.5), torch.arange(32.0).view(-1, 1) % 3 + 1
columns = torch.arange(48.0).view(1, -1) % 2 + 1
bias = (torch.arange(48.0) % 4).bfloat16()

def scaled(p, q, s, t, bias=None, result=None, out=torch.bfloat16):
    return torch._scaled_mm(p, q, s, t, bias=bias, scale_result=result, out_dtype=out)

def second(p, q, s, t, recipe):
    return torch._scaled_mm_v2(p, q, [s], [recipe], [], [t], [recipe], [], None, torch.bfloat16, (), False)

x, y, z = a.to(e4), b.to(e4), b.to(e5)
compare("float8", scaled, x, y, number, number)
compare("float8, bias", scaled, x, z, number, number, bias)
compare("float8, lines", scaled, x, y, rows, columns)
compare("float8 to float8", scaled, x, y, number, number, None, None, e4)
compare("float8, bias of float32", scaled, x, y, number, number, bias.float(), None, torch.float32)
compare("float8, rows", scaled, x, y.float().contiguous().to(e4), number, number)
compare("e5m2", scaled, a.to(e5), z, number, number)
compare("second", second, x, y, number, number, ScalingType.TensorWise.value)
compare("second, lines", second, x, y, rows, columns, ScalingType.RowWise.value)
"""
BY_THE_LIBRARY = ["int8", "float8", "float8, bias", "float8, lines", "float8 to float8", "second", "second, lines"]


@pytest.mark.long
@pytest.mark.parametrize("off", ["", "1"])
def test_cublaslt(standin_library, off):
    env = dict(os.environ, CHORUS_LIBRARY=str(standin_library), DISABLE_HIPBLASLT=off)
    env["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    done = subprocess.run([sys.executable, "-c", BYTES], capture_output=True, text=True, timeout=240, env=env)
    told = [line.rpartition(" ") for line in done.stdout.splitlines()]
    assert len(told) == 12, done.stderr
    assert [what for what, _, n in told if n == "1"] == ([] if off else BY_THE_LIBRARY), done.stdout


# Kernels don't compile there, so that PyTorch's CPU kernels do what isn't the library's.
SPARSE = """
import os, types
import torch, chorus_device

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "1"
chorus_device.plug("sim", driver="cuda", module=types.ModuleType("sim"))

def case(what, f, want, *tensors):
    before = chorus_device.kernels()["multiplied"]
    got = f(*(t.to("sim") for t in tensors))
    torch.testing.assert_close(got.cpu(), want)
    print(what, chorus_device.kernels()["multiplied"] - before)

x = torch.tensor([[0.0, 2, 0], [0, 0, 0], [3, 0, 4], [1, 0, 0]])
y, z, v = torch.arange(15.0).view(3, 5) - 7, torch.arange(20.0).view(4, 5), torch.arange(3.0)
mm = lambda a, b: a @ b
for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128):
    a, b = x.to(dtype), y.to(dtype)
    case(str(dtype), mm, a @ b, a.to_sparse_csr(), b)
csr, coo = x.to_sparse_csr(), x.to_sparse_coo()
case("a transposed matrix", lambda a, b: a @ b.t(), x @ y, csr, y.t().contiguous())
case("a vector", mm, x @ v, csr, v)
case("a sum", lambda c, a, b: c.addmm_(a, b, beta=2, alpha=3), 2 * z + 3 * (x @ y), z, csr, y)
case("dense by sparse", mm, y.t() @ x.t(), y.t(), x.t().to_sparse_csr())
case("columns", mm, x @ y, x.to_sparse_csc(), y)
case("coordinates", mm, x @ y, coo, y)
twice = torch.sparse_coo_tensor(torch.cat([coo.indices()] * 2, 1), torch.cat([coo.values()] * 2), x.shape)
case("coordinates twice", mm, 2 * x @ y, twice, y)
torch.use_deterministic_algorithms(True)
case("deterministic", mm, x @ y, csr, y)
"""


@pytest.mark.long
def test_cusparse(standin_library):
    env = dict(os.environ, CHORUS_LIBRARY=str(standin_library), TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    done = subprocess.run([sys.executable, "-c", SPARSE], capture_output=True, text=True, timeout=240, env=env)
    types = ("float32", "float64", "float16", "bfloat16", "complex64", "complex128")
    assert done.stdout.splitlines() == [f"torch.{t} 1" for t in types] + [
        "a transposed matrix 1", "a vector 1", "a sum 1", "dense by sparse 1", "columns 1", "coordinates 1",
        "coordinates twice 0", "deterministic 1",
    ], done.stdout + done.stderr  # fmt: skip
