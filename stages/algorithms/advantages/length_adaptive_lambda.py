"""GAE's lambda chosen for each completion by its length."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def length_adaptive_lambda(
    lengths: Int[Tensor, " batch"], *, alpha: float
) -> Float[Tensor, " batch"]:
    """lam = 1 - 1 / (alpha length), at least 0 and at most 1.

    The weights lam^k of GAE then sum to alpha times the length, so that a reward at the
    end reaches the start of a long completion as well as that of a short one.
    Yue et al., "VAPO" (2025), section 4.2, https://arxiv.org/abs/2504.05118 (alpha 0.05).
    Departure: the clamp; the formula is negative for completions shorter than 1 / alpha.

    Args:
        lengths: counted tokens of each completion.
        alpha: share of the length over which the weights extend.

    Raises:
        ValueError: `alpha` not positive.
    """
    if alpha <= 0:
        raise ValueError(f"expected alpha above 0, found {alpha}: VAPO uses 0.05")
    # Without tokens: 1 / 0 is inf, and the clamp makes it 0.
    return torch.clamp(1 - 1 / (alpha * lengths.float()), 0.0, 1.0)
