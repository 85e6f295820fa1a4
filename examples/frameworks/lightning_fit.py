"""Lightning on two processes: the strategy takes the backend's name.

python lightning_fit.py [BACKEND]   # chorus, unless another is named
"""

import sys

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

backend = sys.argv[1] if len(sys.argv) > 1 else "chorus"


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        mean = self.all_gather(loss.detach()).mean().item()
        if self.global_rank == 0:
            print(f"step {self.global_step} loss {mean:.6f}", flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


lightning.seed_everything(0, verbose=False)
x = torch.randn(64, 16)
data = DataLoader(TensorDataset(x, x[:, :4].argmax(1)), batch_size=8)
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=2,
    max_epochs=2,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    strategy=DDPStrategy(process_group_backend=backend),  # the one word
)
trainer.fit(Classifier(), data)
if trainer.global_rank == 0:
    print("backend", torch.distributed.get_backend())
