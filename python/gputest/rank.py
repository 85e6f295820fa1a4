"""The process of one rank: it makes a group, and runs the checks that it's sent, one by one."""

from __future__ import annotations

import datetime
import faulthandler
import importlib
import json
import os
import signal
import sys
import traceback
from typing import Any

TIMEOUT = 50  # seconds of each operation of the group, fewer than a check has


class Rank:
    """The argument of a check's function."""

    def __init__(self, gpu: Any) -> None:
        import torch
        import torch.distributed as dist

        import chorus
        from gputest.gpu import used

        chorus.register()  # PyTorch finds the backend by itself only if the package is installed

        self.gpu, self.rank, self.size = gpu, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.total = self.size * (self.size + 1) / 2  # the sum of the ranks' initial values: 1, 2, ...
        self.kept: list[Any] = []  # kept alive until the process's end
        gpu.module.set_device(gpu.device)
        torch.ones(1, device=gpu.device)
        free, before = gpu.free(), used()
        dist.init_process_group("chorus", device_id=gpu.device, timeout=datetime.timedelta(seconds=TIMEOUT))
        dist.all_reduce(torch.ones(1, device=gpu.device))
        gpu.module.synchronize()
        self.took = max(free - gpu.free(), 0) >> 20
        # GPUs without a rank, if all are visible, so that their numbers are nvidia-smi's.
        after = used() if gpu.module.device_count() == len(before) else []
        self.grown = [b - a for a, b in list(zip(before, after))[self.size :]]


def serve(begin: Any, checks: dict[str, Any]) -> None:
    """Write a line of JSON to descriptor REPORTS when the rank has started, and one for each check named on standard
    input. Returns at the input's end, or after a check that ends the rank."""
    faulthandler.register(signal.SIGUSR2)  # writes to the log where a rank hangs
    reports = os.fdopen(int(os.environ["REPORTS"]), "w", buffering=1)

    def attempt(call: Any) -> Any:
        value = None
        try:
            value = call()
            ok, came = value if isinstance(value, tuple) else (True, "")
        except BaseException as error:  # any exception is the check's result
            traceback.print_exc()
            ok, came = False, f"{type(error).__name__}: {error}"
        sys.stdout.flush()
        print(json.dumps({"ok": ok, "came": came}), file=reports)
        return value if ok else None

    rank = attempt(begin)
    if rank is None:
        os._exit(1)
    for line in sys.stdin:
        check = checks[line.strip()]
        attempt(lambda check=check: check.run(rank))
        if check.ends:
            return
    os._exit(0)  # everything is reported


def checks_of(name: str) -> dict[str, Any]:
    """The checks of a module, by name."""
    return {check.name: check for check in importlib.import_module(name).CHECKS}


if __name__ == "__main__":
    from gputest.gpu import Gpu

    serve(lambda: Rank(Gpu(int(os.environ["GPU"]))), checks_of("gputest.checks"))
