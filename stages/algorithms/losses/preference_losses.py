"""Preference losses with a reference policy: DPO, conservative DPO, robust DPO, IPO, hinge, KTO.

All but KTO's are losses of pairs. With p_c and p_r the policy's probabilities of the chosen and the
rejected completion, and ref_c and ref_r the reference's, each returns the loss of every pair, and
its margin, the difference of the implicit rewards beta log(p / ref):

    margin = beta h,   h = (log p_c - log ref_c) - (log p_r - log ref_r)

(h: Azar et al. (2023), sec. 5). beta is the strength of the implied KL constraint, usually 0.01 to
0.5.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid, relu

Values = Float[Tensor, " pair"]
LossesAndMargins = tuple[Values, Values]
Completions = Float[Tensor, " batch"]


class PairLogprobs(NamedTuple):
    """Log-probabilities of both completions of some pairs, summed over their tokens."""

    chosen_logprobs: Values
    """log p_c, with a gradient; `rejected_logprobs`: log p_r."""
    rejected_logprobs: Values
    chosen_ref_logprobs: Values
    """log ref_c, without a gradient; `rejected_ref_logprobs`: log ref_r."""
    rejected_ref_logprobs: Values
    chosen_lengths: Int[Tensor, " pair"]
    """|c|, at least 1: tokens, the end-of-sequence token included; |r| likewise."""
    rejected_lengths: Int[Tensor, " pair"]

    def swapped(self) -> "PairLogprobs":
        """The pairs with chosen and rejected exchanged."""
        return PairLogprobs(*(self[field] for field in (1, 0, 3, 2, 5, 4)))

    def log_ratio_margin(self) -> Values:
        """h = (log p_c - log ref_c) - (log p_r - log ref_r)."""
        return (self.chosen_logprobs - self.chosen_ref_logprobs.detach()) - (
            self.rejected_logprobs - self.rejected_ref_logprobs.detach()
        )

    def token_means(self) -> "PairLogprobs":
        """Log-probs averaged over each completion's tokens: log p_c / |c|, and so on."""
        lengths = self[4:]
        means = [total / length for total, length in zip(self[:4], 2 * lengths, strict=True)]
        return PairLogprobs._make([*means, *lengths])


def finite(values: Values) -> Values:
    """Values with infinities replaced by the largest finite number, without a gradient there.

    For terms whose weight may be 0: 0 times infinity would be NaN.
    """
    limits = torch.finfo(values.dtype)
    return values.clamp(min=limits.min, max=limits.max)


def dpo_loss(pairs: PairLogprobs, *, beta: float, label_smoothing: float) -> LossesAndMargins:
    """loss = - (1 - e) log sigmoid(beta h) - e log sigmoid(-beta h).

    e is `label_smoothing`, the assumed probability that a label is wrong, below 0.5. At margin 0
    the loss is log 2 for every e. Rafailov et al., "Direct Preference Optimization" (2023), eq. 7,
    https://arxiv.org/abs/2305.18290, with e = 0. With e > 0 it is conservative DPO: Mitchell,
    "A note on DPO with noisy preferences & relationship to IPO" (2023),
    https://ericmitchell.ai/cdpo.pdf; its minimum is at sigmoid(margin) = 1 - e.
    """
    margins = beta * pairs.log_ratio_margin()
    bounded = finite(margins)
    losses = -(1 - label_smoothing) * logsigmoid(bounded) - label_smoothing * logsigmoid(-bounded)
    return losses, margins


def robust_dpo_loss(pairs: PairLogprobs, *, beta: float, flip_rate: float) -> LossesAndMargins:
    """loss = ((1 - e) l(beta h) - e l(-beta h)) / (1 - 2 e),   l(m) = - log sigmoid(m).

    e is `flip_rate`, below 1/2. Averaged over labels that are flipped at this rate, the loss is the
    DPO loss of the true labels. It has no minimum: at a large margin it falls as
    -e margin / (1 - 2 e). Chowdhury et al.,
    "Provably Robust DPO: Aligning Language Models with Noisy Feedback" (2024), sec. 3,
    https://arxiv.org/abs/2403.00409
    """
    margins = beta * pairs.log_ratio_margin()
    bounded = finite(margins)
    right, flipped = -logsigmoid(bounded), -logsigmoid(-bounded)
    return ((1 - flip_rate) * right - flip_rate * flipped) / (1 - 2 * flip_rate), margins


