"""The policy that a row starts from: one that a stage made for this seed, or the base model."""

from pathlib import Path

import torch
from transformers import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages import rows
from stages.models import model_tokenizer, policy
from stages.models.config import ModelConfig, build_tiny
from stages.models.device import ComputeConfig
from stages.rows import BASE

NO_BASE = (
    "model.path is null, and a random model earns no reward: name a model.path, or start from a "
    "policy of train: sft with the preset 'pretraining', which plays the base model"
)


def load(
    name: str,
    seed: int,
    config: ModelConfig,
    compute: ComputeConfig,
    device: torch.device,
    *,
    weights_seed: int | None = None,
) -> PreTrainedModel:
    """The policy `name` of a seed, or the base model.

    Args:
        name: a row of `policies`, or `BASE`.
        seed: of the policy.
        config: says what the base model is.
        compute: its precision.
        device: where it goes.
        weights_seed: of the random weights of the base model where `config` names no path; None: a
            model that knows nothing is of no use here.

    Raises:
        ValueError: it is such a model.
    """
    if name != BASE:
        return policy.load(rows.model(name, seed), compute, device)
    if config.path is not None:
        return policy.load(config.path, compute, device, config.revision)
    if weights_seed is None:
        raise ValueError(NO_BASE)
    built = build_tiny(config.tiny, tokenizer(name, seed), weights_seed)
    return policy.prepare(built, compute, device)


def tokenizer(name: str, seed: int) -> PreTrainedTokenizerBase:
    """Its tokenizer."""
    return model_tokenizer.load(rows.model(name, seed))


def folder(name: str, seed: int, config: ModelConfig) -> Path:
    """Where its files are, for what reads them itself.

    Raises:
        ValueError: it has none here.
    """
    if name != BASE:
        return rows.model(name, seed)
    if config.path is None:
        raise ValueError(NO_BASE)
    if not Path(config.path).is_dir():
        raise ValueError(
            f"expected a folder, found the hub id model.path '{config.path}': vLLM, and a value "
            f"model that starts from the policy, read the base model only where it is a folder. "
            f"Download it, and set model.path to the folder."
        )
    return Path(config.path)
