"""torchtitan's Llama 3 on CPUs, split by FSDP and then by tensor parallelism, with its own parts and its own optimizer.

torchrun --nproc-per-node 2 torchtitan_llama.py [BACKEND]   # chorus, unless another is named
"""

import sys

import torch
import torch.distributed as dist
import torchtitan.tools.utils
from torch import nn
from torch.distributed.fsdp import FSDPModule

# torchtitan takes the device "cuda" where there is no accelerator. Its other modules copy the names when they're imported.
torchtitan.tools.utils.device_type, torchtitan.tools.utils.device_module = "cpu", torch.cpu

from torchtitan.components.optimizer import default_adamw
from torchtitan.config.configs import (
    CommConfig,
    CompileConfig,
    ParallelismConfig,
    TrainingConfig,
)
from torchtitan.distributed import ParallelDims
from torchtitan.distributed import utils as dist_utils
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer

backend = sys.argv[1] if len(sys.argv) > 1 else "chorus"
BATCH, LENGTH, STEPS = 2, 32, 4

dist.Backend.default_device_backend_map["cpu"] = backend  # the one word: torchtitan has no option of its own
dist_utils.init_distributed(CommConfig(trace_buf_size=0))


def train(name: str, parallelism: ParallelismConfig, first: int) -> None:
    training = TrainingConfig(
        local_batch_size=BATCH, seq_len=LENGTH, mixed_precision_param="float32", disable_cuda_graphs=True
    )
    dims = ParallelDims.from_config(parallelism, dist.get_world_size())
    dist_utils.set_spmd_backend(parallelism.spmd_backend)
    spec = model_registry("debugmodel")
    for layer in spec.model.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()  # FlexAttention trains on GPUs only
    spec.model.update_from_config(
        config=Trainer.Config(model_spec=spec, training=training, parallelism=parallelism)
    )
    torch.manual_seed(0)
    with torch.device("meta"):
        model = spec.model.build()
    model = spec.parallelize_fn(
        model,
        parallel_dims=dims,
        training=training,
        parallelism=parallelism,
        compile_config=CompileConfig(enable=False),
        ac_config=None,
        dump_folder="",
    )
    if backend == "gloo":  # it doesn't have the reduction that FSDP would choose
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)
    model.to_empty(device="cpu")
    with torch.no_grad():
        model.init_weights(buffer_device=None)
    model.train()
    optimizers = default_adamw(lr=1e-3).build(model_parts=[model])
    data = dims.get_optional_mesh("batch")
    part = data.get_local_rank() if data else 0
    for step in range(first, first + STEPS):
        tokens = torch.randint(2048, (BATCH, LENGTH + 1), generator=torch.Generator().manual_seed(10 * step + part))
        optimizers.zero_grad()
        logits = model(tokens[:, :-1])
        logits = logits.full_tensor() if hasattr(logits, "full_tensor") else logits
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        (loss / (data.size() if data else 1)).backward()  # torchtitan adds gradients up
        dist_utils.clip_grad_norm_(list(model.parameters()), 1.0, foreach=True)
        optimizers.step()
        mean = dist_utils.dist_sum(loss.detach(), data) / data.size() if data else loss.item()
        if dist.get_rank() == 0:
            print(f"step {step} loss {mean:.6f} {name}", flush=True)


train("fsdp", ParallelismConfig(spmd_backend="partial_dtensor", data_parallel_shard_degree=-1), 0)
train("tp", ParallelismConfig(spmd_backend="partial_dtensor", tensor_parallel_degree=dist.get_world_size()), STEPS)
if dist.get_rank() == 0:
    print("backend", dist.get_backend(), "ranks", dist.get_world_size())
dist.destroy_process_group()
