"""A process that runs tests of one program: ``python -m chorus_device.devtests.worker OPTIONS``, by ``shards``.

OPTIONS are JSON. The process reports in lines of JSON on its standard output: first the names of all tests of the
device, then for each name that it reads the test's begin and its record. Standard error must be an empty file: what
the test and unittest write goes there, and from there into the record.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import importlib
import json
import os
import sys
import time
import types
import unittest
import warnings
from typing import IO, Any

import torch

from chorus_device._device import drain_autograd, make_kept_memory
from chorus_device.devtests import notes
from chorus_device.sweep import name_of

MOST_OUTPUT = 1 << 16  # bytes of output of a test that are kept
MISSING = "Could not run 'aten::{}' with arguments from the '{}' backend"


def load(program: str) -> types.ModuleType:
    """Run a test program up to its tests, as ``python PROGRAM`` would, and give its module."""
    from torch.testing._internal import common_device_type, common_utils

    # PyTorch's own class for the device gives way to that of TORCH_TEST_DEVICES.
    bases: list[Any] = common_device_type.device_type_test_bases
    bases[:] = [base for base in bases if base.__name__ != "PrivateUse1TestBase"]
    sys.argv = [program]
    sys.path[0] = os.path.dirname(program)
    for of in (common_utils, unittest):  # at a program's end; this process runs the tests instead
        for name in ("run_tests", "main"):
            if hasattr(of, name):
                setattr(of, name, lambda *args, **kwargs: None)
    getattr(common_utils, "parse_cmd_line_args", lambda: None)()
    module = types.ModuleType("__main__")
    module.__file__ = program
    sys.modules["__main__"] = module
    with open(program, "rb") as source:
        exec(compile(source.read(), program, "exec"), module.__dict__)
    return module


def tests_of(module: types.ModuleType, device: str) -> dict[str, unittest.TestCase]:
    """The tests of a device in a program, in unittest's order, by their names: Class.test."""
    found: dict[str, unittest.TestCase] = {}

    def look(suite: Any) -> None:
        for test in suite:
            if isinstance(test, unittest.TestSuite):
                look(test)
                continue
            kind = getattr(type(test), "device_type", None)
            if isinstance(kind, str) and is_for(kind, device):
                found[test.id().removeprefix("__main__.")] = test

    look(unittest.defaultTestLoader.loadTestsFromModule(module))
    return found


def is_for(kind: str, device: str) -> bool:
    """Whether a type of device by which PyTorch names classes is the device."""
    try:
        return kind == "privateuse1" or torch.device(kind).type == device
    except RuntimeError:
        return False


def operator_of(test: unittest.TestCase) -> dict[str, str]:
    """The operator and the type of a test that PyTorch has made for them, or nothing."""
    defaults: Any = getattr(getattr(test, test._testMethodName), "__defaults__", None) or ({},)
    given = defaults[0] if isinstance(defaults[0], dict) else {}
    if "op" not in given or not isinstance(given.get("dtype"), torch.dtype):
        return {}
    return {"op": name_of(given["op"]), "dtype": str(given["dtype"]).removeprefix("torch.")}


_left_out: list[torch.library.Library] = []


def leave_out(operators: list[str], device: str) -> None:
    """Have the device lack operators, such as "sin.out", with the error that PyTorch has for a missing kernel."""
    make: Any = torch.library.Library
    library = make("aten", "IMPL")
    _left_out.append(library)  # whose end would bring them back
    known: Any = torch._C._dispatch_has_kernel
    for operator in operators:
        if not known(f"aten::{operator}"):
            raise SystemExit(f"PyTorch has no operator aten::{operator}")

        def missing(*args: Any, operator: str = operator, **kwargs: Any) -> Any:
            raise NotImplementedError(MISSING.format(operator, device) + ". It was left out by --without.")

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the device may have a kernel, which gives way
            library.impl(operator, missing, "PrivateUse1")


def settle(device: str) -> str:
    """Wait for the device. The result is the error that work has left, if it's one."""
    try:
        torch.accelerator.synchronize(device)
        return ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def recovered(device: str) -> bool:
    """Make streams that have failed usable again, and say whether that worked."""
    clear: Any = getattr(getattr(torch, device, None), "clear_error", None)
    if clear is None:
        return False
    clear(torch.accelerator.current_stream(device))
    return not settle(device)


