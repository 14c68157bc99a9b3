"""How much of a sequence has been there before."""

import zlib
from collections.abc import Sequence


def repeated_share(tokens: Sequence[int], n: int) -> float:
    """The share of n-grams that have occurred before; 0 where there is none.

        1 - different n-grams / n-grams

    Yeo et al., "Demystifying Long Chain-of-Thought Reasoning in LLMs" (2025), appendix,
    https://arxiv.org/abs/2502.03373, look for repeated n-grams token by token; this is one number
    for the sequence.
    """
    number = len(tokens) - n + 1
    if number < 1:
        return 0.0
    return 1 - len({tuple(tokens[start : start + n]) for start in range(number)}) / number


COPIES = 3
"""So often a loop has to go round before it is called one."""


def longest_repeat(tokens: Sequence[int]) -> int:
    """The length of the longest run of tokens that occurs twice, overlapping or not.

    Of (1, 2, 3, 1, 2): 2. By bisection: a run of n that repeats holds one of n - 1 that does.
    """
    low, high = 0, max(len(tokens) - 1, 0)
    while low < high:
        length = (low + high + 1) // 2
        number = len(tokens) - length + 1
        different = {tuple(tokens[start : start + length]) for start in range(number)}
        low, high = (length, high) if len(different) < number else (low, length - 1)
    return low


def compression_ratio(text: str) -> float:
    """Bytes after DEFLATE over bytes before; 0 of an empty text.

    Of a raw stream, without gzip's header of 18 bytes, which would be most of a short text. Above
    1 where nothing repeats. Longer text has more to refer back to, so it is smaller for the same
    kind of text: compare texts of about one length.
    """
    plain = text.encode("utf-8")
    if not plain:
        return 0.0
    stream = zlib.compressobj(level=9, wbits=-zlib.MAX_WBITS)
    return len(stream.compress(plain) + stream.flush()) / len(plain)


def ends_in_loop(tokens: Sequence[int]) -> bool:
    """Whether the end is `COPIES` times the same run of tokens, one after the other."""
    for period in range(1, len(tokens) // COPIES + 1):
        end = tokens[-period * COPIES :]
        if all(end[i] == end[i + period] for i in range(len(end) - period)):
            return True
    return False
