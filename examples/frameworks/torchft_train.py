"""TorchFT: two replicas, one of which is killed. The other one goes on alone, and the new one takes its state.

python torchft_train.py [BACKEND]   # chorus, unless another is named
"""

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torchft
from chorus.torchft import ProcessGroupChorus
from torch import nn
from torchft.coordination import LighthouseServer

STEPS, KILLED_AT, BACK_AT = 9, 3, 6
GROUPS = {"chorus": ProcessGroupChorus, "gloo": torchft.ProcessGroupGloo}
PATIENCE = timedelta(seconds=120)


def train(backend: str, replica: int, life: int, lighthouse: str, port: int) -> None:
    """A replica. Its life is 1 if it replaces one that was killed."""
    meeting = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=PATIENCE)
    if life == 1:
        meeting.wait(["alone"])
    own = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def load(state):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    manager = torchft.Manager(
        pg=GROUPS[backend](timeout=PATIENCE),  # the one word
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        load_state_dict=load,
        min_replica_size=1,
        use_async_quorum=False,
        timeout=PATIENCE,
        quorum_timeout=PATIENCE,
        replica_id=f"replica_{replica}",
        store_addr="127.0.0.1",
        store_port=own.port,
        rank=0,
        world_size=1,
        lighthouse_addr=lighthouse,
        hostname="127.0.0.1",
        init_sync=False,
    )
    while manager.current_step() < STEPS:
        if manager.current_step() == BACK_AT:
            meeting.set("alone", "")
        manager.start_quorum()
        step = manager.current_step()
        if manager.num_participants() == 1 and not KILLED_AT <= step < BACK_AT:
            time.sleep(0.05)  # the other replica is about to join: the losses are then the same in every run
            continue
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(10 * step + replica))
        loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        if (replica, life, step) == (1, 0, KILLED_AT):
            os.kill(os.getpid(), signal.SIGKILL)
        mean = loss.detach().clone()
        works = [manager.allreduce(t) for t in (mean, *(p.grad for p in model.parameters()))]
        for work in works:
            work.wait()
        if manager.should_commit():
            optimizer.step()
            if replica == 0:
                print(f"step {step} loss {mean.item():.6f} of {manager.num_participants()}", flush=True)
        else:
            print("lost:", manager.errored().original_exception, file=sys.stderr, flush=True)
    if replica == 0:
        print("backend", backend)
    meeting.set(f"done{replica}", "")
    meeting.wait(["done0", "done1"])
    manager.shutdown(wait=False)


def main() -> None:
    backend = sys.argv[1] if len(sys.argv) > 1 else "chorus"
    # A step waits until all replicas whose heartbeats are heard have joined.
    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=1, join_timeout_ms=60_000, heartbeat_timeout_ms=5000)
    meeting = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def start(replica: int, life: int) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, __file__, backend, str(replica), str(life), lighthouse.address(), str(meeting.port)]
        )

    first, killed = start(0, 0), start(1, 0)
    assert killed.wait(300) == -signal.SIGKILL
    again = start(1, 1)
    assert again.wait(300) == 0 and first.wait(300) == 0
    lighthouse.shutdown()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        train(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
    else:
        main()
