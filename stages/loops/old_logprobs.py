"""Log-probabilities of rollouts under frozen weights: the old policy and the reference."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from stages.models.batch import Batch
from stages.models.policy import completion_logprobs

# On a GPU another kernel may be chosen when gradients are on, and round differently.
ON_POLICY_TOLERANCE = {"cpu": 0.0, "cuda": 0.05}


@torch.no_grad()
def frozen_logprobs(
    model: PreTrainedModel, batches: Sequence[Batch], *, temperature: float
) -> list[Float[Tensor, "_ _"]]:
    """Of each batch's completions, in eval mode; the temperature is the sampling one."""
    was_training = model.training
    model.eval()
    logprobs = [completion_logprobs(model, b, temperature=temperature)[0] for b in batches]
    model.train(was_training)
    return logprobs


def check_on_policy(
    logprobs: Float[Tensor, "batch token"], old_logprobs: Float[Tensor, "batch token"]
) -> None:
    """Assert that the ratio of new to old is 1 on the first mini-batch of an on-policy step."""
    gap = (logprobs - old_logprobs).abs().max().item()
    assert gap <= ON_POLICY_TOLERANCE[logprobs.device.type], (
        f"log-probs moved by {gap} before any update: the forward pass is not a function of "
        f"weights and tokens alone (dropout, or a kernel that is not deterministic)"
    )
