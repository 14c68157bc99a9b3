"""Losses of pairs against a reference: DPO, also smoothed and robust, IPO and the hinge."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid, relu


def log_ratio_margin(
    chosen_logprobs: Float[Tensor, " pair"],
    rejected_logprobs: Float[Tensor, " pair"],
    chosen_ref_logprobs: Float[Tensor, " pair"],
    rejected_ref_logprobs: Float[Tensor, " pair"],
) -> Float[Tensor, " pair"]:
    """The h of Azar et al. (2023), sec. 5, that the losses with a reference are functions of.

        h = (log p_c - log ref_c) - (log p_r - log ref_r)

    The reference gets no gradient. https://arxiv.org/abs/2310.12036
    """
    return (chosen_logprobs - chosen_ref_logprobs.detach()) - (
        rejected_logprobs - rejected_ref_logprobs.detach()
    )


def finite(values: Float[Tensor, " pair"]) -> Float[Tensor, " pair"]:
    """`values` with infinities replaced by the largest number there is, which get no gradient.

    For factors whose weight may be 0: 0 times infinity would be NaN.
    """
    limits = torch.finfo(values.dtype)
    return values.clamp(min=limits.min, max=limits.max)


def dpo_loss(
    chosen_logprobs: Float[Tensor, " pair"],
    rejected_logprobs: Float[Tensor, " pair"],
    chosen_ref_logprobs: Float[Tensor, " pair"],
    rejected_ref_logprobs: Float[Tensor, " pair"],
    *,
    beta: float,
    label_smoothing: float,
) -> tuple[Float[Tensor, " pair"], Float[Tensor, " pair"]]:
    """Loss and implicit reward margin of each pair.

        margin = beta ((log p_c - log ref_c) - (log p_r - log ref_r))
        loss   = - (1 - e) log sigmoid(margin) - e log sigmoid(-margin)

    The log-probabilities are sums over a completion's tokens. At margin 0 the loss is
    log 2 for every e. Rafailov et al., "Direct Preference Optimization" (2023), eq. 7,
    https://arxiv.org/abs/2305.18290, with e = 0. With e > 0 it is conservative DPO: Mitchell,
    "A note on DPO with noisy preferences & relationship to IPO" (2023),
    https://ericmitchell.ai/cdpo.pdf; its minimum is at sigmoid(margin) = 1 - e.

    Args:
        chosen_logprobs, rejected_logprobs: of the policy; these get the gradient.
        chosen_ref_logprobs, rejected_ref_logprobs: of the frozen reference.
        beta: strength of the implied KL constraint, usually 0.01 to 0.5.
        label_smoothing: e, the assumed probability that a label is wrong, below 0.5.
    """
    margins = beta * log_ratio_margin(
        chosen_logprobs, rejected_logprobs, chosen_ref_logprobs, rejected_ref_logprobs
    )
    bounded = finite(margins)
    losses = -(1 - label_smoothing) * logsigmoid(bounded) - label_smoothing * logsigmoid(-bounded)
    return losses, margins


def robust_dpo_loss(
    chosen_logprobs: Float[Tensor, " pair"],
    rejected_logprobs: Float[Tensor, " pair"],
    chosen_ref_logprobs: Float[Tensor, " pair"],
    rejected_ref_logprobs: Float[Tensor, " pair"],
    *,
    beta: float,
    flip_rate: float,
) -> tuple[Float[Tensor, " pair"], Float[Tensor, " pair"]]:
    """Loss and implicit reward margin of each pair.

        margin = beta ((log p_c - log ref_c) - (log p_r - log ref_r))
        loss   = ((1 - e) l(margin) - e l(-margin)) / (1 - 2 e),   l(m) = - log sigmoid(m)

    Averaged over labels flipped at rate e, it is the DPO loss of the true labels. It has no
    minimum: at a large margin it falls as -e margin / (1 - 2 e). Chowdhury et al., "Provably
    Robust DPO: Aligning Language Models with Noisy Feedback" (2024), sec. 3,
    https://arxiv.org/abs/2403.00409

    Args:
        chosen_logprobs, rejected_logprobs: of the policy, summed; these get the gradient.
        chosen_ref_logprobs, rejected_ref_logprobs: of the frozen reference, summed.
        beta: strength of the implied KL constraint.
        flip_rate: e, the share of labels that are wrong, below 0.5.

    Raises:
        ValueError: flip_rate outside [0, 0.5), where the labels say nothing.
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
    chosen_logprobs: Float[Tensor, " pair"],
    rejected_logprobs: Float[Tensor, " pair"],
    chosen_ref_logprobs: Float[Tensor, " pair"],
    rejected_ref_logprobs: Float[Tensor, " pair"],
    *,
    beta: float,
) -> tuple[Float[Tensor, " pair"], Float[Tensor, " pair"]]:
    """Loss and implicit reward margin of each pair, as in the paper.

        h      = (log p_c - log ref_c) - (log p_r - log ref_r)
        loss   = (h - 1 / (2 beta))^2,   margin = beta h

    The log-probabilities are sums over a completion's tokens. The minimum is at margin 1/2.
    Azar et al., "A General Theoretical Paradigm to Understand Learning from Human
    Preferences" (2023), eq. 17 (beta is its tau), https://arxiv.org/abs/2310.12036

    Args:
        chosen_logprobs, rejected_logprobs: of the policy; these get the gradient.
        chosen_ref_logprobs, rejected_ref_logprobs: of the frozen reference.
        beta: the wanted h is 1 / (2 beta).
    """
    h = log_ratio_margin(
        chosen_logprobs, rejected_logprobs, chosen_ref_logprobs, rejected_ref_logprobs
    )
    return (h - 1 / (2 * beta)) ** 2, beta * h


