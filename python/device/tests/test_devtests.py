"""python -m chorus_device.devtests: PyTorch's tests for all types of device, in shards, and the reports of them."""

import itertools
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from children import path_with
from chorus_device.devtests import __main__ as command
from chorus_device.devtests import logs, page, table
from chorus_device.devtests.shards import Shard
from chorus_device.devtests.state import State, read
from worlds import longest

HERE = pathlib.Path(__file__).parent
PAGE = str(HERE.parents[2] / "docs" / "zoom-operators.md")
BASE = pathlib.Path(command.__file__).with_name("pytorch_test_base.py")


PARTS = """
    import ctypes, os, time, unittest
    import torch
    from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests
    from torch.testing._internal.common_utils import TestCase, run_tests

    class TestParts(TestCase):
        def setUp(self):
            super().setUp()
            with open("ran", "a") as f:
                print(self._testMethodName, file=f)

        def test_adds(self, device):
            self.assertEqual((torch.ones(2, device=device) + 1).tolist(), [2, 2])

        def test_crashes(self, device):
            print("before the crash", flush=True)
            ctypes.string_at(1)

        def test_fails(self, device):
            "A test with a text."
            self.assertEqual(torch.ones(2, device=device).cpu(), torch.zeros(2))

        def test_hangs(self, device):
            time.sleep(600 if os.environ.get("HANG") else 0)

        @dtypes(torch.float32, torch.float64)
        def test_sines(self, device, dtype):
            self.assertEqual(torch.ones(2, device=device, dtype=dtype).sin_().cpu(), torch.ones(2, dtype=dtype).sin())

        @unittest.skip("for a reason")
        def test_skipped(self, device):
            pass

        @unittest.expectedFailure
        def test_to_fail(self, device):
            self.assertEqual(device, "")

        @unittest.expectedFailure
        def test_to_fail_too(self, device):
            pass

        def test_writes(self, device):
            print("on standard output", flush=True)
            for i in range(2):
                with self.subTest(i=i):
                    torch.ones(2, device=device)[5 * i].item()

    class TestNotOfDevices(TestCase):
        def test_left_out(self):
            self.fail()

    instantiate_device_type_tests(TestParts, globals())

    if __name__ == "__main__":
        run_tests()
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with the program test_parts.py."""
    (tmp_path / "test_parts.py").write_text(textwrap.dedent(PARTS))
    return tmp_path


def tried(folder, *options, device="accinte", **env):
    """The command's exit status, and what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "chorus_device.devtests", device, *options],
        cwd=folder, capture_output=True, text=True, timeout=900, env={**os.environ, **env},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def statuses(folder, device="accinte"):
    _, records, ended = read(folder / f"{device}_tests.jsonl")
    assert ended
    return {r["test"].split(".")[1].replace("_privateuseone", ""): r["status"] for r in records.values()}


# ---- the reports ----


def test_logs_have_the_originals_bytes():
    """The logs are those that the original's script has made of this log, in LC_ALL=C.UTF-8."""
    text = (HERE / "devtests_logs" / "test.log").read_text()
    for name, got in (
        ("zoom_unimplemented_operators.log", logs.unimplemented(text, "zoom")),
        ("zoom_test_errors.log", logs.errors(text)),
    ):
        assert got == (HERE / "devtests_logs" / name).read_text(), name
    assert logs.unimplemented(text, "other") == "\nTotal unimplemented operator failures: 0\n"
    assert logs.errors("") == "\nTotal test errors failures: 0\n"


def record(name, status, text="", **more):
    blocks = [["ERROR", f"{name} (__main__.TestX.{name})", text]] if text else []
    return {
        "program": "test_x", "test": f"TestX.{name}", "status": status, "seconds": 0.5, "notes": [], "blocks": blocks,
        "said": f"{name} (__main__.TestX.{name}) ... {status}\n", **more,
    }  # fmt: skip


LACKS = "Traceback\n  File x\nNotImplementedError: Could not run 'aten::{}' with arguments from the 'zoom' backend\n"


