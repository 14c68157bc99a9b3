"""What scores completions: reward models by their heads, a policy by how likely it finds them."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.models import ensemble, model_tokenizer, policy, process_scorer, start
from stages.models.aggregate import Aggregate
from stages.models.batch import Batch, Group, micro_batches
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig
from stages.models.ensemble import Scores
from stages.models.process_scorer import PROCESS_MODELS, ProcessScore

REWARD_MODELS = ("train_reward_model/", "train_outcome_reward/", "assemble_ensembles/")
"""What the words of reward models and of ensembles start with."""
Score = Callable[[Sequence[Group]], Scores]
"""Completions with their prompts -> a score of each, in turn; on the CPU."""


def load(
    word: str,
    aggregate: Aggregate,
    process_score: ProcessScore,
    config: ModelConfig,
    compute: ComputeConfig,
    device: torch.device,
) -> Score:
    """What completions are worth to a model, in eval mode.

    Args:
        word: a folder under data/, of a reward model, an ensemble of them, a process reward
            model or a policy.
        aggregate: how an ensemble's scores become one.
        process_score: how the scores of a completion's steps become one.
        config: says what the base model is.
        compute: precision.
        device: where it computes.
    """
    path = start.DATA / word
    if word.startswith(PROCESS_MODELS):
        scorer = process_scorer.load(path, compute, device)
        return partial(process_scorer.completion_scores, scorer, process_score)
    if word.startswith(REWARD_MODELS):
        score = ensemble.load(path, aggregate, compute, device)
    else:
        score = partial(likelihood, start.load(word, config, compute, device).eval())
    return partial(
        _in_batches,
        score,
        compute=compute,
        pad_id=model_tokenizer.pad_id(tokenizer(word)),
        device=device,
    )


@torch.no_grad()
def _in_batches(
    score: Callable[[Batch], Scores],
    groups: Sequence[Group],
    *,
    compute: ComputeConfig,
    pad_id: int,
    device: torch.device,
) -> Scores:
    """The scores of all completions of `groups`, whatever numbers they have."""
    places = {index: place for place, index in enumerate(i for g in groups for i in g.indices)}
    values, disagreement = torch.zeros(2, len(places))
    for batch in micro_batches(groups, compute, pad_id, device):
        found = score(batch)
        own = [places[index] for index in batch.indices]
        values[own] = found.values.cpu()
        disagreement[own] = found.disagreement.cpu()
    return Scores(values=values, disagreement=disagreement)


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
