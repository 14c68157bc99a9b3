"""Small checkpoints of three architectures with random weights, and log-probs done plainly."""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

import torch
from torch.nn.functional import rms_norm
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from stages.models import policy
from stages.models.device import ComputeConfig

FAMILIES = ("llama", "qwen3", "gpt2")
VOCAB, PAD, EOS = 32, 0, 1
# Large weights, or every distribution would be flat and every mistake small. Dropout, which
# real checkpoints may bring, must be switched off by whoever loads them.
SHAPE = {
    "vocab_size": VOCAB,
    "initializer_range": 0.3,
    "pad_token_id": PAD,
    "eos_token_id": EOS,
    "bos_token_id": None,
}
BLOCKS = SHAPE | {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "attention_dropout": 0.1,
}
COMPUTE = {
    "dtype": "float32",
    "gradient_checkpointing": False,
    "max_tokens": 4096,
    "row_tokens": 64,
    "pack_tokens": 0,
    "max_batch": 64,
}
CPU = torch.device("cpu")


def compute(**changes: object) -> ComputeConfig:
    return ComputeConfig(**(COMPUTE | changes))


def build(family: str, seed: int = 0) -> PreTrainedModel:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    match family:
        case "llama":
            return LlamaForCausalLM(LlamaConfig(**BLOCKS, tie_word_embeddings=True))
        case "qwen3":
            return Qwen3ForCausalLM(Qwen3Config(**BLOCKS, head_dim=8, tie_word_embeddings=False))
        case _:
            config = GPT2Config(**SHAPE, n_embd=16, n_layer=2, n_head=2, n_positions=128)
            return GPT2LMHeadModel(config)


@functools.cache
def checkpoint(family: str, seed: int = 0) -> Path:
    """The folder of a saved checkpoint; it lives as long as the process."""
    path = Path(tempfile.mkdtemp(prefix=f"tiny-{family}-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    build(family, seed).save_pretrained(path)
    return path


def load(family: str, seed: int = 0, **changes: object) -> PreTrainedModel:
    """As a stage loads it."""
    return policy.load_policy(checkpoint(family, seed), compute(**changes), CPU)


def load_exact(family: str, seed: int = 0, **changes: object) -> PreTrainedModel:
    """In float64 throughout: transformers computes RMS norms in float32 whatever the input."""
    return exact(load(family, seed, **changes))


def exact(model: PreTrainedModel) -> PreTrainedModel:
    """In float64, RMS norms included."""
    model = model.double()
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            weight, epsilon = module.weight, module.variance_epsilon
            module.forward = functools.partial(
                rms_norm, normalized_shape=weight.shape, weight=weight, eps=epsilon
            )
    return model


def plain_logprobs(
    model: PreTrainedModel, prompt: list[int], completion: list[int], temperature: float = 1.0
) -> torch.Tensor:
    """log p of each completion token by the model's own logits: one row, nothing shared."""
    logits = model(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1]
    logprobs = (logits / temperature).log_softmax(-1)
    return logprobs.gather(-1, torch.tensor(completion)[:, None]).squeeze(-1)


def gradients(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Copies of the gradients; parameters without one are left out."""
    named = model.named_parameters()
    return {name: p.grad.clone() for name, p in named if p.grad is not None}


def random_ids(generator: torch.Generator, length: int) -> list[int]:
    """Tokens other than padding and end of sequence."""
    return torch.randint(2, VOCAB, (length,), generator=generator).tolist()
