"""Data-parallel training on several GPUs as PyTorch's tutorials write it; one word is Chorus'.

With "nccl" in its place a process trains on each GPU. With "chorus", on a machine without a GPU, the same lines train
on emulated devices, accinte:0 and accinte:1; CHORUS_ACCINTE_DEVICES=4 makes four of them.

    torchrun --nproc-per-node 2 python/accinte/examples/multi_gpu.py
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def samples(count):
    """Points of a plane: the class of each is the quarter that it lies in."""
    points = torch.randn(count, 2, generator=torch.Generator().manual_seed(1))
    return TensorDataset(points, 2 * (points[:, 0] > 0).long() + (points[:, 1] > 0).long())


class Trainer:
    def __init__(self, path, batch_size):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.path = path
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 4)).to(self.local_rank)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.first = 0
        if os.path.exists(path):
            self.resume()
        self.model = DistributedDataParallel(self.model, device_ids=[self.local_rank])
        data = samples(2048)
        self.loader = DataLoader(data, batch_size=batch_size, sampler=DistributedSampler(data))

    def resume(self):
        kept = torch.load(self.path, map_location=f"{torch.accelerator.current_accelerator().type}:{self.local_rank}")
        self.model.load_state_dict(kept["model"])
        self.optimizer.load_state_dict(kept["optimizer"])
        self.first = kept["epoch"] + 1

    def save(self, epoch):
        if dist.get_rank() == 0:
            kept = {"epoch": epoch, "model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict()}
            torch.save(kept, self.path)
        dist.barrier(device_ids=[self.local_rank])  # the file is there for all when an epoch is over

    def train(self, epochs):
        for epoch in range(self.first, epochs):
            self.loader.sampler.set_epoch(epoch)
            total = torch.zeros((), device=self.local_rank)
            for points, classes in self.loader:
                points, classes = points.to(self.local_rank), classes.to(self.local_rank)
                loss = nn.functional.cross_entropy(self.model(points), classes)
                self.optimizer.zero_grad()
                loss.backward()  # gradients are averaged between the devices here
                self.optimizer.step()
                total += loss.detach()
            dist.all_reduce(total)
            if dist.get_rank() == 0:
                loss = total.item() / (dist.get_world_size() * len(self.loader))
                print(f"epoch {epoch}: loss {loss:.4f}", flush=True)
            self.save(epoch)
        print(f"rank {dist.get_rank()} trained on {next(self.model.parameters()).device}", flush=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--epochs", type=int, default=3)
    arguments.add_argument("--batch-size", type=int, default=64, help="on each device")
    arguments.add_argument("--checkpoint", default="multi_gpu.pt", help="begins there if it exists")
    options = arguments.parse_args()
    torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("chorus")  # "nccl" on GPUs
    Trainer(options.checkpoint, options.batch_size).train(options.epochs)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
