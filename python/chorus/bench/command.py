"""The command."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import multiprocessing
import os
import pathlib
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

import chorus
from chorus import bench
from chorus._files import read_text
from chorus.bench import collectives, layer, models, peers
from chorus.bench.harness import MIB, Row
from chorus.bench.port import free_port

MEASURES = ("collectives", "peers", "ddp", "inference", "layer")


def init(rank: int, size: int, port: int) -> None:
    torch.set_num_threads(1)
    timeout = datetime.timedelta(seconds=120)
    store = TCPStore("127.0.0.1", port, size, rank == 0, timeout=timeout)
    chorus.register()
    dist.init_process_group("chorus", store=store, rank=rank, world_size=size, timeout=timeout)


def rank_main(rank: int, port: int, arguments: argparse.Namespace) -> None:
    init(rank, arguments.ranks, port)
    gloo = dist.new_group(backend="gloo")
    if arguments.shared_allocator:
        chorus.use_shared_allocator()
    every: list[Row] = []

    def note(rows: list[Row], lines: Iterable[str]) -> None:
        every.extend(rows)
        if rank == 0 and rows:
            print("\n".join(lines), end="\n\n", flush=True)

    if "collectives" in arguments.only:
        rows = list(collectives.measure(arguments.ops, arguments.max_bytes, gloo, arguments.seconds))
        note(rows, collectives.show(rows, arguments.ranks))
    if "peers" in arguments.only and arguments.peers is not None:
        others = peers.load(arguments.peers, rank, arguments.ranks, f"chorus-bench-{port}")
        if others:
            rows = list(peers.measure(others, arguments.max_bytes, arguments.seconds))
            peers.clear(rank, port)
            note(rows, peers.show(rows))
    if "ddp" in arguments.only:
        row = models.ddp(gloo, 24 * arguments.seconds)
        note([row], models.show_ddp(row))
    if "inference" in arguments.only:
        rows = list(models.inference(gloo, 3 * arguments.seconds))
        note(rows, models.show_inference(rows))
    if rank == 0 and arguments.json is not None:
        arguments.json.write_text(json.dumps([dataclasses.asdict(row) for row in every]))
    dist.destroy_process_group()


def layer_main(port: int, arguments: argparse.Namespace) -> None:
    init(0, 1, port)
    row = layer.measure()
    print("\n".join(layer.show(row)))
    if arguments.json is not None:
        rows = json.loads(read_text(arguments.json)) if arguments.json.exists() else []
        arguments.json.write_text(json.dumps([*rows, dataclasses.asdict(row)]))
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m chorus.bench", description=bench.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="*", choices=MEASURES, default=list(MEASURES), help="what to measure; default: all"
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--ops", nargs="*", choices=list(collectives.SIZES), default=list(collectives.SIZES))
    parser.add_argument("--max-bytes", type=int, default=64 * MIB)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each row; models take some times as long")
    parser.add_argument("--peers", type=pathlib.Path, help="a folder in which `make compare` has put other libraries")
    parser.add_argument(
        "--shared-allocator", action="store_true", help="ordinary tensors by chorus.use_shared_allocator"
    )
    parser.add_argument("--json", type=pathlib.Path, help="also write the rows to this file")
    arguments = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    port = free_port()
    if arguments.json is not None:
        arguments.json.unlink(missing_ok=True)
    # DeepSpeed and OpenMP read these from the environment.
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), LOCAL_SIZE=str(arguments.ranks), OMP_NUM_THREADS="1"
    )
    processes = []
    if set(arguments.only) - {"layer"}:
        processes = [spawn.Process(target=rank_main, args=(r, port, arguments)) for r in range(arguments.ranks)]
    join(processes)
    if "layer" in arguments.only:
        join([spawn.Process(target=layer_main, args=(free_port(), arguments))])


def join(processes: list[multiprocessing.context.SpawnProcess]) -> None:
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            raise SystemExit(f"a rank ended with {process.exitcode}")

