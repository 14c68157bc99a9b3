"""What scores completions: a reward model by its head, a policy by how likely it finds them."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from stages.models import policy, scalar_head, start
from stages.models.batch import Batch
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig

REWARD_MODELS = "train_reward_model/"
"""What the words of reward models start with."""


def load(
    word: str, config: ModelConfig, compute: ComputeConfig, device: torch.device
) -> Callable[[Batch], Float[Tensor, " batch"]]:
    """A function of a batch to a score of each of its completions.

    Args:
        word: a folder under data/, of a reward model or of a policy.
        config: says what the base model is.
        compute: precision.
        device: where it computes.
    """
    if word.startswith(REWARD_MODELS):
        model = scalar_head.load(start.DATA / word, compute, device).eval()
        return partial(scalar_head.rewards, model)
    return partial(mean_logprobs, start.load(word, config, compute, device).eval())


def mean_logprobs(model: PreTrainedModel, batch: Batch) -> Float[Tensor, " batch"]:
    """Mean of log p over each completion's tokens, at temperature 1.

    Chen et al., "Evaluating Large Language Models Trained on Code" (2021), section 3.3,
    https://arxiv.org/abs/2107.03374: of n samples the one with the highest is better than a
    random one, without any reward model.
    """
    logprobs, _ = policy.completion_logprobs(model, batch, temperature=1.0)
    return logprobs.sum(1) / batch.mask.sum(1)
