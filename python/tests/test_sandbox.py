"""If a sandbox refuses memory files, memory is ordinary, with one warning."""

import os
import platform
import subprocess
import sys

import pytest

NUMBERS = {"x86_64": 319, "aarch64": 279}  # of memfd_create

PROGRAM = """
import ctypes, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
program = b"".join(
    struct.pack("HBBI", *line)
    for line in (
        (LOAD, 0, 0, 0), (EQUAL, 0, 1, int(sys.argv[1])), (RETURN, 0, 0, 0x50000 | 1), (RETURN, 0, 0, 0x7FFF0000)
    )
)
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_char_p)]
filter = Filter(4, program)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(filter), 0, 0):
    print("no filter")
    sys.exit()

import torch
import torch.distributed as dist
import chorus

x = chorus.zeros(1000)
assert not x.any() and not chorus.is_shared(x)
dist.init_process_group("chorus", rank=0, world_size=1, store=dist.HashStore())
y = chorus.empty(1 << 20).fill_(2)
dist.all_reduce(y)
assert (y == 2).all() and not chorus.is_shared(y)
dist.destroy_process_group()
print("works")
"""


@pytest.mark.skipif(platform.machine() not in NUMBERS, reason="no number of memfd_create is known")
def test_memory_files_refused():
    number = str(NUMBERS[platform.machine()])
    child = subprocess.run(
        [sys.executable, "-c", PROGRAM, number], env=os.environ, capture_output=True, text=True, timeout=60
    )
    if "no filter" in child.stdout:
        pytest.skip("this system doesn't allow filters of system calls")
    assert child.returncode == 0 and "works" in child.stdout, child.stdout + child.stderr
    assert child.stderr.count("memory can't be shared with other processes") == 1, child.stderr
