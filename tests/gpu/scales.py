"""Models and sizes of the measurements: the real ones, and small ones of the same kind."""

from contextlib import nullcontext
from dataclasses import dataclass

import torch
from transformers import (
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from stages.models.device import ComputeConfig

# As the checkpoints' config.json tell them; numbers that the speed does not depend on are left out.
QWEN3_06B = Qwen3Config(
    vocab_size=151_936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28,
    num_attention_heads=16, num_key_value_heads=8, head_dim=128, max_position_embeddings=40_960,
    tie_word_embeddings=True, pad_token_id=0, eos_token_id=None, bos_token_id=None,
)  # fmt: skip
QWEN25_15B = Qwen2Config(
    vocab_size=151_936, hidden_size=1536, intermediate_size=8960, num_hidden_layers=28,
    num_attention_heads=12, num_key_value_heads=2, max_position_embeddings=32_768,
    tie_word_embeddings=True, pad_token_id=0, eos_token_id=None, bos_token_id=None,
)  # fmt: skip
SMALL = {
    "vocab_size": 512, "hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "tie_word_embeddings": True, "pad_token_id": 0, "eos_token_id": None, "bos_token_id": None,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """What is measured how large."""

    trained: PreTrainedConfig
    """Of SFT and of the update of reinforcement learning."""
    sampled: PreTrainedConfig
    """Of rollouts, and of what is sent to the sampler."""
    sft_tokens: int
    """In a row, of which there is one in a step."""
    update_tokens: int
    """Of completions in an update, in four rows."""
    prompts: int
    samples: int
    new_tokens: int
    """Of a rollout batch: rows are prompts x samples."""
    steps: int
    """Measured ones, after one that is not."""
    lora_rank: int


REAL = Scale(
    trained=QWEN3_06B, sampled=QWEN25_15B, sft_tokens=8192, update_tokens=16_384, prompts=64,
    samples=8, new_tokens=512, steps=5,
    lora_rank=32,
)  # fmt: skip
TINY = Scale(
    trained=Qwen3Config(**SMALL, head_dim=32), sampled=Qwen2Config(**SMALL), sft_tokens=96,
    update_tokens=128, prompts=2, samples=2, new_tokens=8, steps=1,
    lora_rank=4,
)  # fmt: skip
COMPUTE = ComputeConfig(
    dtype="bfloat16", gradient_checkpointing=True, max_tokens=32_768, row_tokens=0, pack_tokens=0,
    max_batch=512, compile=False,
)  # fmt: skip


def build(config: PreTrainedConfig, device: torch.device | None = None) -> PreTrainedModel:
    """A model of that shape with random float32 weights, drawn on the device: seconds on a GPU."""
    torch.manual_seed(0)
    kind = Qwen3ForCausalLM if isinstance(config, Qwen3Config) else Qwen2ForCausalLM
    with device or nullcontext():
        return kind._from_config(config, attn_implementation="sdpa")


def token_ids(number: int, config: PreTrainedConfig, seed: int = 0) -> list[int]:
    """Random tokens."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, config.vocab_size, (number,), generator=generator).tolist()