def test_the_page():
    note = [{"fallbacks": {"aten::mm": 3}}]
    now = [
        record("test_a", "error", LACKS.format("cat")), record("test_b", "error", LACKS.format("cat")),
        record("test_c", "error", LACKS.format("mm")), record("test_d", "ok", notes=note),
        record("test_e", "error", "AssertionError: 12.5 isn't <3>\n"), record("test_f", "ok", left=512),
        record("test_g", "error", "AssertionError: 1e-3 isn't <4>\n"),
    ]  # fmt: skip
    before = [record("test_a", "ok"), record("test_d", "error", LACKS.format("bmm")), record("test_c", "ok")]
    now, before = ({r["test"]: r for r in of} for of in (now, before))
    text = page.html("zoom", "PyTorch <2>", now, before, 1)
    flat = " ".join(re.sub(r"<[^>]+>", " ", text.replace("</td>", "|")).split())
    assert re.search(r"cat \| 2\| \+2\|.* mm \| 1\| \+1\|.* bmm \| 0\| -1\|", flat), flat
    assert "aten::mm | 3| +3|" in flat and "TestX.test_f | 512|" in flat
    assert "2 × AssertionError: N isn&#x27;t &lt;N&gt;" in flat, flat
    assert re.search("fail now, and did not: 2. .*TestX.test_a.*TestX.test_c", flat)
    assert re.search("failed, and don't now: 1. .*TestX.test_d", flat)
    assert "PyTorch &lt;2&gt;" in text and "not run| 1|" in flat
    alone = page.html("zoom", "", {}, {}, 0)
    assert "No operator is missed." in alone and "Compared" not in alone
    assert '<meta name="viewport"' in text
    style = text[: text.index("</style>")]
    light, dark = re.findall(r":root {([^}]*)}", style)
    shown = set(re.findall(r"var\((--\w+)\)", style))
    assert set(re.findall(r"--\w+", light)) == set(re.findall(r"--\w+", dark)) == shown
    assert not re.search("#[0-9a-f]{3}", style.replace(light, "").replace(dark, ""))


def test_the_table():
    def noted(op, dtype, kind, backward=False, **fallbacks):
        kernels = ["aten::add.out", f"aten::{op}", "_C::other"]
        facts = {"op": op, "dtype": dtype, "backward": backward, "kind": kind, "fallbacks": fallbacks}
        return {**facts, "kernels": kernels} if kind == "native" else facts

    records = [
        record("test_a", "ok", notes=[noted("add", "float32", "native")]),
        record("test_b", "ok", notes=[noted("add", "float32", "fallback", True, mul=4)]),
        record("test_c", "ok", notes=[noted("add", "int64", "native")]),
        record("test_d", "error", notes=[noted("to_sparse", "int64", "refused")]),
        record("test_compare_cpu_x", "error", died="crash", op="sin", dtype="bool"),
        record("test_e", "ok", notes=[noted("sum", "bool", "composed")]),
    ]
    assert table.kernels(records) == {"aten::add", "aten::add.out"}
    found = table.pairs(records)
    assert not any("ATen" in line for line in table.page("zoom", "", found, "").splitlines())
    lines = table.page("zoom", "2.13.0", found, "docs/x.md", table.kernels(records)).splitlines()
    for line in (
        "Of 5 pairs of an operator and a type that the CPU supports, 3 agree with the CPU, "
        "forward and backward: 60.00 %.",
        "Of 4 operators, 1 are native for some type, and 2 run without a kernel of the CPU, native or composed.",
        "The device's kernels computed 2 operators of ATen, each overload counted.",
        "| int64 | 2 | 1 | 0 | 0 | 1 | 0 |",
        "| all | 5 | 1 | 1 | 1 | 1 | 1 |",
        "| `mul` | 4 |",
        "| operator | float32 | int64 | bool | CPU kernels |",
        "| `add` | F | N |  | 4 |",
        "| `sin` |  |  | X |  |",
        "| `to_sparse` |  | R |  |  |",
    ):
        assert line in lines, (line, lines)