def left(device: str, before: int) -> int:
    """Bytes of the device's memory that are allocated beyond so many."""

    def more() -> int:
        return int(torch.accelerator.memory_allocated(device)) - before

    if more() <= 0:
        return 0
    if "chorus_device._C" in sys.modules:  # the device is one of this package
        drain_autograd()
    gc.collect()
    torch.accelerator.synchronize(device)
    return max(more(), 0)


def said() -> str:
    """The text that has been written to standard output and standard error since the last call."""
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)
    data = os.pread(2, MOST_OUTPUT, 0)
    rest = os.fstat(2).st_size - len(data)
    os.ftruncate(2, 0)
    os.lseek(2, 0, os.SEEK_SET)  # for all that have the file: it isn't one to which all append
    return data.decode(errors="replace") + (f"\n[{rest} bytes more]\n" if rest else "")


def allocated(device: str) -> int:
    try:
        return int(torch.accelerator.memory_allocated(device))
    except Exception:  # a device that has no such figures
        return -1


def run(name: str, test: unittest.TestCase, device: str, seconds: float) -> dict[str, Any]:
    """Run a test. The record has what it has written, as unittest's verbose log, and its errors."""
    notes.taken()
    before = allocated(device)
    result = unittest.TextTestResult(unittest.runner._WritelnDecorator(sys.stderr), True, 2)
    faulthandler.dump_traceback_later(seconds, exit=True)
    begin = time.monotonic()
    try:
        unittest.TestSuite([test])(result)
    finally:
        faulthandler.cancel_dump_traceback_later()
    record: dict[str, Any] = {"test": name, "seconds": round(time.monotonic() - begin, 3), "notes": notes.taken()}
    blocks = [("ERROR", t, text) for t, text in result.errors] + [("FAIL", t, text) for t, text in result.failures]
    record["blocks"] = [[flavour, result.getDescription(t), text] for flavour, t, text in blocks]
    late = settle(device)
    if late:
        record["blocks"].append(["ERROR", result.getDescription(test), f"After the test: {late}\n"])
        record["stop"] = not recovered(device)
    record["status"] = (
        "error" if result.errors or late
        else "fail" if result.failures
        else "skip" if result.skipped
        else "xfail" if result.expectedFailures
        else "xpass" if result.unexpectedSuccesses
        else "ok"
    )  # fmt: skip
    if result.unexpectedSuccesses:
        record["description"] = result.getDescription(test)
    if result.skipped:
        record["why"] = str(result.skipped[0][1])[:200]
    if result.shouldStop:  # PyTorch's tests say so of a device that can't go on
        record["stop"] = True
    if record["status"] == "ok" and before >= 0:
        record["left"] = left(device, before)
    record["said"] = said()
    return record


def main() -> None:
    with os.fdopen(os.dup(1), "w", buffering=1) as reports:
        os.dup2(2, 1)
        faulthandler.enable()
        serve(json.loads(sys.argv[1]), reports)


def serve(options: dict[str, Any], reports: IO[str]) -> None:
    """Run the tests whose names come on standard input."""
    if options["module"]:
        os.environ.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)  # so that processes of tests load the device
        importlib.import_module(options["module"])
    device = options["device"]
    if torch._C._get_privateuse1_backend_name() != device:
        raise SystemExit(
            f"PyTorch's device from outside is {torch._C._get_privateuse1_backend_name()!r}, not {device!r}"
        )
    settled = settle(device)
    if settled:
        raise SystemExit(settled)
    make_kept_memory()
    warnings.simplefilter("default")  # as unittest's own program has it
    if not sys.warnoptions:
        sys.warnoptions.append("default")
    tests = tests_of(load(options["program"]), device)
    leave_out(options["without"], device)
    said()
    gc.collect()
    gc.freeze()  # the tests, so that looking for garbage after a test is quick
    print(json.dumps({"tests": list(tests)}), file=reports)
    for line in sys.stdin:
        name = json.loads(line)
        print(json.dumps(operator_of(tests[name])), file=reports)
        record = run(name, tests[name], device, options["seconds"])
        print(json.dumps(record), file=reports)
        if record.get("stop"):
            os._exit(0)


if __name__ == "__main__":
    main()
