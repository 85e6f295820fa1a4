"""``torch.zoom.tunable``: results that are measured, kept in files, and used. A library of products that refuses all of
them takes CLBlast's place, so that the kernel is the fastest."""

import os
import shutil
import subprocess

import chorus_device
import pytest
import torch
from test_zoom import D, run
from worlds import longest

REFUSING = [f"{letter}gemm{many}" for letter in "SDCZ" for many in ("", "StridedBatched")]
PRODUCTS = """
    import torch
    t = torch.zoom.tunable
    a, b = torch.arange(15.0).view(3, 5), torch.arange(20.0).view(5, 4)
    for _ in range(2):
        assert torch.equal((a.to("zoom") @ b.to("zoom")).cpu(), a @ b)
    x = torch.ones(2, 3, 3, dtype=torch.float64, device="zoom")
    torch.bmm(x.mT, x)
    for op, parameters, solution, millis in t.get_results():
        assert millis >= 0
        print(op, parameters, solution)
"""
RESULTS = [
    "GemmStridedBatchedTunableOp_double_NT nt_3_3_3_B_2_ld_3_3_3 Gemm_Chorus",
    "GemmTunableOp_float_NN nn_4_3_5_ld_4_5_4 Gemm_Chorus",
]


@pytest.fixture
def library(tmp_path):
    """A library with CLBlast's functions, which say that they aren't implemented."""
    cc = shutil.which(os.environ.get("CC", "cc"))
    if cc is None or torch.zoom.version.opencl is None:
        pytest.skip("left out: there's no C compiler, or no device of OpenCL")
    try:
        torch.ones(2, 2, device=D) @ torch.ones(2, 2, device=D)
        if chorus_device.kernels()["refused"]:
            pytest.skip("left out: the device's driver compiles no kernels")
    except NotImplementedError:
        pytest.skip("left out: the device's driver compiles no kernels")
    source, path = tmp_path / "clblast.c", tmp_path / "libclblast.so"
    functions = [f"int CLBlast{name}(void) {{ return -1024; }}" for name in REFUSING]
    source.write_text("\n".join([*functions, "int CLBlastClearCache(void) { return 0; }"]))
    subprocess.run([cc, "-shared", "-fPIC", "-o", path, source], check=True)
    return {"CHORUS_BLAS_LIBRARY": str(path), "PYTORCH_TUNABLEOP_FILENAME": str(tmp_path / "results.csv")}


@longest
@pytest.mark.long
def test_tuning(library, tmp_path):
    file = tmp_path / "results0.csv"
    done = run(PRODUCTS, **library)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr  # it's off
    assert done.stderr.count("a library didn't multiply matrices") == 1 and "NotImplemented" in done.stderr
    done = run(PRODUCTS, **library, PYTORCH_TUNABLEOP_ENABLED="1", PYTORCH_TUNABLEOP_TUNING="0")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert not file.exists()

    done = run(PRODUCTS, **library, PYTORCH_TUNABLEOP_ENABLED="1", PYTORCH_TUNABLEOP_MAX_TUNING_ITERATIONS="2")
    assert done.stdout.splitlines() == RESULTS, done.stdout + done.stderr
    lines = file.read_text().splitlines()
    assert lines[0] == "Validator,PT_VERSION," + torch.__version__.partition("+")[0]
    assert [line.rpartition(",")[0].replace(",", " ") for line in lines if not line.startswith("Validator")] == RESULTS

    done = run(PRODUCTS, **library, PYTORCH_TUNABLEOP_ENABLED="1", PYTORCH_TUNABLEOP_TUNING="0")
    assert done.stdout.splitlines() == RESULTS and done.stderr == "", done.stdout + done.stderr
    file.write_text(file.read_text().replace("PT_VERSION,", "PT_VERSION,0."))
    done = run(PRODUCTS, **library, PYTORCH_TUNABLEOP_ENABLED="1", PYTORCH_TUNABLEOP_TUNING="0")
    assert done.stdout == "" and "results0.csv is for" in done.stderr, done.stdout + done.stderr


@pytest.mark.anywhere
def test_settings(tmp_path):
    """They hold before a device is used, which loads nothing."""
    t = torch.zoom.tunable
    assert not t.is_enabled() and t.tuning_is_enabled()
    assert (t.get_max_tuning_duration(), t.get_max_tuning_iterations()) == (30, 100)
    done = run(
        """
        import torch
        t = torch.zoom.tunable
        t.enable(), t.tuning_enable(False), t.set_max_tuning_duration(5), t.set_max_tuning_iterations(-1)
        print(t.is_enabled(), t.tuning_is_enabled(), t.get_max_tuning_duration(), t.get_max_tuning_iterations())
        t.set_filename("x.csv")
        print(t.get_filename(), "libchorus" in open("/proc/self/maps").read())
        for f in (t.record_untuned_enable, lambda: t.set_rotating_buffer_size(1), lambda: t.tune_gemm_in_file("x")):
            try:
                f()
            except NotImplementedError as error:
                print(error)
        """,
        PYTORCH_TUNABLEOP_MAX_TUNING_DURATION_MS="7",
    )
    assert done.stdout.splitlines() == [
        "True False 5 0",
        "x.csv False",
        "torch.zoom.tunable has no record of untuned products for later",
        "torch.zoom.tunable has no rotating buffers",
        "torch.zoom.tunable has no tuning of recorded products",
    ], done.stderr