def test_a_section_of_the_table():
    """It says of the pairs that ran elsewhere how they run there, and takes the place of the one before."""

    def pairs(*rows):
        names = ("op", "dtype", "kind")
        facts = [dict(zip(names, row.split(), strict=True)) | {"backward": False, "fallbacks": {}} for row in rows]
        return table.pairs([record(f"test_{row}", "ok", notes=[fact]) for row, fact in zip(rows, facts, strict=True)])

    here = pairs("add float32 native", "add int64 native", "sum bool composed")
    there = pairs("add float32 native", "add int64 fallback", "sin bool differs")
    text = table.page("zoom", "2.13.0", here, "docs/x.md")
    first = table.with_section(text, "a card", here)
    assert "## On a card\n\nOf 3 pairs that ran on a card, 3 agree with the CPU." in first and "otherwise" not in first
    both = table.with_section(table.with_section(first, "a boat", here), "a card", there)
    assert both.count("## On a card\n") == both.count("## On a boat\n") == 1
    section = both.split("## On a card\n")[1].split("\n## ")[0].splitlines()
    for line in (
        "Of 3 pairs that ran on a card, 2 agree with the CPU.",
        "| float32 | 1 | 1 | 0 | 0 | 0 | 0 |",
        "| int64 | 1 | 0 (1) | 0 | 1 (0) | 0 | 0 |",
        "| all | 3 | 1 (2) | 0 | 1 (0) | 0 | 1 (0) |",
        "| `add` | int64 | native | fallback |",
        "| `sin` | bool |  | differs |",
    ):
        assert line in section, (line, section)
    assert table.kinds(both) == table.kinds(text) and len(table.kinds(text)) == 3
    anew = table.page("zoom", "2.14.0", there, "docs/x.md")
    kept = table.with_sections_of(both, anew)
    assert kept.replace(both[both.index("## On a boat\n") : both.index(table.EVERY + "\n")], "") == anew
    assert kept != anew == table.with_sections_of("", anew) == table.with_sections_of(text, anew)


# ---- which tests, and what is kept ----


def test_shards_and_parts():
    tests = [("p", f"TestX.test_{i:04}") for i in range(2500)] + [("q", "TestY.test_0001")]
    shards = command.split(tests, {"p": "/p.py", "q": "/q.py"})
    assert [t for s in shards for t in s.tests] == [t for _, t in tests]
    assert {s.program for s in shards} == {"/p.py", "/q.py"} and max(len(s.tests) for s in shards) <= command.SHARD
    assert command.split(tests[-1:], {"q": "/q.py"}) == [Shard("/q.py", ("TestY.test_0001",))]
    parts = [command.chosen(tests, [], f"{i}/3") for i in (1, 2, 3)]
    assert sorted(sum(parts, [])) == sorted(tests) and not set(parts[0]) & set(parts[1])
    assert len(command.chosen(tests, ["TestX.test_000"], None)) == 10
    assert len(command.chosen(tests, ["*test_0001", "test_0002"], None)) == 3
    for wrong in ("0/2", "3/2", "1", "a/b", "1/0"):
        with pytest.raises(command.Wrong, match="expected I/N"):
            command.chosen(tests, [], wrong)


def test_state(tmp_path):
    path, head = tmp_path / "x.jsonl", {"device": "x"}
    state = State(path)
    assert not state.open(head, False)
    state.add(record("test_a", "ok"))
    state.add(record("test_b", "ok"))
    state.add(record("test_a", "error"))
    state.close()
    with open(path, "a") as f:
        f.write('{"program": "test_x", "test": "TestX.test_c", "sta')  # killed while it wrote
    state = State(path)
    assert state.open(head, False)
    got = {n: r["status"] for n, r in state.records.items()}
    assert got == {"test_x.TestX.test_a": "error", "test_x.TestX.test_b": "ok"}
    state.end()
    state.close()
    _, records, ended = read(path)
    assert ended and len(records) == 2
    for other, anew in ((head, False), ({"device": "y"}, False), ({"device": "y"}, True)):
        state = State(path)
        assert not state.open(other, anew) and not state.records
        state.close()
    assert not State(tmp_path / "y.jsonl").open(head, True)


def test_a_run_elsewhere_is_another_one(monkeypatch):
    heads = []
    for options, driver in (([], ""), (["--on", "a card"], ""), ([], "cuda"), ([], "")):
        monkeypatch.setattr(sys, "argv", ["devtests", "zoom", *options, "--table", PAGE])
        monkeypatch.setenv("CHORUS_ZOOM_DRIVER", driver)
        heads.append(command.head(command.parsed(), "2.13.0", {}, []))
    assert heads[0] == heads[3] and all(a != b for a, b in itertools.combinations(heads[:3], 2))


