"""Simple preference optimisation: average log-probabilities, no reference."""

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid


def simpo_loss(
    chosen_logprobs: Float[Tensor, " pair"],
    rejected_logprobs: Float[Tensor, " pair"],
    chosen_lengths: Int[Tensor, " pair"],
    rejected_lengths: Int[Tensor, " pair"],
    *,
    beta: float,
    gamma: float,
) -> tuple[Float[Tensor, " pair"], Float[Tensor, " pair"]]:
    """Loss and implicit reward margin of each pair.

        margin = beta (log p_c / |c| - log p_r / |r|)
        loss   = - log sigmoid(margin - gamma)

    The margin is returned before gamma is taken off: above 0 the pair is in order. Meng et al.,
    "SimPO: Simple Preference Optimization with a Reference-Free Reward" (2024), eq. 6,
    https://arxiv.org/abs/2405.14734

    Args:
        chosen_logprobs, rejected_logprobs: of the policy, summed; these get the gradient.
        chosen_lengths, rejected_lengths: tokens, at least 1.
        beta: scale of the reward, usually 2 to 10.
        gamma: target margin, usually 0.3 to 0.5 of beta.
    """
    margins = beta * (chosen_logprobs / chosen_lengths - rejected_logprobs / rejected_lengths)
    return -logsigmoid(margins - gamma), margins
