"""The loss of a value model."""

import torch
from jaxtyping import Float
from torch import Tensor


def clipped_value_loss(
    values: Float[Tensor, "batch token"],
    old_values: Float[Tensor, "batch token"],
    returns: Float[Tensor, "batch token"],
    *,
    clip: float,
) -> Float[Tensor, "batch token"]:
    """Half the squared error at each token, pessimistic about moves beyond `clip`.

        clipped = old + clip(V - old, -clip, clip)
        loss    = max((V - return)^2, (clipped - return)^2) / 2

    As in the implementation of Schulman et al. (2017) and Ouyang et al., "Training
    language models to follow instructions" (2022), appendix C.4.
    """
    old_values, returns = old_values.detach(), returns.detach()
    clipped = old_values + torch.clamp(values - old_values, -clip, clip)
    return 0.5 * torch.maximum((values - returns) ** 2, (clipped - returns) ** 2)
