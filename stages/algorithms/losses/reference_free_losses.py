"""Preference losses of pairs without a reference: SimPO, ORPO and CPO.

Symbols are those of `preference_losses`; |c| and |r| are the numbers of tokens. ORPO and CPO add a
likelihood term: supervised fine-tuning on the chosen completion.
"""

import math

import torch
from torch.nn.functional import logsigmoid

from stages.algorithms.losses.preference_losses import (
    LossesAndMargins,
    PairLogprobs,
    Values,
    finite,
)


def simpo_loss(pairs: PairLogprobs, *, beta: float, gamma: float) -> LossesAndMargins:
    """margin = beta (log p_c / |c| - log p_r / |r|),   loss = - log sigmoid(margin - gamma).

    Usually beta is 2 to 10 and gamma, the target margin, 0.3 to 0.5 of it. Meng et al., "SimPO:
    Simple Preference Optimization with a Reference-Free Reward" (2024), eq. 6,
    https://arxiv.org/abs/2405.14734
    """
    means = pairs.token_means()
    margins = beta * (means.chosen_logprobs - means.rejected_logprobs)
    return -logsigmoid(margins - gamma), margins


def orpo_loss(pairs: PairLogprobs, *, lam: float) -> LossesAndMargins:
    """Loss and log odds ratio of each pair.

        P(y)   = exp(log p_y / |y|),   odds(y) = P(y) / (1 - P(y))
        margin = log odds(c) - log odds(r)
        loss   = - log p_c / |c| + lam (- log sigmoid(margin)),   lam usually 0.1 to 1

    Hong et al., "ORPO: Monolithic Preference Optimization without Reference Model" (2024),
    eq. 3, 4, 6 and 7, https://arxiv.org/abs/2403.07691. Departures: the likelihood term is the
    mean over the completion's tokens, then over pairs (the authors' code and TRL take one mean
    over the tokens of a micro-batch, prompts included); a probability that rounds to 1 counts
    as 1 - eps, so that its odds are finite.
    """
    means = pairs.token_means()
    margins = log_odds(means.chosen_logprobs) - log_odds(means.rejected_logprobs)
    return -means.chosen_logprobs - lam * logsigmoid(finite(margins)), margins


def log_odds(logprobs: Values) -> Values:
    """log(p / (1 - p)) of log p <= 0; if p rounds to 1, that of 1 - eps, without gradient."""
    below_one = logprobs.clamp(max=-torch.finfo(logprobs.dtype).eps)
    return below_one - log1mexp(below_one)


def log1mexp(x: Values) -> Values:
    """log(1 - exp(x)) of x < 0, exact near 0 and far from it.

    Mächler, "Accurately Computing log(1 - exp(-|a|))" (2012), eq. 7: two formulas, each used where
    it loses no digits.
    """
    # `where` does not hide a NaN gradient: the second formula must not get an x near 0.
    far = x.clamp(max=-math.log(2))
    return torch.where(x > -math.log(2), torch.log(-torch.expm1(x)), torch.log1p(-torch.exp(far)))


def cpo_loss(pairs: PairLogprobs, *, beta: float, alpha: float) -> LossesAndMargins:
    """margin = beta (log p_c - log p_r),   loss = - log sigmoid(margin) - alpha log p_c / |c|.

    The preference term takes sums over a completion's tokens, as the paper and TRL do; alpha is 1
    in the paper. Xu et al., "Contrastive Preference Optimization" (2024), sec. 3,
    https://arxiv.org/abs/2401.08417. Departure: the likelihood term is the mean over the
    completion's tokens, then over pairs; the paper writes the sum, TRL takes one mean over the
    chosen tokens of a micro-batch, which would depend on how the step is split.
    """
    margins = beta * (pairs.chosen_logprobs - pairs.rejected_logprobs)
    likelihood = finite(-pairs.token_means().chosen_logprobs)
    return -logsigmoid(margins) + alpha * likelihood, margins
