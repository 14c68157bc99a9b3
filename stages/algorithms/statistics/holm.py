"""Several comparisons at once: p-values adjusted so that none is called significant by luck."""

from collections.abc import Sequence


def holm_adjusted(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment, in the order given.

    With the m p-values sorted, p_(1) <= ... <= p_(m),

        adjusted_(i) = max_{j <= i} min(1, (m - j + 1) p_(j))

    Calling significant what is at most alpha after adjustment errs anywhere in the table with
    probability at most alpha, whatever the dependence between the comparisons; nowhere weaker
    than Bonferroni's m p. "A Simple Sequentially Rejective Multiple Test Procedure" (Holm 1979).

    With (0.01, 0.04, 0.03): (0.03, 0.06, 0.06).
    """
    assert all(0.0 <= p <= 1.0 for p in p_values), p_values
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    least = 0.0
    for rank, index in enumerate(order):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = least
    return adjusted
