"""What scores completions: reward models by their heads, a policy by how likely it finds them."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.models import ensemble, model_tokenizer, policy, start
from stages.models.aggregate import Aggregate
from stages.models.batch import Batch
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig
from stages.models.ensemble import Scores

REWARD_MODELS = ("train_reward_model/", "train_outcome_reward/", "assemble_ensembles/")
"""What the words of reward models and of ensembles start with."""


def load(
    word: str,
    aggregate: Aggregate,
    config: ModelConfig,
    compute: ComputeConfig,
    device: torch.device,
) -> Callable[[Batch], Scores]:
    """A function of a batch to a score of each of its completions.

    Args:
        word: a folder under data/, of a reward model, an ensemble of them or a policy.
        aggregate: how an ensemble's scores become one.
        config: says what the base model is.
        compute: precision.
        device: where it computes.
    """
    if word.startswith(REWARD_MODELS):
        return ensemble.load(start.DATA / word, aggregate, compute, device)
    model = start.load(word, config, compute, device).eval()
    return partial(likelihood, model)


def tokenizer(word: str) -> PreTrainedTokenizerBase:
    """Its tokenizer; of an ensemble, that of the first member."""
    if word.startswith(REWARD_MODELS):
        return model_tokenizer.load(ensemble.folders(start.DATA / word)[0])
    return start.tokenizer(word)


def likelihood(model: PreTrainedModel, batch: Batch) -> Scores:
    """`mean_logprobs`, about which nobody disagrees."""
    values = mean_logprobs(model, batch)
    return Scores(values=values, disagreement=torch.zeros_like(values))


def mean_logprobs(model: PreTrainedModel, batch: Batch) -> Float[Tensor, " batch"]:
    """Mean of log p over each completion's tokens, at temperature 1.

    Chen et al., "Evaluating Large Language Models Trained on Code" (2021), section 3.3,
    https://arxiv.org/abs/2107.03374: of n samples the one with the highest is better than a
    random one, without any reward model.
    """
    logprobs, _ = policy.completion_logprobs(model, batch, temperature=1.0)
    return logprobs.sum(1) / batch.mask.sum(1)