def test_a_section_without_its_page(tmp_path, monkeypatch, capsys):
    """It's refused before the tests run."""
    (tmp_path / "page.md").write_text("# Another page\n")
    for table_of, why in (
        ([], "--on is for the page of --table"),
        (["--table", str(tmp_path / "none.md")], "none.md isn't a page that --table has written"),
        (["--table", str(tmp_path / "page.md")], "page.md isn't a page that --table has written"),
    ):
        monkeypatch.setattr(sys, "argv", ["devtests", "zoom", "--on", "a card", *table_of])
        with pytest.raises(SystemExit) as ended:
            command.parsed()
        assert ended.value.code == 2 and why in capsys.readouterr().err


# ---- the command ----


def test_a_crash_and_a_missing_operator_cost_one_test_each(folder):
    status, text = tried(
        folder, "--programs", "test_parts.py", "--without", "sin.out", "-k", "_crashes", "-k", "_sines", "-k", "_skip"
    )  # fmt: skip
    assert status == 1 and "1 skipped" in text, text
    got = statuses(folder)
    sines = {"test_sines_float32": "error", "test_sines_float64": "error"}
    assert got == {"test_crashes": "error", "test_skipped": "skip", **sines}
    assert (folder / "accinte_unimplemented_operators.log").read_text() == (
        "2\tsin.out\n\nTotal unimplemented operator failures: 2\n"
    )
    assert (folder / "accinte_test_errors.log").read_text() == (
        "2\tNotImplementedError: Could not run 'aten::sin.out' with arguments from the 'accinte' backend. It was\n"
        "1\tChildProcessError: the process ended during the test: SIGSEGV\n"
        "\nTotal test errors failures: 3\n"
    )
    log = (folder / "test.log").read_text()
    assert "ERROR: test_crashes_privateuseone (__main__.TestPartsPRIVATEUSEONE.test_crashes_privateuseone)\n" in log
    assert "before the crash\n" in log and "string_at" in log, log  # where it crashed


@longest
@pytest.mark.long
def test_the_log_is_unittests(folder):
    env = {"TORCH_TEST_DEVICES": str(BASE), "PYTORCH_TESTING_DEVICE_EXCEPT_FOR": command.BESIDE}
    env["CI"] = ""  # PyTorch's programs would write a report for its own CI
    names = ["adds", "fails", "hangs", "sines", "skipped", "to_fail", "to_fail_too", "writes"]
    patterns = [o for n in names for o in ("-k", f"TestPartsPRIVATEUSEONE.test_{n}")]
    done = subprocess.run(
        [sys.executable, "-u", "test_parts.py", "--verbose", *patterns], cwd=folder, text=True, timeout=900,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **env},
    )  # fmt: skip
    status, text = tried(folder, "--programs", "test_parts.py", *patterns)
    assert status == done.returncode == 1, text

    def plain(text):
        return re.sub(r"in \d+\.\d+s", "in T", text)

    assert plain((folder / "test.log").read_text()) == plain(done.stdout)
    assert statuses(folder) == {
        "test_adds": "ok", "test_fails": "fail", "test_hangs": "ok", "test_sines_float32": "ok",
        "test_sines_float64": "ok", "test_skipped": "skip", "test_to_fail": "xfail", "test_to_fail_too": "xpass",
        "test_writes": "error",
    }  # fmt: skip


@longest
@pytest.mark.long
def test_a_hang_costs_one_test(folder):
    status, text = tried(
        folder, "--programs", "test_parts.py", "--timeout", "5", "-k", "_hangs", "-k", "_sines", HANG="1"
    )  # fmt: skip
    assert status == 1 and statuses(folder) == {
        "test_hangs": "error", "test_sines_float32": "ok", "test_sines_float64": "ok",
    }, text  # fmt: skip
    log = (folder / "test.log").read_text()
    assert "TimeoutError: no end in 5 s" in log and "in test_hangs" in log, log


@pytest.mark.long
@longest
def test_a_run_continues(folder):
    run = ["--programs", "test_parts.py", "-k", "_adds", "-k", "_sines", "-k", "_hangs", "--jobs", "1"]
    status, text = tried(folder, *run, "--limit", "0.001")
    assert status == 3 and "3 tests have not been run: the same command continues" in text, text
    process = subprocess.Popen(
        [sys.executable, "-m", "chorus_device.devtests", "accinte", *run], cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "HANG": "1"},
    )  # fmt: skip
    deadline = time.monotonic() + 300
    while "test_hangs" not in (folder / "ran").read_text():
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()[0]
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    text = process.communicate(timeout=60)[0]
    assert process.returncode == 130 and "continuing: 1 of 4 tests" in text, text
    status, text = tried(folder, *run)
    assert status == 0 and "4 passed" in text, text
    ran = (folder / "ran").read_text().replace("_accinte", "").replace("_privateuseone", "").split()
    assert ran == ["test_adds", "test_hangs", "test_hangs", "test_sines_float32", "test_sines_float64"]
    before = (folder / "test.log").read_text()
    status, text = tried(folder, *run)  # the run has ended: another one
    assert status == 0 and "continuing" not in text and (folder / "test.log.bak").read_text() == before
    assert "failed, and don't now: 0" in (folder / "accinte_tests.html").read_text()


