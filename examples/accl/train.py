"""Data-parallel training on offload engines: the program of a user of ACCL, on Chorus.

One command starts two ranks, each with an emulated engine::

    python examples/accl/train.py

They train the same model twice, with gradients averaged by the engines and by PyTorch's Gloo, and compare the weights.
``--compress`` makes the engines send float32 as float16, ``--protocol`` chooses their packets, ``-n`` is the number of
ranks. Under torchrun or ``chorus run`` the ranks are those of the launcher.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH = 40, 32


def train(group):
    """Train on this rank's part of the data; return the loss and the weights."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    ddp = DistributedDataParallel(model, process_group=group)
    optimizer = torch.optim.Adam(ddp.parameters(), lr=0.02)
    data = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(STEPS):
        x = torch.randn(BATCH, 8, generator=data)
        loss = torch.nn.functional.mse_loss(ddp(x), x.sin().sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.all_reduce(loss.detach_(), dist.ReduceOp.AVG)
    return loss.item(), torch.cat([p.detach().flatten() for p in model.parameters()])


def run(options):
    hints = {"protocol": options.protocol} | ({"compress": torch.float16} if options.compress else {})
    dist.init_process_group("accl", pg_options=hints)
    loss, weights = train(dist.group.WORLD)
    _, gloo = train(dist.new_group(backend="gloo"))
    if dist.get_rank() == 0:
        apart = (weights - gloo).abs().max().item()
        print(f"{dist.get_world_size()} engines, {options.protocol}: loss {loss:.4f} after {STEPS} steps; "
              f"weights {apart:.1e} from Gloo's")  # fmt: skip
    dist.barrier()
    dist.destroy_process_group()


def rank_of(rank, options, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(options.n), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    run(options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=int, default=2)
    parser.add_argument("--protocol", default="cyt_rdma", choices=["udp", "tcp", "cyt_rdma"])
    parser.add_argument("--compress", action="store_true")
    options = parser.parse_args()
    if "RANK" in os.environ:
        run(options)
    else:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"  # the ranks use this process's store
        torch.multiprocessing.spawn(rank_of, (options, store.port), options.n)