def ipo_sum_loss(pairs: PairLogprobs, *, beta: float) -> LossesAndMargins:
    """loss = (h - 1 / (2 beta))^2, whose minimum is at margin 1/2.

    Azar et al., "A General Theoretical Paradigm to Understand Learning from Human
    Preferences" (2023), eq. 17 (beta is its tau), https://arxiv.org/abs/2310.12036
    """
    h = pairs.log_ratio_margin()
    return (h - 1 / (2 * beta)) ** 2, beta * h


def ipo_mean_loss(pairs: PairLogprobs, *, beta: float) -> LossesAndMargins:
    """`ipo_sum_loss` of log-probabilities averaged over a completion's tokens.

        loss = (h - 1 / (2 beta))^2,   h = (log p_c - log ref_c) / |c| - (log p_r - log ref_r) / |r|

    Departure from Azar et al. (2023), eq. 17, which sums: a margin that does not grow with
    length. It is what TRL's `loss_type="ipo"` computes, on the advice of the paper's authors.
    """
    return ipo_sum_loss(pairs.token_means(), beta=beta)


def hinge_loss(pairs: PairLogprobs, *, beta: float) -> LossesAndMargins:
    """loss = max(0, 1 - beta h); no gradient from margin 1 on.

    Zhao et al., "SLiC-HF: Sequence Likelihood Calibration with Human Feedback" (2023), the rank
    calibration loss, https://arxiv.org/abs/2305.10425.
    Departures, those of Liu et al., "Statistical Rejection Sampling Improves Preference
    Optimization" (2023), https://arxiv.org/abs/2309.06657, and of TRL's `loss_type="hinge"`:
    log-ratios against a reference in place of SLiC's log-probabilities, 1 / beta in place of
    its delta, and no cross-entropy term beside it.
    """
    margins = beta * pairs.log_ratio_margin()
    return relu(1 - margins), margins


def kto_reference_point(
    mismatched_logprobs: Float[Tensor, " mismatched"],
    mismatched_ref_logprobs: Float[Tensor, " mismatched"],
) -> Float[Tensor, ""]:
    """KTO's reference point z0, an estimate of KL(policy || reference), without a gradient.

        z0 = max(0, mean of log p(y_j | x_i) - log ref(y_j | x_i)),   y_j an answer to prompt j != i

    0 without a mismatched pair (x_i, y_j). Ethayarajh et al., "KTO: Model Alignment as Prospect
    Theoretic Optimization" (2024), sec. 4, https://arxiv.org/abs/2402.01306
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
    """Loss and implicit reward of each desirable or undesirable completion.

        reward = beta (log p - log ref)
        loss   = w_D (1 - sigmoid(reward - beta z0))   if desirable
                 w_U (1 - sigmoid(beta z0 - reward))   if undesirable

    log p and log ref are sums over the completion's tokens, z0 is `kto_reference_point` of the
    whole optimizer step, and beta the risk aversion, usually 0.1. Ethayarajh et al. (2024), eq. 7
    of the first version, where eq. 8 advises w_D n_D between 1 and 4/3 times w_U n_U, with n_D
    desirable and n_U undesirable rows. The loss saturates, at 0 and at its weight: a completion
    whose reward is far from beta z0 has hardly any gradient.
    """
    rewards = beta * (logprobs - ref_logprobs.detach())
    gains = rewards - beta * reference_point.detach()
    losses = torch.where(  # 1 - sigmoid(x) = sigmoid(-x)
        desirable,
        desirable_weight * torch.sigmoid(-gains),
        undesirable_weight * torch.sigmoid(gains),
    )
    return losses, rewards
