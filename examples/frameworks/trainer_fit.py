"""The Trainer of transformers: a process group that exists is the one it uses.

torchrun --nproc-per-node 2 trainer_fit.py [BACKEND]   # chorus, unless another is named
"""

import sys
import tempfile

import torch
import torch.distributed as dist
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

backend = sys.argv[1] if len(sys.argv) > 1 else "chorus"
dist.init_process_group(backend)  # before TrainingArguments, whose ddp_backend takes none but those it knows


class Losses(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero and "loss" in logs:
            print(f"step {state.global_step} loss {float(logs['loss']):.6f}", flush=True)


set_seed(0)
tokens = torch.randint(64, (32, 24), generator=torch.Generator().manual_seed(0))
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=24, n_embd=32, n_layer=2, n_head=2))
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        use_cpu=True,
        per_device_train_batch_size=4,
        num_train_epochs=2,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    Trainer(
        model,
        arguments,
        train_dataset=[{"input_ids": t, "labels": t} for t in tokens],
        callbacks=[Losses()],
    ).train()
if dist.get_rank() == 0:
    print("backend", dist.get_backend(), "ranks", arguments.world_size)
dist.destroy_process_group()
