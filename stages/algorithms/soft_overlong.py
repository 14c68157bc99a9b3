"""A penalty that grows before the length limit is reached."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def soft_overlong(
    lengths: Int[Tensor, " batch"], *, max_length: int, buffer: int
) -> Float[Tensor, " batch"]:
    """0 up to max_length - buffer, then linearly down to -1 at max_length and beyond.

        penalty = ((max_length - buffer) - length) / buffer,   within [-1, 0]

    To be added to the reward. Yu et al., "DAPO" (2025), eq. 13,
    https://arxiv.org/abs/2503.14476 (max_length 20480, buffer 4096).

    Args:
        lengths: tokens of each completion.
        max_length: from here on the penalty is -1.
        buffer: length of the slope.

    Raises:
        ValueError: a buffer that is not between 1 and `max_length`.
    """
    if not 1 <= buffer <= max_length:
        raise ValueError(
            f"expected a buffer from 1 to max_length {max_length}, found {buffer}: "
            "it is the last stretch before max_length"
        )
    return torch.clamp((max_length - buffer - lengths) / buffer, -1.0, 0.0)
