"""Penalties and measures of length and repetition, whatever the content."""

import zlib
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
            "it is the last stretch before max_length"
        )
    return torch.clamp((max_length - buffer - lengths) / buffer, -1.0, 0.0)


def repeated_share(tokens: Sequence[int], n: int) -> float:
    """The share of n-grams that have occurred before; 0 where there is none.

        1 - different n-grams / n-grams

    Yeo et al., "Demystifying Long Chain-of-Thought Reasoning in LLMs" (2025), appendix,
    https://arxiv.org/abs/2502.03373, look for repeated n-grams token by token; this is one number
    for the sequence.
    """
    number = len(tokens) - n + 1
    return 0.0 if number < 1 else 1 - _different(tokens, n) / number


def _different(tokens: Sequence[int], n: int) -> int:
    return len({tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1)})


COPIES = 3
"""Repetitions that make a loop."""


def longest_repeat(tokens: Sequence[int]) -> int:
    """The length of the longest run of tokens that occurs twice, overlapping or not.

    Of (1, 2, 3, 1, 2): 2. By bisection: a run of n that repeats holds one of n - 1 that does.
    """
    low, high = 0, max(len(tokens) - 1, 0)
    while low < high:
        length = (low + high + 1) // 2
        repeats = _different(tokens, length) < len(tokens) - length + 1
        low, high = (length, high) if repeats else (low, length - 1)
    return low


def compression_ratio(text: str) -> float:
    """Bytes after DEFLATE over bytes before; 0 of an empty text.

    Of a raw stream, without gzip's header of 18 bytes, which would be most of a short text. Above
    1 where nothing repeats. Longer text has more to refer back to, so it is smaller for the same
    kind of text: compare texts of about one length.
    """
    plain = text.encode("utf-8")
    packed = zlib.compress(plain, level=9, wbits=-zlib.MAX_WBITS)
    return len(packed) / len(plain) if plain else 0.0


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
