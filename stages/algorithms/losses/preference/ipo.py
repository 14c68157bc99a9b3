"""Identity preference optimisation: the margin is drawn to a number, not to infinity."""

from jaxtyping import Float, Int
from torch import Tensor

from stages.algorithms.losses.preference.log_ratio_margin import log_ratio_margin


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