def ipo_mean_loss(
    chosen_logprobs: Float[Tensor, " pair"],
    rejected_logprobs: Float[Tensor, " pair"],
    chosen_ref_logprobs: Float[Tensor, " pair"],
    rejected_ref_logprobs: Float[Tensor, " pair"],
    chosen_lengths: Int[Tensor, " pair"],
    rejected_lengths: Int[Tensor, " pair"],
    *,
    beta: float,
) -> tuple[Float[Tensor, " pair"], Float[Tensor, " pair"]]:
    """`ipo_sum_loss` of log-probabilities averaged over a completion's tokens.

        h      = (log p_c - log ref_c) / |c| - (log p_r - log ref_r) / |r|
        loss   = (h - 1 / (2 beta))^2,   margin = beta h

    Departure from Azar et al. (2023), eq. 17, which sums: a margin that does not grow with
    length. It is what TRL's `loss_type="ipo"` computes, on the advice of the paper's authors.

    Args:
        chosen_logprobs, rejected_logprobs: of the policy, summed; these get the gradient.
        chosen_ref_logprobs, rejected_ref_logprobs: of the frozen reference, summed.
        chosen_lengths, rejected_lengths: tokens, at least 1.
        beta: the wanted h is 1 / (2 beta), per token.
    """
    return ipo_sum_loss(
        chosen_logprobs / chosen_lengths,
        rejected_logprobs / rejected_lengths,
        chosen_ref_logprobs / chosen_lengths,
        rejected_ref_logprobs / rejected_lengths,
        beta=beta,
    )


def hinge_loss(
    chosen_logprobs: Float[Tensor, " pair"],
    rejected_logprobs: Float[Tensor, " pair"],
    chosen_ref_logprobs: Float[Tensor, " pair"],
    rejected_ref_logprobs: Float[Tensor, " pair"],
    *,
    beta: float,
) -> tuple[Float[Tensor, " pair"], Float[Tensor, " pair"]]:
    """Loss and implicit reward margin of each pair.

        margin = beta ((log p_c - log ref_c) - (log p_r - log ref_r))
        loss   = max(0, 1 - margin)

    No gradient from margin 1 on. Zhao et al., "SLiC-HF: Sequence Likelihood Calibration with
    Human Feedback" (2023), the rank calibration loss, https://arxiv.org/abs/2305.10425.
    Departures, those of Liu et al., "Statistical Rejection Sampling Improves Preference
    Optimization" (2023), https://arxiv.org/abs/2309.06657, and of TRL's `loss_type="hinge"`:
    log-ratios against a reference in place of SLiC's log-probabilities, 1 / beta in place of
    its delta, and no cross-entropy term beside it.

    Args:
        chosen_logprobs, rejected_logprobs: of the policy, summed; these get the gradient.
        chosen_ref_logprobs, rejected_ref_logprobs: of the frozen reference, summed.
        beta: 1 / beta is the log-ratio margin that is enough.
    """
    margins = beta * log_ratio_margin(
        chosen_logprobs, rejected_logprobs, chosen_ref_logprobs, rejected_ref_logprobs
    )
    return relu(1 - margins), margins
