"""Checks like those of gputest that need no GPU, and the rank that runs them."""

import os
import signal
import sys
import threading
import time

from gputest import check as _check
from gputest.rank import checks_of, serve

CHECKS = []


def check(name, **options):
    return _check.check(name, f"what {name} is", "the expected", CHECKS, **options)


def rank():
    return int(os.environ["RANK"])


@check("right")
def right(_):
    return True, "the | expected"


@check("few", ranks=3)
def few(_):
    return True, "the expected"


@check("wrong")
def wrong(_):
    return rank() == 0, f"of {rank()}"


@check("raises")
def raises(_):
    raise ValueError("a word")


@check("hangs", seconds=0.5)
def hangs(_):
    time.sleep(0 if rank() == 0 else 60)
    return True, "late"


@check("waits")
def waits(_):
    if rank() == 1:
        return False, "it failed first"
    time.sleep(60)


@check("exits")
def exits(_):
    os._exit(3)


@check("dies")
def dies(_):
    os.kill(os.getpid(), signal.SIGKILL)


@check("leaves", ends=True)
def leaves(_):
    return True, "all is done"


@check("stays", seconds=0.5, ends=True)
def stays(_):
    threading.Thread(target=time.sleep, args=[60]).start()
    return True, "all is done"


@check("elsewhere", environment={"PLACE": "elsewhere"})
def elsewhere(_):
    return os.environ.get("PLACE") == "elsewhere", os.environ.get("PLACE", "here")


@check("here")
def here(_):
    return "PLACE" not in os.environ, os.environ.get("PLACE", "here")


def begin():
    if "begins" in sys.argv:
        raise OSError("there is no GPU")
    return object()


if __name__ == "__main__":
    serve(begin, checks_of("gpu_checks"))
