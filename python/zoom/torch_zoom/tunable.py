"""``torch.zoom.tunable``, as ``torch.cuda.tunable``: products of matrices go to the library or to a kernel, whichever
was faster when it was measured.

The variables are PyTorch's: ``PYTORCH_TUNABLEOP_ENABLED``, ``_TUNING``, ``_FILENAME``, ``_MAX_TUNING_DURATION_MS`` and
``_MAX_TUNING_ITERATIONS``. So is the format of files. Results are read when tuning is enabled, and written when the
program ends, if there are new ones.
"""

from __future__ import annotations

import atexit
import os
import warnings
from typing import Any

import torch
from chorus_device import namespace
from chorus_device._device import c

from chorus._files import read_text
from torch_zoom import version
from torch_zoom.lazy import _lazy_call, _lazy_init

__all__ = [
    "enable",
    "get_filename",
    "get_max_tuning_duration",
    "get_max_tuning_iterations",
    "get_results",
    "get_rotating_buffer_size",
    "get_validators",
    "is_enabled",
    "mgpu_tune_gemm_in_file",
    "read_file",
    "record_untuned_enable",
    "record_untuned_is_enabled",
    "set_filename",
    "set_max_tuning_duration",
    "set_max_tuning_iterations",
    "set_numerical_check_tolerances",
    "set_rotating_buffer_size",
    "tune_gemm_in_file",
    "tuning_enable",
    "tuning_is_enabled",
    "write_file",
    "write_file_on_exit",
]


def _flag(name: str, default: bool) -> bool:
    value = os.environ.get("PYTORCH_TUNABLEOP_" + name)
    return default if value is None else value == "1"


def _number(name: str, default: int) -> int:
    value = os.environ.get("PYTORCH_TUNABLEOP_" + name, "")
    if value and not value.isdecimal():
        raise ValueError(f"PYTORCH_TUNABLEOP_{name} is {value!r}, and is a number")
    return int(value) if value else default


class _State:
    def __init__(self) -> None:
        self.enabled = _flag("ENABLED", False)
        self.tuning = _flag("TUNING", True)
        self.duration = _number("MAX_TUNING_DURATION_MS", 30)  # of one solution
        self.iterations = _number("MAX_TUNING_ITERATIONS", 100)
        self.filename: str | None = None
        self.write = True
        self.read = False  # results of the file
        self.known: set[str] = set()  # what the file has


_state = _State()


def _apply() -> None:
    """Tell the library what holds, when a device is first used."""
    _lazy_call(_apply_now)


def _apply_now() -> None:
    s = _state
    c().tune_set(s.enabled, s.tuning, s.duration, s.iterations)
    if s.enabled and not s.read:
        s.read = True
        atexit.register(_at_exit)
        if os.path.exists(get_filename()):
            read_file()


def _at_exit() -> None:
    if _state.write and _state.enabled and _state.tuning and set(_lines()) - _state.known:
        write_file()


def _lines() -> list[str]:
    _lazy_init()
    return [line for line in c().tune_results().split("\n") if line]


def enable(val: bool = True) -> None:
    """Let products be those that were found fastest."""
    _state.enabled = bool(val)
    _apply()


def is_enabled() -> bool:
    return _state.enabled


def tuning_enable(val: bool = True) -> None:
    """Let products of which nothing is known be measured. It has an effect while tunable is enabled."""
    _state.tuning = bool(val)
    _apply()


def tuning_is_enabled() -> bool:
    return _state.tuning


def set_max_tuning_duration(duration: int) -> None:
    """Milliseconds for each solution at most; at least one run is measured."""
    _state.duration = max(int(duration), 0)
    _apply()


def get_max_tuning_duration() -> int:
    return _state.duration


def set_max_tuning_iterations(iterations: int) -> None:
    _state.iterations = max(int(iterations), 0)
    _apply()


def get_max_tuning_iterations() -> int:
    return _state.iterations


def set_filename(filename: str, insert_device_ordinal: bool = False) -> None:
    """Set the file of results. With ``insert_device_ordinal`` the current device's number comes before its suffix."""
    if insert_device_ordinal:
        base, suffix = os.path.splitext(filename)
        filename = f"{base}{namespace.current_device()}{suffix}"
    _state.filename = filename


def get_filename() -> str:
    if _state.filename is None:
        set_filename(os.environ.get("PYTORCH_TUNABLEOP_FILENAME", "tunableop_results.csv"), True)
    assert _state.filename is not None
    return _state.filename


def get_results() -> tuple[tuple[str, str, str, float], ...]:
    """All results: operator, parameters, solution and milliseconds of each."""
    rows = (line.split(",") for line in _lines())
    return tuple((op, params, solution, float(millis)) for op, params, solution, millis in rows)


def get_validators() -> tuple[tuple[str, str], ...]:
    """The versions that a file's results are for."""
    found = [("PT_VERSION", torch.__version__.partition("+")[0])]
    for name in version.__all__:
        if value := getattr(version, name):
            found.append((f"{name.upper()}_VERSION", value))
            found.append(("DEVICE", namespace.get_device_name()))
    return tuple(found)


def read_file(filename: str | None = None) -> bool:
    """Read results; False, with a warning, if the file isn't one, or is for other versions. Results that are there
    already stay."""
    _lazy_init()
    filename = filename or get_filename()
    try:
        lines = [line.strip() for line in read_text(filename).splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        warnings.warn(f"torch.zoom.tunable can't read {filename}: {error}", stacklevel=2)
        return False
    results = [line for line in lines if not line.startswith("Validator,")]
    validators = [tuple(line.split(",", 2)[1:]) for line in lines if line.startswith("Validator,")]
    if sorted(validators) != sorted(get_validators()):
        warnings.warn(f"{filename} is for {validators}, and this is {list(get_validators())}", stacklevel=2)
        return False
    try:
        for line in results:
            c().tune_add(line)
    except RuntimeError as error:
        warnings.warn(f"{filename}: {error}", stacklevel=2)
        return False
    _state.known.update(results)
    return True


def write_file(filename: str | None = None) -> bool:
    """Write all results; False, with a warning, if the file can't be written."""
    filename = filename or get_filename()
    lines = _lines()
    try:
        with open(filename, "w") as file:
            for name, value in get_validators():
                file.write(f"Validator,{name},{value}\n")
            file.writelines(line + "\n" for line in lines)
    except OSError as error:
        warnings.warn(f"torch.zoom.tunable can't write {filename}: {error}", stacklevel=2)
        return False
    _state.known.update(lines)
    return True


def write_file_on_exit(val: bool) -> None:
    """Whether new results are written when the program ends, which is so at first."""
    _state.write = bool(val)


def _refuse(what: str) -> Any:
    raise NotImplementedError(f"torch.zoom.tunable has no {what}")


def record_untuned_enable(val: bool = True) -> None:
    if val:
        _refuse("record of untuned products for later")


def record_untuned_is_enabled() -> bool:
    return False


def set_rotating_buffer_size(buffer_size: int) -> None:
    if buffer_size:
        _refuse("rotating buffers")


def get_rotating_buffer_size() -> int:
    return 0


def set_numerical_check_tolerances(enable: bool, atol: float = 1e-5, rtol: float = 1e-5) -> None:
    if enable:
        _refuse("numerical check")


def tune_gemm_in_file(filename: str) -> None:
    _refuse("tuning of recorded products")


def mgpu_tune_gemm_in_file(filename_pattern: str, num_gpus: int) -> None:
    _refuse("tuning of recorded products")


if _state.enabled:
    _apply()
