"""Odds ratio preference optimisation: fine-tuning on the chosen, and its odds against the rest."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid

from stages.algorithms.losses.preference.log_ratio_margin import finite


def orpo_loss(
    chosen_logprobs: Float[Tensor, " pair"],
    rejected_logprobs: Float[Tensor, " pair"],
    chosen_lengths: Int[Tensor, " pair"],
    rejected_lengths: Int[Tensor, " pair"],
    *,
    lam: float,
) -> tuple[Float[Tensor, " pair"], Float[Tensor, " pair"]]:
    """Loss and log odds ratio of each pair.

        P(y)   = exp(log p_y / |y|),   odds(y) = P(y) / (1 - P(y))
        margin = log odds(c) - log odds(r)
        loss   = - log p_c / |c| + lam (- log sigmoid(margin))

    Hong et al., "ORPO: Monolithic Preference Optimization without Reference Model" (2024),
    eq. 3, 4, 6 and 7, https://arxiv.org/abs/2403.07691. Departures: the likelihood term is the
    mean over the completion's tokens, then over pairs (the authors' code and TRL take one mean
    over the tokens of a micro-batch, prompts included); a probability that rounds to 1 counts
    as 1 - eps, so that its odds are finite.

    Args:
        chosen_logprobs, rejected_logprobs: of the policy, summed; these get the gradient.
        chosen_lengths, rejected_lengths: tokens, at least 1.
        lam: lambda, the weight of the odds term, usually 0.1 to 1.
    """
    chosen, rejected = chosen_logprobs / chosen_lengths, rejected_logprobs / rejected_lengths
    margins = log_odds(chosen) - log_odds(rejected)
    return -chosen - lam * logsigmoid(finite(margins)), margins


def log_odds(logprobs: Float[Tensor, " pair"]) -> Float[Tensor, " pair"]:
    """log(p / (1 - p)) of log p <= 0; where p rounds to 1, that of 1 - eps, without gradient."""
    below_one = logprobs.clamp(max=-torch.finfo(logprobs.dtype).eps)
    return below_one - log1mexp(below_one)


def log1mexp(x: Float[Tensor, " pair"]) -> Float[Tensor, " pair"]:
    """log(1 - exp(x)) of x < 0, exact near 0 and far from it.

    Mächler, "Accurately Computing log(1 - exp(-|a|))" (2012), eq. 7: of the two ways to write
    it, each is used where it loses no digits.
    """
    # `where` does not hide a NaN gradient: the second way must not see an x near 0.
    far = x.clamp(max=-math.log(2))
    return torch.where(x > -math.log(2), torch.log(-torch.expm1(x)), torch.log1p(-torch.exp(far)))
