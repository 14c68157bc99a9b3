"""Probabilities of a few options, each of which a model can spell as several tokens."""

import math
from collections.abc import Sequence


def option_probabilities(variants: Sequence[Sequence[float]]) -> tuple[list[float], float]:
    """The options' probabilities given that one of them is chosen, and their mass.

        P(option) = sum of exp(log p) over its variants;  mass = sum of P;  p = P / mass

    Lee et al. 2023, "RLAIF", section 2.2, https://arxiv.org/abs/2309.00267, take the softmax of
    the log-probs of the tokens "1" and "2". Departure: all tokens that spell an option are
    summed (" 1", "(1", "1.", ...), or a model that writes it in another way than the one looked
    for would seem undecided.

    Args:
        variants: for each option the log-probs of the tokens that spell it, at least one each.

    Returns:
        Probabilities that sum to 1, in the order of the options (uniform where the mass is 0),
        and the mass, between 0 and 1.
    """
    assert all(len(logprobs) > 0 for logprobs in variants), "an option that no token spells"
    # Relative to the largest, so that a ratio of two tiny probabilities is still their ratio.
    largest = max(max(logprobs) for logprobs in variants)
    if largest == -math.inf:
        return [1.0 / len(variants)] * len(variants), 0.0
    weights = [math.fsum(math.exp(value - largest) for value in logprobs) for logprobs in variants]
    total = math.fsum(weights)
    mass = min(math.exp(largest + math.log(total)), 1.0)  # above 1 by rounding alone
    return [weight / total for weight in weights], mass
