"""By how much more than the reference the policy prefers the chosen completion."""

import torch
from jaxtyping import Float
from torch import Tensor


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
