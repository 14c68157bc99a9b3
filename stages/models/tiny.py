"""The embedded default's model: a small Llama, trained from scratch."""

import torch
from pydantic import Field
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.params import Params


class TinyConfig(Params):
    """Shape of the model that is trained from scratch when `model.path` is null."""

    hidden_size: int = Field(gt=0)
    """Width; a multiple of `num_heads`."""
    num_layers: int = Field(gt=0)
    """Transformer blocks."""
    num_heads: int = Field(gt=0)
    """Attention heads (no grouping)."""
    intermediate_size: int = Field(gt=0)
    """Width of the gated feed-forward layer."""
    max_length: int = Field(gt=0)
    """Longest sequence in tokens, prompt and completion together."""
    vocab_size: int = Field(ge=700)
    """Tokens in the tokenizer, of which about 650 are bytes, numbers and special tokens."""


def build(config: TinyConfig, tokenizer: PreTrainedTokenizerBase, seed: int) -> PreTrainedModel:
    """A Llama with random weights drawn from `seed`, for `tokenizer`'s vocabulary.

    Raises:
        ValueError: the width is not a multiple of the heads.
    """
    if config.hidden_size % config.num_heads:
        raise ValueError(
            f"model.tiny: hidden_size {config.hidden_size} is not a multiple of num_heads "
            f"{config.num_heads}"
        )
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            max_position_embeddings=config.max_length,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,  # pyright: ignore[reportArgumentType]
            pad_token_id=tokenizer.pad_token_id,  # pyright: ignore[reportArgumentType]
        )
    )
