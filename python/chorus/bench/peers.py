"""All-reduce beside libraries for inference on CPUs, called from Python.

The other libraries' operators are called directly, without the layers that their programs use: vLLM's CpuCommunicator
calls a method of ``_CPUSHMDistributed``, which calls the operator. Ours are called in two ways: through
torch.distributed, and by :meth:`chorus.torchcomms.TorchComm.all_reduce` ("direct"), as by a program with a communicator
of its own, such as vLLM.
"""

from __future__ import annotations

import functools
import importlib
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from chorus.bench.harness import KIB, MIB, ORDINARY, SHARED, Row, medians, size_text, tensor, time_text
from chorus.torchcomms import ReduceOp, distwrap

SIZES = [16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB]
DIRECT, DIRECT_SHARED = "direct", "direct_shared"
NAMES = {"vllm": "vLLM", "deepspeed": "DeepSpeed"}


def load(folder: pathlib.Path, rank: int, size: int, name: str) -> dict[str, Callable[[torch.Tensor], object]]:
    """The all-reduces (SUM, in place) of the libraries that ``make compare`` has put into a folder."""
    there: dict[str, Callable[[torch.Tensor], object]] = {}
    # vLLM has it for processors with AVX-512 alone.
    level = torch.backends.cpu.get_cpu_capability()
    theirs = "vllm/lib/python*/site-packages/vllm/_C_AVX512.abi3.so"
    for library in folder.glob(theirs) if level.startswith("AVX512") else ():
        torch_ops: Any = torch.ops
        torch_ops.load_library(str(library))
        ops = torch_ops._C
        handle = ops.init_shm_manager(name, size, rank, 1)
        dist.barrier()
        ops.join_shm_manager(handle, name)
        there["vllm"] = functools.partial(ops.shm_allreduce, handle)
    built = folder / "bin" / "torch"
    if (built / "deepspeed_shm_comm.so").exists():
        sys.path.insert(0, str(built))
        module: Any = importlib.import_module("deepspeed_shm_comm")
        module.initialize(size, rank)
        there["deepspeed"] = torch.ops.deepspeed.inference_all_reduce_
    dist.barrier()
    return there


def clear(rank: int, port: int) -> None:
    """Remove the shared memory that the libraries leave behind; its files are named after port and rank."""
    dist.barrier()
    for file in pathlib.Path("/dev/shm").glob(f"*{port}_{rank}"):
        file.unlink()


def measure(libraries: dict[str, Callable[[torch.Tensor], object]], most: int, seconds: float) -> Iterator[Row]:
    comm = distwrap.get_comm()
    for nbytes in SIZES:
        if nbytes > most:
            continue
        # The libraries can only add. Zeros stay zeros.
        every: dict[str, Callable[..., object]] = {ORDINARY: dist.all_reduce, SHARED: dist.all_reduce,
            DIRECT: comm.all_reduce, DIRECT_SHARED: comm.all_reduce, **libraries}  # fmt: skip
        shared = (SHARED, DIRECT_SHARED)
        data = {kind: tensor(nbytes // 4, SHARED if kind in shared else ORDINARY).zero_() for kind in every}
        # No wrapper around any of them: it would take as long as some of the calls.
        more = {DIRECT: (ReduceOp.SUM,), DIRECT_SHARED: (ReduceOp.SUM,)}
        calls = {kind: functools.partial(call, data[kind], *more.get(kind, ())) for kind, call in every.items()}
        yield Row("peers", "all_reduce", nbytes, medians(calls, seconds))


def show(rows: list[Row]) -> Iterator[str]:
    names = [n for n in NAMES if n in rows[0].us]
    ours = {ORDINARY: "Chorus", SHARED: "`chorus.empty`", DIRECT: "direct", DIRECT_SHARED: "direct, `chorus.empty`"}
    yield (
        "| all_reduce from Python | "
        + "".join(f"{NAMES[n]} | " for n in names)
        + "".join(f"{o} | faster | " for o in ours.values())
    )
    yield "|---|" + "---:|" * (len(names) + 2 * len(ours))
    for row in rows:
        best = min(row.us[n] for n in names)
        cells = [time_text(row.us[n]) for n in names]
        for kind in ours:
            cells += [time_text(row.us[kind]), f"{best / row.us[kind]:.2f}x"]
        yield f"| {size_text(row.bytes)} | {' | '.join(cells)} |"
