"""Probabilities from a judge: for options, for a pair in both orders, and their consistency.

The judge reads a pair in the orders A, B and B, A; p12 and p21 are its probabilities that the first
answer is better. A position bias favours each answer in one of the two readings, so as far as it is
the same in both it cancels in their mean. Lee et al. 2023, "RLAIF", section 2.2,
https://arxiv.org/abs/2309.00267. A reading of exactly 1/2 counts as half a win for each. Zheng et
al. 2023, "Judging LLM-as-a-Judge", section 3.3 and 4.2, https://arxiv.org/abs/2306.05685.

All pairs of n members would be n (n - 1) / 2 comparisons. In a ring there are n, and each member is
compared with the one before and the one after it (`ring_pairs`, `ring_means`; our own choice).
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

Pairs = Float[np.ndarray, " pair"]


def option_probabilities(variants: Sequence[Sequence[float]]) -> tuple[list[float], float]:
    """The options' probabilities given that one of them is chosen, and their mass.

        P(option) = sum of exp(log p) over its variants;  mass = sum of P;  p = P / mass

    Lee et al. 2023, "RLAIF", section 2.2, https://arxiv.org/abs/2309.00267, take the softmax of
    the log-probs of the tokens "1" and "2". Departure: all tokens that spell an option are
    summed (" 1", "(1", "1.", ...); else a model that writes it in another way would seem undecided.
    `variants` has for each option the log-probs of the tokens that spell it, at least one. If the
    mass is 0, the probabilities are uniform.
    """
    assert all(len(logprobs) > 0 for logprobs in variants), "an option that no token spells"
    # Relative to the largest, so that tiny probabilities keep their ratio.
    largest = max(max(logprobs) for logprobs in variants)
    if largest == -math.inf:
        return [1.0 / len(variants)] * len(variants), 0.0
    weights = [math.fsum(math.exp(value - largest) for value in logprobs) for logprobs in variants]
    total = math.fsum(weights)
    mass = min(math.exp(largest + math.log(total)), 1.0)  # above 1 only by rounding
    return [weight / total for weight in weights], mass


def soft_label(p12: float, p21: float) -> float:
    """P(A is better): ``(p12 + 1 - p21) / 2``."""
    return (p12 + 1.0 - p21) / 2.0


def order_gap(p12: float, p21: float) -> float:
    """Disagreement of the orders: ``|p12 - (1 - p21)|``, 0 for a judge blind to the order."""
    return abs(p12 - (1.0 - p21))


def orders_agree(p12: float, p21: float) -> bool:
    """Whether both orders prefer the same answer; a reading of exactly 1/2 prefers none."""
    return (p12 - 0.5) * (0.5 - p21) > 0.0


def ring_pairs(groups: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of each member of a group with the next one, and of the last with the first.

    A group of two has one pair. `groups` has the number of each member's group. A ValueError for a
    group of one.
    """
    members: dict[int, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    pairs: list[tuple[int, int]] = []
    for group in members.values():
        if len(group) == 1:
            raise ValueError(f"expected groups of at least two, found {group[0]} alone")
        following = group[1:] if len(group) == 2 else [*group[1:], group[0]]
        pairs += zip(group, following, strict=False)
    return pairs


def ring_means(
    number: int, compared: Sequence[tuple[int, int]], values: Sequence[tuple[float, float]]
) -> list[float]:
    """Mean value of each of `number` members over its comparisons.

    `values`: for each pair of `compared`, the value of its first and of its second member.
    """
    by_member: list[list[float]] = [[] for _ in range(number)]
    for pair, both in zip(compared, values, strict=True):
        for index, value in zip(pair, both, strict=True):
            by_member[index].append(value)
    return [sum(member) / len(member) for member in by_member]


def wins(probabilities: Pairs) -> Pairs:
    """1 where the probability is above 1/2, 0 below, 1/2 at it."""
    return (np.sign(probabilities - 0.5) + 1.0) / 2.0


def first_position_share(p12: Pairs, p21: Pairs) -> Pairs:
    """Share of the two readings that prefer the answer that stands first; unbiased: 1/2."""
    return (wins(p12) + wins(p21)) / 2.0


def choice_accuracy(probabilities: Pairs, a_is_better: Bool[np.ndarray, " pair"]) -> Pairs:
    """1 where the judge prefers the better answer, 0 where the worse, 1/2 where neither."""
    a_wins = wins(probabilities)
    return np.where(a_is_better, a_wins, 1.0 - a_wins)


def single_order_accuracy(p12: Pairs, p21: Pairs, a_is_better: Bool[np.ndarray, " pair"]) -> Pairs:
    """Expected `choice_accuracy` of reading a pair in one of its two orders, drawn at random."""
    return (choice_accuracy(p12, a_is_better) + choice_accuracy(1.0 - p21, a_is_better)) / 2.0
