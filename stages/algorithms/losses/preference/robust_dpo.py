"""DPO made unbiased for labels that are wrong at a known rate."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from stages.algorithms.losses.preference.log_ratio_margin import finite, log_ratio_margin


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
