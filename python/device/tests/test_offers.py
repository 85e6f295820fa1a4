"""Which ranks' groups use a library like NCCL for the tensors of a device whose streams the library makes."""

import pytest
from standins import run

PROGRAM = """
import os, sys
import torch, torch.distributed as dist
from chorus import _offers
rank, case, uses = int(os.environ["RANK"]), sys.argv[1], sys.argv[2] == "nccl"
_offers.OF_DRIVER["accinte"] = "rccl" if rank and case == "another_library" else "nccl"  # as if the driver were CUDA
if case == "one_device":  # each process has emulated ones of its own
    _offers._offer = lambda *_: "nccl 00112233-4455-6677-8899-aabbccddeeff"
device = torch.device("accinte", rank)
if case != "named" and (case != "begun_later" or rank == 0):
    torch.accinte.set_device(device)
named = {"named": {"accinte": {"backend": "nccl"}}, "refused": {"accinte": {"backend": "chorus"}}}
dist.init_process_group("chorus", pg_options=named.get(case), device_id=device if case == "device_id" else None)
torch.accinte.set_device(device)
part = dist.new_group([1, 0] if case != "refused" else None)
for group, uses in (dist.group.WORLD, uses), (part, uses or case == "begun_later"):
    for place in (device, torch.device("cpu")):
        for _ in range(2):
            x = torch.full((1000,), rank + 1.0, device=place)
            dist.all_reduce(x, group=group)
            assert (x == 3).all(), x
    library = group._libraries.get("accinte")
    assert (library is not None) == uses, group._libraries
    assert library is None or library.begun and library.comm.info().backend.decode() == "nccl"
    y = torch.full((7,), float(rank), device=device)
    if rank:
        dist.send(y, 0, group=group)
    else:
        dist.recv(y, 1, group=group)
        assert (y == 1).all()
dist.barrier()
dist.destroy_process_group()
print("done")
"""


@pytest.mark.parametrize(
    ("case", "uses"),
    [
        ("alike", "nccl"),
        pytest.param("device_id", "nccl", marks=pytest.mark.long),
        pytest.param("named", "nccl", marks=pytest.mark.long),
        ("another_library", "host"),
        pytest.param("one_device", "host", marks=pytest.mark.long),
        pytest.param("begun_later", "host", marks=pytest.mark.long),
        pytest.param("refused", "host", marks=pytest.mark.long),
    ],
)
def test_all_ranks_choose_alike(standin, tmp_path, case, uses):
    """A library is used if all ranks have it, each with a device of its own that it has begun to use, or if the program
    names it."""
    assert run(standin, tmp_path, 2, PROGRAM, case, uses).count("done") == 2
