"""The tokenizer of the model that is trained: its own, or one learned for the tiny model."""

from collections.abc import Iterable
from pathlib import Path

from transformers import AutoTokenizer
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.models import tokenizer as embedded
from stages.models.config import ModelConfig


def for_model(config: ModelConfig, texts: Iterable[str]) -> PreTrainedTokenizerBase:
    """The tokenizer of `config.path`; without a path, one trained on `texts`."""
    if config.path is None:
        return embedded.train(texts, config.tiny.vocab_size)
    return load(config.path, config.revision)


def load(path: str | Path, revision: str | None = None) -> PreTrainedTokenizerBase:
    """The tokenizer at `path`, with a pad token; code that comes with it is never run.

    Raises:
        ValueError: there is none, or it has no end-of-sequence token.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            str(path), revision=revision or "main", trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        raise ValueError(
            f"no tokenizer could be loaded from '{path}': {error}. `model.path` in params.yaml "
            f"must be a folder saved with save_pretrained, tokenizer included, or a hub id."
        ) from error
    if tokenizer.eos_token_id is None:
        raise ValueError(
            f"the tokenizer at '{path}' has no end-of-sequence token: a completion could never "
            f"end. Set `eos_token` in its tokenizer_config.json."
        )
    if tokenizer.pad_token_id is None:
        # Padding is never counted, so any token will do.
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def pad_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """What fills the right of a row."""
    return _single(tokenizer.pad_token_id)


def eos_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """What ends a completion."""
    return _single(tokenizer.eos_token_id)


def _single(token_id: object) -> int:
    assert isinstance(token_id, int), f"`load` makes sure of one token id, found {token_id!r}"
    return token_id
