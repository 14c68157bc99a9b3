"""Contrastive preference optimisation: DPO with a uniform reference, and fine-tuning beside it."""

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid

from stages.algorithms.losses.preference.log_ratio_margin import finite


def cpo_loss(
    chosen_logprobs: Float[Tensor, " pair"],
    rejected_logprobs: Float[Tensor, " pair"],
    chosen_lengths: Int[Tensor, " pair"],
    *,
    beta: float,
    alpha: float,
) -> tuple[Float[Tensor, " pair"], Float[Tensor, " pair"]]:
    """Loss and margin of each pair.

        margin = beta (log p_c - log p_r)
        loss   = - log sigmoid(margin) + alpha (- log p_c / |c|)

    The preference term takes sums over a completion's tokens, as the paper and TRL do. Xu et
    al., "Contrastive Preference Optimization" (2024), sec. 3,
    https://arxiv.org/abs/2401.08417. Departure: the likelihood term is the mean over the
    completion's tokens, then over pairs; the paper writes the sum, TRL takes one mean over the
    chosen tokens of a micro-batch, which would depend on how the step is split.

    Args:
        chosen_logprobs, rejected_logprobs: of the policy, summed; these get the gradient.
        chosen_lengths: tokens, at least 1.
        beta: scale of the margin.
        alpha: weight of the likelihood term; 1 in the paper.
    """
    margins = beta * (chosen_logprobs - rejected_logprobs)
    likelihood = finite(-chosen_logprobs / chosen_lengths)
    return -logsigmoid(margins) + alpha * likelihood, margins
