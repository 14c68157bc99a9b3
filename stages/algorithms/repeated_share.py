"""How much of a sequence it has said before."""

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
