"""The plain policy gradient."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def reinforce(
    logprobs: Float[Tensor, "batch token"],
    old_logprobs: Float[Tensor, "batch token"],  # noqa: ARG001 - as every surrogate
    advantages: Float[Tensor, "batch token"],
    mask: Bool[Tensor, "batch token"],
) -> tuple[Float[Tensor, "batch token"], Bool[Tensor, "batch token"]]:
    """loss = - A logprobs at each token; nothing is ever clipped.

    Unbiased only for tokens that the policy itself drew: one step for each batch of
    completions. Williams, "Simple Statistical Gradient-Following Algorithms for
    Connectionist Reinforcement Learning" (1992), eq. 4,
    https://doi.org/10.1007/BF00992696

    Args:
        logprobs: of the policy being trained; the only input that gets a gradient.
        old_logprobs: not used; taken so that every surrogate is called the same way.
        advantages: one for each token.
        mask: True at tokens that count; the others have loss 0.
    """
    coefficients = torch.where(mask, advantages.detach(), 0.0)
    return -weighted_log_likelihood(coefficients, logprobs), torch.zeros_like(mask)


def weighted_log_likelihood(
    coefficients: Float[Tensor, "batch token"], logprobs: Float[Tensor, "batch token"]
) -> Float[Tensor, "batch token"]:
    """coefficient x logprob; 0 where the coefficient is, even at log p = -inf or NaN.

    Args:
        coefficients: without gradient.
        logprobs: with it.
    """
    return coefficients.detach() * torch.where(coefficients == 0, 0.0, logprobs)
