"""Direct preference optimisation."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid


def dpo_loss(
    chosen_logprobs: Float[Tensor, " pair"],
    rejected_logprobs: Float[Tensor, " pair"],
    chosen_ref_logprobs: Float[Tensor, " pair"],
    rejected_ref_logprobs: Float[Tensor, " pair"],
    *,
    beta: float,
) -> tuple[Float[Tensor, " pair"], Float[Tensor, " pair"]]:
    """Loss and implicit reward margin of each pair.

        margin = beta ((log p_c - log ref_c) - (log p_r - log ref_r))
        loss   = - log sigmoid(margin)

    The log-probabilities are sums over a completion's tokens. At margin 0 the loss is
    log 2. Rafailov et al., "Direct Preference Optimization" (2023), eq. 7,
    https://arxiv.org/abs/2305.18290

    Args:
        chosen_logprobs, rejected_logprobs: of the policy; these get the gradient.
        chosen_ref_logprobs, rejected_ref_logprobs: of the frozen reference.
        beta: strength of the implied KL constraint, usually 0.01 to 0.5.
    """
    margins = beta * (
        (chosen_logprobs - chosen_ref_logprobs.detach())
        - (rejected_logprobs - rejected_ref_logprobs.detach())
    )
    return -logsigmoid(margins), margins
