"""Losses against a reference: of pairs DPO, also smoothed and robust, IPO and the hinge; KTO.

Of pairs, each is given some of these, and gives each pair's loss and margin of implicit rewards:

    chosen_logprobs, rejected_logprobs          log p_c, log p_r of the policy, summed over a
                                                completion's tokens; these get the gradient
    chosen_ref_logprobs, rejected_ref_logprobs  log ref_c, log ref_r of the frozen reference
    chosen_lengths, rejected_lengths            |c|, |r|, their tokens, at least 1

    margin = beta h,   h = (log p_c - log ref_c) - (log p_r - log ref_r)

(h: Azar et al. (2023), sec. 5). beta is the strength of the implied KL constraint, usually 0.01 to
0.5.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid, relu

Values = Float[Tensor, " pair"]
Lengths = Int[Tensor, " pair"]
Completions = Float[Tensor, " batch"]


def log_ratio_margin(
    chosen_logprobs: Values,
    rejected_logprobs: Values,
    chosen_ref_logprobs: Values,
    rejected_ref_logprobs: Values,
) -> Values:
    """The h above. The reference gets no gradient."""
    return (chosen_logprobs - chosen_ref_logprobs.detach()) - (
        rejected_logprobs - rejected_ref_logprobs.detach()
    )


def finite(values: Values) -> Values:
    """`values` with infinities replaced by the largest number there is, which get no gradient.

    For factors whose weight may be 0: 0 times infinity would be NaN.
    """
    limits = torch.finfo(values.dtype)
    return values.clamp(min=limits.min, max=limits.max)


def dpo_loss(
    chosen_logprobs: Values,
    rejected_logprobs: Values,
    chosen_ref_logprobs: Values,
    rejected_ref_logprobs: Values,
    *,
    beta: float,
    label_smoothing: float,
) -> tuple[Values, Values]:
    """loss = - (1 - e) log sigmoid(beta h) - e log sigmoid(-beta h).

    At margin 0 it is log 2 for every e, the `label_smoothing`: the assumed probability that a label
    is wrong, below 0.5. Rafailov et al., "Direct Preference Optimization" (2023), eq. 7,
    https://arxiv.org/abs/2305.18290, with e = 0. With e > 0 it is conservative DPO: Mitchell,
    "A note on DPO with noisy preferences & relationship to IPO" (2023),
    https://ericmitchell.ai/cdpo.pdf; its minimum is at sigmoid(margin) = 1 - e.
    """
    margins = beta * log_ratio_margin(
        chosen_logprobs, rejected_logprobs, chosen_ref_logprobs, rejected_ref_logprobs
    )
    bounded = finite(margins)
    losses = -(1 - label_smoothing) * logsigmoid(bounded) - label_smoothing * logsigmoid(-bounded)
    return losses, margins


def robust_dpo_loss(
    chosen_logprobs: Values,
    rejected_logprobs: Values,
    chosen_ref_logprobs: Values,
    rejected_ref_logprobs: Values,
    *,
    beta: float,
    flip_rate: float,
) -> tuple[Values, Values]:
    """loss = ((1 - e) l(beta h) - e l(-beta h)) / (1 - 2 e),   l(m) = - log sigmoid(m).

    Averaged over labels flipped at rate e, the `flip_rate`, it is the DPO loss of the true labels.
    It has no minimum: at a large margin it falls as -e margin / (1 - 2 e). Chowdhury et al.,
    "Provably Robust DPO: Aligning Language Models with Noisy Feedback" (2024), sec. 3,
    https://arxiv.org/abs/2403.00409
    """
    if not 0 <= flip_rate < 0.5:
        raise ValueError(
            f"expected a flip_rate from 0 to below 0.5, found {flip_rate}: with half of the "
            f"labels wrong nothing can be learned, and with more than half swap the completions"
        )
    margins = beta * log_ratio_margin(
        chosen_logprobs, rejected_logprobs, chosen_ref_logprobs, rejected_ref_logprobs
    )
    bounded = finite(margins)
    right, flipped = -logsigmoid(bounded), -logsigmoid(-bounded)
    losses = ((1 - flip_rate) * right - flip_rate * flipped) / (1 - 2 * flip_rate)
    return losses, margins


def ipo_sum_loss(
    chosen_logprobs: Values,
    rejected_logprobs: Values,
    chosen_ref_logprobs: Values,
    rejected_ref_logprobs: Values,
    *,
    beta: float,
) -> tuple[Values, Values]:
    """loss = (h - 1 / (2 beta))^2, whose minimum is at margin 1/2.

    Azar et al., "A General Theoretical Paradigm to Understand Learning from Human
    Preferences" (2023), eq. 17 (beta is its tau), https://arxiv.org/abs/2310.12036
    """
    h = log_ratio_margin(
        chosen_logprobs, rejected_logprobs, chosen_ref_logprobs, rejected_ref_logprobs
    )
    return (h - 1 / (2 * beta)) ** 2, beta * h


def ipo_mean_loss(
    chosen_logprobs: Values,
    rejected_logprobs: Values,
    chosen_ref_logprobs: Values,
    rejected_ref_logprobs: Values,
    chosen_lengths: Lengths,
    rejected_lengths: Lengths,
    *,
    beta: float,
) -> tuple[Values, Values]:
    """`ipo_sum_loss` of log-probabilities averaged over a completion's tokens.

        h = (log p_c - log ref_c) / |c| - (log p_r - log ref_r) / |r|

    Departure from Azar et al. (2023), eq. 17, which sums: a margin that does not grow with
    length. It is what TRL's `loss_type="ipo"` computes, on the advice of the paper's authors.
    """
    return ipo_sum_loss(
        chosen_logprobs / chosen_lengths,
        rejected_logprobs / rejected_lengths,
        chosen_ref_logprobs / chosen_lengths,
        rejected_ref_logprobs / rejected_lengths,
        beta=beta,
    )


def hinge_loss(
    chosen_logprobs: Values,
    rejected_logprobs: Values,
    chosen_ref_logprobs: Values,
    rejected_ref_logprobs: Values,
    *,
    beta: float,
) -> tuple[Values, Values]:
    """loss = max(0, 1 - beta h); no gradient from margin 1 on.

    Zhao et al., "SLiC-HF: Sequence Likelihood Calibration with Human Feedback" (2023), the rank
    calibration loss, https://arxiv.org/abs/2305.10425.
    Departures, those of Liu et al., "Statistical Rejection Sampling Improves Preference
    Optimization" (2023), https://arxiv.org/abs/2309.06657, and of TRL's `loss_type="hinge"`:
    log-ratios against a reference in place of SLiC's log-probabilities, 1 / beta in place of
    its delta, and no cross-entropy term beside it.
    """
    margins = beta * log_ratio_margin(
        chosen_logprobs, rejected_logprobs, chosen_ref_logprobs, rejected_ref_logprobs
    )
    return relu(1 - margins), margins


def kto_reference_point(
    mismatched_logprobs: Float[Tensor, " mismatched"],
    mismatched_ref_logprobs: Float[Tensor, " mismatched"],
) -> Float[Tensor, ""]:
    """z0, an estimate of KL(policy, reference) that gains and losses are measured from.

        z0 = max(0, mean of (log p - log ref)(y_j given x_i)),   y_j an answer to another prompt

    0 when there is no mismatched pair. No gradient. Ethayarajh et al., "KTO: Model Alignment
    as Prospect Theoretic Optimization" (2024), sec. 4, https://arxiv.org/abs/2402.01306
    """
    total = (mismatched_logprobs - mismatched_ref_logprobs).detach().sum()
    return (total / max(len(mismatched_logprobs), 1)).clamp(min=0)


def kto_loss(
    logprobs: Completions,
    ref_logprobs: Completions,
    desirable: Bool[Tensor, " batch"],
    reference_point: Float[Tensor, ""],
    *,
    beta: float,
    desirable_weight: float,
    undesirable_weight: float,
) -> tuple[Completions, Completions]:
    """Loss and implicit reward of each completion, by whether it is to become more likely.

        reward = beta (log p - log ref)
        loss   = w_D (1 - sigmoid(reward - beta z0))   where desirable
                 w_U (1 - sigmoid(beta z0 - reward))   where not

    Sums over a completion's tokens; z0 is `kto_reference_point` of the whole optimizer step, and
    beta the risk aversion, usually 0.1. Ethayarajh et al. (2024), eq. 7 of the first version, where
    eq. 8 advises w_D n_D between 1 and 4/3 times w_U n_U, n the numbers of rows. A loss is at most
    its weight, so that a completion far out of reach has hardly any gradient.
    """
    rewards = beta * (logprobs - ref_logprobs.detach())
    gains = rewards - beta * reference_point.detach()
    losses = torch.where(
        desirable,
        desirable_weight * torch.sigmoid(-gains),
        undesirable_weight * torch.sigmoid(gains),
    )
    return losses, rewards
