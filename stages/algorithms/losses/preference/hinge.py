"""The hinge on the margin: a pair that is right by enough is left alone."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import relu

from stages.algorithms.losses.preference.log_ratio_margin import log_ratio_margin


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
