"""Policy that a row starts from: another row's of this seed, or the base model; LoRA adapters.

The base model is the one that `model.path` names, or the embedded default: a small Llama, trained
from scratch. Low-rank adaptation (Hu et al., "LoRA", 2021, https://arxiv.org/abs/2106.09685), by
the peft library, trains small matrices beside the frozen weights. They are merged when a policy is
saved, so every stage and other tools read it like any other.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from pydantic import Field, model_validator
from transformers import (
    AutoConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages import rows
from stages.config import Params
from stages.models import kept_thoughts, model_files, model_tokenizer, policy, rope_limit
from stages.models.device import ComputeConfig
from stages.rows import BASE

RANDOM_BASE_MODEL = (
    "model.path is null, and a random model earns no reward: name a model.path, or start from a "
    "policy of train: sft with the preset 'pretraining', which plays the base model"
)
INITIALIZER_RANGE = 0.05
"""Standard deviation of the tiny model's first weights. With the usual 0.02, which is for models of
thousands of columns, it learns half as much in the same time."""
HEADS = ("score", "classifier")
"""Names of a reward model's head in transformers, that of GPT-2's token classifier last."""


class TinyConfig(Params):
    """Shape of the model that is trained from scratch when `model.path` is null."""

    hidden_size: int = Field(gt=0)
    """Width; a multiple of `num_heads`."""
    num_layers: int = Field(gt=0)
    num_heads: int = Field(gt=0)
    """Attention heads (no grouping)."""
    intermediate_size: int = Field(gt=0)
    """Width of the gated feed-forward layer."""
    max_length: int = Field(gt=0)
    """Longest sequence in tokens, prompt and completion together."""
    vocab_size: int = Field(ge=700)
    """Tokens in the tokenizer, of which about 650 are bytes, numbers and special tokens."""

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> "TinyConfig":
        if self.hidden_size % self.num_heads:
            raise ValueError(
                f"expected a hidden_size that num_heads divides, found {self.hidden_size} and "
                f"{self.num_heads}: change one of them"
            )
        return self


class ModelConfig(Params):
    """Base model: the model that the pipeline starts from."""

    path: str | None = Field(min_length=1)
    """A folder or hub id of a transformers causal language model with its tokenizer, or a GGUF file
    (`model_files`); null: the small `tiny` Llama, trained from scratch with its own tokenizer."""
    revision: str | None
    """Commit of a hub id, whose files may change otherwise; null for a folder."""
    thinking: bool | None
    """Whether a chat template with the switch `enable_thinking` has the model think first; null:
    the template's default."""
    chat_template: str | None = None
    """`keep_thoughts`: the model's own, with earlier turns as they were sampled (`kept_thoughts`),
    for environments of several turns; or a Jinja file below data/raw; null: the model's own."""
    tiny: TinyConfig
    """Shape of the tiny model; not used when `path` is given."""

    @model_validator(mode="after")
    def _keys_suit_each_other(self) -> "ModelConfig":
        if self.path is None and (self.thinking, self.chat_template) != (None, None):
            raise ValueError(
                f"expected thinking and chat_template of null if path is null, found "
                f"{self.thinking} and {self.chat_template}"
            )
        file = None if self.chat_template == kept_thoughts.KEEP else self.chat_template
        if file is not None and not Path(file).is_relative_to(rows.DATA / "raw"):
            raise ValueError(
                f"expected chat_template: keep_thoughts, or a file below {rows.DATA / 'raw'}, "
                f"where DVC notices edits, found {file!r}"
            )
        is_hub_id = self.path is not None and not model_files.is_local(self.path)
        if is_hub_id and self.revision is None:
            raise ValueError(
                f"the path {self.path!r} is not a folder here, so it is a hub id, whose files can "
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

    def check_rows(
        self, ids: Iterable[Sequence[int]], longest: int, tokenizer: PreTrainedTokenizerBase,
        limits: str,
    ) -> None:  # fmt: skip
        """Raise a ValueError if the model cannot read its rows.

        That is, if a token of `ids`, an end or the padding has no embedding, or the `longest` row
        has more tokens than the model has positions; `limits` names the keys that bound it.
        """
        positions, name = self.tiny.max_length, "model.tiny.max_length"
        if self.path is not None:
            config = load_model_config(model_files.locate_folder(self.path), self.revision)
            model_tokenizer.check_ids(ids, tokenizer, config.vocab_size, self.path)
            positions, name = rope_limit.get_num_positions(config), self.path
        if positions is not None and longest > positions:
            raise ValueError(
                f"expected rows of at most {positions} tokens, which are the positions of {name}, "
                f"found one of {longest} (prompt and completion): lower {limits}, or use a model "
                f"with more positions"
            )

    def tokenizer(self, texts: Iterable[str]) -> PreTrainedTokenizerBase:
        """Tokenizer of `path`; without a path, one trained on `texts`."""
        if self.path is None:
            return model_tokenizer.train_tokenizer(texts, self.tiny.vocab_size)
        path = model_files.locate_folder(self.path)
        keep = self.chat_template == kept_thoughts.KEEP
        text = None if keep else model_files.read_template(self.chat_template)
        tokenizer = model_tokenizer.load_tokenizer(path, self.revision, text)
        if keep:
            kept_thoughts.keep_thoughts(tokenizer)
        if self.thinking is not None:
            model_tokenizer.set_thinking(tokenizer, thinking=self.thinking)
        return tokenizer


def load_model_config(path: str | Path, revision: str | None) -> PreTrainedConfig:
    """Text model's part of config.json; code beside it is never run."""
    try:
        config = AutoConfig.from_pretrained(str(path), revision=revision or "main")
    except Exception as error:  # any error of transformers about the files
        raise ValueError(
            f"{path}: expected the config.json, in UTF-8, of a model that transformers has and "
            f"that brings no code of its own, found: {' '.join(str(error).split()):.130}. "
            f"Correct it, or name another model."
        ) from error
    return config.get_text_config(decoder=True)


class LoraConfig(Params):
    """Low-rank adapters, or full training."""

    rank: int = Field(ge=0)
    """Rank of the adapters on every linear layer; 0 trains all weights instead."""
    alpha: int = Field(gt=0)
    """The adapters' output is scaled by alpha / rank."""


def locate_policy(name: str, seed: int, config: ModelConfig) -> tuple[str | Path, str | None]:
    """Folder of the policy `name` of a seed and None; of the base model, path and commit.

    A ValueError for a base model without a path: its weights are random.
    """
    if name != BASE:
        return rows.locate_policy(name, seed), None
    if config.path is None:
        raise ValueError(RANDOM_BASE_MODEL)
    return model_files.locate_folder(config.path), config.revision


def load_row_policy(
    name: str, seed: int, config: ModelConfig, compute: ComputeConfig, device: torch.device, *,
    weights_seed: int | None = None, trained: bool = True,
) -> PreTrainedModel:  # fmt: skip
    """Policy of a row and seed, or the base model, ready to use.

    With a `weights_seed`, a base model without a path has random weights drawn from it.
    """
    if name == BASE and config.path is None and weights_seed is not None:
        model = build_tiny(config.tiny, load_row_tokenizer(name, seed), weights_seed)
        return policy.prepare_model(model, compute, device)
    path, revision = locate_policy(name, seed, config)
    return policy.load_policy(path, compute, device, revision, trained=trained)


def build_tiny(
    config: TinyConfig, tokenizer: PreTrainedTokenizerBase, seed: int
) -> PreTrainedModel:
    """A Llama with random weights drawn from `seed`, for the vocabulary of `tokenizer`."""
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


def load_row_tokenizer(name: str, seed: int) -> PreTrainedTokenizerBase:
    """Tokenizer of a row's policy, or of the base model."""
    return model_tokenizer.load_tokenizer(rows.locate_policy(name, seed))


def locate_policy_folder(name: str, seed: int, config: ModelConfig) -> Path:
    """Folder of `locate_policy`; a ValueError for a hub id, whose files are not here."""
    path = Path(locate_policy(name, seed, config)[0])
    if name == BASE and not path.is_dir():
        raise ValueError(
            f"expected a folder, found the hub id model.path '{config.path}': a value model that "
            f"starts from the policy can read the base model only from a folder. Download it, "
            f"and set model.path to the folder."
        )
    return path


def add_adapters(
    model: PreTrainedModel, config: LoraConfig, seed: int
) -> policy.DisableAdapters | None:
    """Add LoRA adapters to `model`, in place; returns the context that disables them.

    Returns None at rank 0, without adapters. A new head is trained whole. No dropout: old and new
    log-probs must come from the same function.
    """
    if config.rank == 0:
        return None
    from peft import LoraConfig as PeftConfig
    from peft import get_peft_model

    torch.manual_seed(seed)
    return get_peft_model(
        model,
        PeftConfig(
            r=config.rank,
            lora_alpha=config.alpha,
            lora_dropout=0.0,
            target_modules="all-linear",
            modules_to_save=[name for name in HEADS if hasattr(model, name)] or None,
        ),
    ).disable_adapter