@pytest.mark.long
@longest
def test_devices_and_programs_of_others(folder):
    """A device that a module registers, its own base class, and programs in a checkout."""
    (folder / "other.py").write_text(
        textwrap.dedent("""
        import types
        import chorus_device
        from chorus_device import namespace
        other = types.ModuleType("other")
        for name in dir(namespace):
            setattr(other, name, getattr(namespace, name))
        chorus_device.plug("other", driver="accinte", module=other)
    """)
    )
    (folder / "base.py").write_text(
        textwrap.dedent("""
        class OtherTestBase(DeviceTypeTestBase):
            device_type = "other"
        TEST_CLASS = OtherTestBase
    """)
    )
    (folder / "test").mkdir()
    (folder / "test_parts.py").rename(folder / "test" / "test_parts.py")
    run = ["--import", "other", "--pytorch", ".", "--programs", "test_parts", "-k", "_adds", "-k", "_sines"]
    env = {"PYTHONPATH": path_with(folder)}
    status, text = tried(folder, *run, device="other", **env)
    assert status == 0 and "3 passed" in text, text
    status, text = tried(folder, *run, "--list", device="other", TORCH_TEST_DEVICES=str(folder / "base.py"), **env)
    assert status == 0 and "test_parts.TestPartsOTHER.test_adds_other\n" in text and "PRIVATE" not in text, text


@pytest.mark.long
@longest
def test_what_cannot_be_run(folder):
    (folder / "test_wrong.py").write_text("import nonesuch\n")
    for options, device, why in (
        (["--programs", "test_none.py"], "accinte", "there is no test program test_none.py"),
        (["--programs", "test_wrong.py"], "accinte", "test_wrong.py: ModuleNotFoundError: No module named 'nonesuch'"),
        (["--programs", "test_parts.py"], "zoo", "PyTorch's device from outside is 'accinte', not 'zoo'"),
        (["--programs", "test_parts.py", "-k", "nothing"], "accinte", "no test matches"),
        (["--programs", "test_parts.py", "--without", "nonesuch.out"], "accinte", "has no operator aten::nonesuch.out"),
        (["--pytorch", "."], "accinte", "there is no test program test/test_torch.py"),
    ):
        status, text = tried(folder, *options, device=device)
        assert status == 2 and why in text and "Traceback" not in text, text


@pytest.mark.long
@longest
def test_operators(tmp_path):
    """The suites of this package: on accinte they pass, and without an operator the log has that one."""
    run = ["-k", "TestTorchDeviceTypePRIVATEUSEONE", "-k", "TestCommonPRIVATEUSEONE.test_numpy_ref_s"]
    run += ["-k", "privateuseone_float32", "--samples", "2", "--shard", "1/5"]
    status, text = tried(tmp_path, *run, "--table", "table.md")
    errors = (tmp_path / "accinte_test_errors.log").read_text().splitlines()
    assert status == 0, text + "\n".join(errors)
    _, records, _ = read(tmp_path / "accinte_tests.jsonl")
    assert len(records) > 500 and not [n for n, r in records.items() if r.get("left")]
    status, text = tried(tmp_path, "-k", "_sin_privateuseone", "-k", "_cos_privateuseone", "--without", "sin.out")
    assert status == 1, text
    _, records, _ = read(tmp_path / "accinte_tests.jsonl")
    bad = [n for n, r in records.items() if r["status"] in ("fail", "error")]
    log = (tmp_path / "accinte_unimplemented_operators.log").read_text()
    # PyTorch repeats an operator's error with the arguments, and mentions count.
    n = (tmp_path / "test.log").read_text().count("Could not run 'aten::")
    assert log == f"{n}\tsin.out\n\nTotal unimplemented operator failures: {n}\n" and n == 2 * len(bad), log
    assert sum("_cos_" in n for n in records) > 20 < len(bad)
