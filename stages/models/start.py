"""The model that a word of a recipe names: a policy that a stage made, or the base model."""

from pathlib import Path

import torch
from transformers import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.models import model_tokenizer, policy, tiny
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig

DATA = Path("data")
BASE = "prepare_data/tokenizer"
"""Stands for the section `model` with this tokenizer; any other word is a policy's folder."""
NO_BASE = (
    "model.path is null, and a random model earns no reward: name a model.path, or start from an "
    "entry of train_sft with the preset 'pretraining', which plays the base model"
)


def load(
    start: str,
    config: ModelConfig,
    compute: ComputeConfig,
    device: torch.device,
    *,
    seed: int | None = None,
) -> PreTrainedModel:
    """The policy in `data/<start>`, or the base model.

    Args:
        start: the policy's folder under data/, or `BASE`.
        config: says what the base model is.
        compute: its precision.
        device: where it goes.
        seed: of the random weights of the base model where `config` names no path; None: a
            model that knows nothing is of no use here.

    Raises:
        ValueError: it is such a model.
    """
    if start != BASE:
        return policy.load(DATA / start, compute, device)
    if config.path is not None:
        return policy.load(config.path, compute, device, config.revision)
    if seed is None:
        raise ValueError(NO_BASE)
    return policy.prepare(tiny.build(config.tiny, tokenizer(start), seed), compute, device)


def tokenizer(start: str) -> PreTrainedTokenizerBase:
    """Its tokenizer."""
    return model_tokenizer.load(DATA / start)


def folder(start: str, config: ModelConfig) -> Path:
    """Where its files are, for an engine that reads them itself.

    Raises:
        ValueError: it has none here.
    """
    if start != BASE:
        return DATA / start
    if config.path is None:
        raise ValueError(NO_BASE)
    if not Path(config.path).is_dir():
        raise ValueError(
            f"expected a folder, found the hub id model.path '{config.path}': vLLM samples from "
            f"the base model only where it is a folder. Download it, or set engine: transformers."
        )
    return Path(config.path)
