"""Starts the ranks of a program, in Go or Python, as tasks of a Ray cluster: `mpirun` for Ray.

python ray_run.py -n RANKS [--spread] PROGRAM [ARGS...]

Each rank is a process beside a task, with the variables of torchrun. Ray places the tasks, each on one CPU; RAY_ADDRESS
says which cluster it is. The program is at the same path on all nodes. The ranks get a secret of their own, unless there
is one in CHORUS_SECRET_FILE. When one of them fails, the others get errors that name it, and the exit status isn't 0.
"""

import argparse
import os
import pathlib
import secrets
import socket
import subprocess
import sys

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote
def place():
    """Where a rank is going to be: its node, the node's address, and a port that's free there."""
    with socket.socket() as s:
        s.bind(("", 0))
        return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address(), s.getsockname()[1]


@ray.remote(max_retries=0)
def run(command, variables):
    """A rank: its status, and what it has written."""
    environment = os.environ | variables
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout.decode(errors="replace")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, required=True, metavar="RANKS")
    parser.add_argument("--spread", action="store_true", help="as many nodes as there are; by default as few as can be")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if not arguments.program:
        parser.error("no program")
    command = [sys.executable, "-u"] if arguments.program[0].endswith(".py") else []
    command += [os.path.abspath(arguments.program[0]), *arguments.program[1:]]
    file = os.environ.get("CHORUS_SECRET_FILE")
    secret = pathlib.Path(file).read_text().strip() if file else secrets.token_hex(32)

    ray.init(log_to_driver=False)
    group = placement_group([{"CPU": 1}] * arguments.n, strategy="SPREAD" if arguments.spread else "PACK")
    ray.get(group.ready(), timeout=300)
    there = [PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=r) for r in range(arguments.n)]
    places = ray.get([place.options(scheduling_strategy=s).remote() for s in there])
    nodes = [node for node, _, _ in places]
    _, address, port = places[0]
    ranks = []
    for rank, node in enumerate(nodes):
        variables = {
            "RANK": rank,
            "WORLD_SIZE": arguments.n,
            "LOCAL_RANK": nodes[:rank].count(node),
            "LOCAL_WORLD_SIZE": nodes.count(node),
            "MASTER_ADDR": address,
            "MASTER_PORT": port,
            "CHORUS_SECRET": secret,
        }
        task = run.options(scheduling_strategy=there[rank])
        ranks.append(task.remote(command, {name: str(value) for name, value in variables.items()}))
    failed = 0
    for rank, done in enumerate(ranks):
        status, text = ray.get(done)
        print("".join(f"[{rank}]: {line}\n" for line in text.splitlines()), end="", flush=True)
        failed = failed or status
    print(f"{arguments.n} ranks ran on {len(set(nodes))} nodes of Ray {ray.__version__}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main())
