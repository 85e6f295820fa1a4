"""Which ranks' groups use a library like NCCL for the tensors of a device whose streams the library makes."""

import types

import pytest
import torch
import torch.distributed as dist
from standins import run

from chorus import _devices, _lib, _offers, backend
from chorus.errors import PeerLostError, UnsupportedError

PROGRAM = """
import os, sys
import torch, torch.distributed as dist
from chorus import _offers
rank, case, uses = int(os.environ["RANK"]), sys.argv[1], sys.argv[2] == "nccl"
_offers.OF_DRIVER["accinte"] = "rccl" if rank and case == "another_library" else "nccl"  # as if the driver were CUDA
if case == "one_device":  # each process has emulated ones of its own
    _offers._offer = lambda *_: "nccl 00112233-4455-6677-8899-aabbccddeeff"
device = torch.device("accinte", rank)
assert torch.accinte.is_available() and torch.accinte.device_count() > 1  # which begins nothing
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


class CantLook(dist.Store):
    """A store that has neither check nor delete_key."""

    def set(self, key, value):
        pass

    def check(self, keys):
        raise RuntimeError("not implemented")

    def delete_key(self, key):
        raise RuntimeError("not implemented")


class Gone(CantLook):
    """A store whose server is gone once the ranks have met."""

    def check(self, keys):
        raise dist.DistNetworkError("connection reset")


@pytest.fixture
def offer(monkeypatch):
    """A function that makes a rank's offers over a store: one that has a GPU of this uuid, or none."""
    monkeypatch.setitem(_devices.begun, "gpu", lambda: True)

    def offers(store, rank, uuid, size=2):
        monkeypatch.setattr(_offers, "_offer", lambda *_: f"nccl {uuid}" if uuid else "")
        return _offers.Offers(["gpu"], None, store, rank, size)

    return offers


@pytest.mark.parametrize(
    ("uuids", "agreed"),
    [(("a", "b"), {"gpu"}), (("a", "a"), set()), (("a", ""), set()), (("", ""), set())],
    ids=["alike", "one GPU", "one without", "none"],
)
def test_agreed(offer, uuids, agreed):
    """All ranks have the library and another GPU each, or none uses it."""
    store = dist.HashStore()
    ranks = [offer(store, rank, uuid) for rank, uuid in enumerate(uuids)]
    assert [rank.agreed() for rank in ranks] == [agreed, agreed]


def test_offers_of_before(offer):
    """A rank without a library leaves no offer of a process or a group before it."""
    store = dist.HashStore()
    offer(store, 1, "b")
    assert offer(store, 0, "a").agreed() == {"gpu"}
    offer(store, 1, "")
    assert offer(store, 0, "a").agreed() == set()


def test_stores_that_fail(offer):
    """No library is chosen over a store that can't look. One whose server is gone is the lost rank's error."""
    assert offer(CantLook(), 0, "a").agreed() == set()
    assert offer(CantLook(), 0, "").agreed() == set()
    with pytest.raises(PeerLostError):
        offer(Gone(), 0, "a").agreed()


def test_a_gpu_that_cant_be_opened(monkeypatch):
    """It's no offer, nor is a device that the program hasn't begun to use, which isn't opened."""

    def refused(device):
        asked.append(device)
        raise UnsupportedError("chorus: there is no such device")

    asked = []
    monkeypatch.setitem(_devices.drivers, "gpu", "cuda")
    monkeypatch.setitem(_devices.begun, "gpu", lambda: False)
    monkeypatch.setattr(_devices, "place_of", refused)
    opens = types.SimpleNamespace(chorus_library_open=lambda name: 0)
    monkeypatch.setattr(_offers, "_lib", types.SimpleNamespace(library=opens, DeviceInfo=_lib.DeviceInfo))
    monkeypatch.setattr(torch, "get_device_module", lambda kind: types.SimpleNamespace(current_device=lambda: 0))
    monkeypatch.setattr(torch, "device", lambda kind, index: (kind, index))
    assert _offers._offer("gpu", None) == "" and not asked
    monkeypatch.setitem(_devices.begun, "gpu", lambda: True)
    assert _offers._offer("gpu", None) == "" and asked == [("gpu", 0)]


def test_a_group_that_fails_behind_the_meeting(monkeypatch):
    """Its communicator is broken, and the world can be made again."""
    made = []

    def fail(self, group):
        made.append(group)
        raise PeerLostError("chorus: rank 0 is lost")

    backend.register()
    monkeypatch.setattr(backend._Parts, "add", fail)
    with pytest.raises(PeerLostError):
        dist.init_process_group("chorus", store=dist.HashStore(), rank=0, world_size=1)
    assert "could not be made" in str(made[0].comm.failure())
    monkeypatch.undo()
    dist.init_process_group("chorus", store=dist.HashStore(), rank=0, world_size=1)
    dist.destroy_process_group()


def test_hints_without_effect(recwarn):
    """Hints for a library are a warning if no library is used, unless they say so."""
    comm = types.SimpleNamespace(name="world")
    served, other = (types.SimpleNamespace(comm=comm, _libraries=kinds) for kinds in ({"gpu": None}, {}))
    backend._warn_of_unused({"gpu": {"minCTAs": "4"}}, served)
    backend._warn_of_unused({"gpu": {"backend": "chorus"}}, other)
    assert not recwarn
    with pytest.warns(UserWarning, match=r"gpu \(minCTAs\) have no effect"):
        backend._warn_of_unused({"gpu": {"minCTAs": "4"}}, other)
