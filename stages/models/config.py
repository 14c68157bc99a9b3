"""Which model is trained, and the embedded default's: a small Llama, trained from scratch."""

from pathlib import Path

import torch
from pydantic import Field, model_validator
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


INITIALIZER_RANGE = 0.05
"""Standard deviation of the tiny model's first weights. With the usual 0.02, which is for models of
thousands of columns, it learns half as much in the same time."""


def build_tiny(
    config: TinyConfig, tokenizer: PreTrainedTokenizerBase, seed: int
) -> PreTrainedModel:
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
            initializer_range=INITIALIZER_RANGE,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,  # pyright: ignore[reportArgumentType]
            pad_token_id=tokenizer.pad_token_id,  # pyright: ignore[reportArgumentType]
        )
    )


class ModelConfig(Params):
    """The model that the pipeline starts from."""

    path: str | None
    """A folder or hub id of a transformers causal language model with its tokenizer;
    null: the small `tiny` Llama, trained from scratch with its own tokenizer."""
    revision: str | None
    """The commit of a hub id, which may move otherwise; null for a folder."""
    tiny: TinyConfig
    """Its shape; not used when `path` is given."""

    @model_validator(mode="after")
    def _hub_ids_name_their_commit(self) -> "ModelConfig":
        if self.path is not None and self.revision is None and not Path(self.path).is_dir():
            raise ValueError(
                f"'{self.path}' is no folder here, so it is a hub id, and what that holds can "
                f"change: set model.revision to a commit"
            )
        return self

    def check_length(self, num_tokens: int) -> None:
        """Raise a ValueError if prepared rows of `num_tokens` are longer than the tiny model's."""
        if self.path is None and num_tokens > self.tiny.max_length:
            raise ValueError(
                f"prepare_data allows rows of {num_tokens} tokens (max_prompt_tokens + "
                f"max_completion_tokens), the model {self.tiny.max_length} "
                f"(model.tiny.max_length): lower the former or raise the latter"
            )
