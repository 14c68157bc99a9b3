"""Direct preference optimisation, also with smoothed labels."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from stages.algorithms.losses.preference.log_ratio_margin import finite, log_ratio_margin


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
