"""vLLM on CPUs with tensor parallelism: a small Llama of random weights, whose tokens are those of every backend.

torchrun --nproc-per-node 2 vllm_generate.py [BACKEND]   # chorus, unless another is named
"""

import os
import sys
import tempfile

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the engine runs in the processes that torchrun has started
os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"

import torch.distributed as dist
from transformers import LlamaConfig
from vllm import LLM, SamplingParams
from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator
from vllm.platforms.cpu import CpuPlatform

backend = sys.argv[1] if len(sys.argv) > 1 else "chorus"
CpuPlatform.dist_backend = backend  # the one word
# Ranks of one host would use shared memory of vLLM's own, as those of several hosts can't.
CpuCommunicator._all_group_ranks_share_shm_group_name = lambda self: False

config = LlamaConfig(
    vocab_size=128,
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    architectures=["LlamaForCausalLM"],
    dtype="float32",
)
with tempfile.TemporaryDirectory() as folder:
    config.save_pretrained(folder)
    llm = LLM(
        folder,
        skip_tokenizer_init=True,
        load_format="dummy",
        tensor_parallel_size=int(os.environ["WORLD_SIZE"]),
        distributed_executor_backend="external_launcher",
        dtype="float32",
        enforce_eager=True,
        max_model_len=64,
        seed=0,
    )
    prompts = [{"prompt_token_ids": [3 * i + j for j in range(8)]} for i in range(4)]
    outputs = llm.generate(
        prompts, SamplingParams(temperature=0, max_tokens=16, logprobs=1, detokenize=False), use_tqdm=False
    )
if dist.get_rank() == 0:
    for step, output in enumerate(outputs):
        answer = output.outputs[0]
        print(f"step {step} loss {-answer.cumulative_logprob:.6f} {list(answer.token_ids)}", flush=True)
    from vllm.distributed import get_tp_group

    print("backend", dist.get_backend(get_tp_group().device_group), "ranks", dist.get_world_size())
