"""Penalties and measures of length and repetition, whatever the content."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor


def soft_overlong(
    lengths: Int[Tensor, " batch"], *, max_length: int, buffer: int
) -> Float[Tensor, " batch"]:
    """Length term of the reward: 0 up to max_length - buffer, falling to -1 at max_length.

        term = clip(((max_length - buffer) - length) / buffer, -1, 0)

    It is added to the reward; length in tokens. Yu et al., "DAPO" (2025), eq. 13,
    https://arxiv.org/abs/2503.14476 (max_length 20480, buffer 4096).
    """
    if not 1 <= buffer <= max_length:
        raise ValueError(
            f"expected a buffer from 1 to max_length {max_length}, found {buffer}: "
            "it is the last stretch before max_length; lower it (overlong_buffer of a preset)"
        )
    return torch.clamp((max_length - buffer - lengths) / buffer, -1.0, 0.0)


def repeated_share(tokens: Sequence[int], n: int) -> float:
    """Share of n-grams that occurred before; 0 if there is none.

        1 - different n-grams / n-grams

    Yeo et al., "Demystifying Long Chain-of-Thought Reasoning in LLMs" (2025), appendix,
    https://arxiv.org/abs/2502.03373, look for repeated n-grams token by token; this is one number
    for the sequence.
    """
    number = len(tokens) - n + 1
    different = {tuple(tokens[start : start + n]) for start in range(number)}
    return 0.0 if number < 1 else 1 - len(different) / number


COPIES = 3
"""Number of copies that make a loop."""


def ends_in_loop(tokens: Sequence[int], *, min_length: int = 1) -> bool:
    """Whether the completion ends in a loop: at least `COPIES` copies of one run of tokens.

        tokens[i] = tokens[i - period]   for the last span - period tokens i, for some period
        span = max(COPIES period, min_length): tokens that the copies cover together

    Such a policy would most likely repeat the run at any length limit (Holtzman et al. 2020,
    https://arxiv.org/abs/1904.09751).
    """
    return any(
        tokens[-1] == tokens[-1 - period]  # a quick look, before runs are compared
        and (span := max(COPIES * period, min_length)) <= len(tokens)
        and tokens[-span:-period] == tokens[period - span :]
        for period in range(1, len(tokens) // COPIES + 1)
    )
