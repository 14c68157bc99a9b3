"""What n samples of a problem cost, and what scoring them costs, counted as a search is."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from stages.algorithms.selection.distinct_cost import distinct_cost


def generation(
    prompt_tokens: Sequence[int], mean_tokens: Sequence[float], parameters: int, ns: Sequence[int]
) -> dict[int, float]:
    """Mean floating-point operations of n samples of a problem: 2 P for each token.

    The prompt is read once for all samples of a problem, and every generated token passes once:

        2 P (prompt + n * completion)

    Args:
        prompt_tokens: of each problem.
        mean_tokens: of each problem, the mean of its completions.
        parameters: P of the policy, see `models/size`.
        ns: numbers of samples.
    """
    prompt, completion = float(np.mean(prompt_tokens)), float(np.mean(mean_tokens))
    return {n: 2.0 * parameters * (prompt + n * completion) for n in ns}


def scoring(
    prompt_tokens: Sequence[int],
    pools: Sequence[Sequence[Sequence[int]]],
    parameters: int,
    ns: Sequence[int],
    *,
    step_tokens: Callable[[Sequence[int]], int],
) -> dict[int, float]:
    """Mean floating-point operations of scoring n samples of a problem, 2 P for each token.

    Equal completions of a problem are read once, and all of them share one reading of the prompt;
    expected over the subsets of n of a pool, as the accuracies are.

    Args:
        prompt_tokens: of each problem.
        pools: of each problem, the token ids of its N completions.
        parameters: P of the scorer.
        ns: from 1 to N.
        step_tokens: what the scorer reads besides of a completion: of a process model one for
            each step, of other scorers none.
    """
    read: Mapping[int, list[float]] = {n: [] for n in ns}
    for pool in pools:
        counts = Counter(tuple(ids) for ids in pool)
        costs = [float(len(ids) + step_tokens(ids)) for ids in counts]
        for n in ns:
            read[n].append(distinct_cost(list(counts.values()), costs, n=n))
    prompt = float(np.mean(prompt_tokens))
    return {n: 2.0 * parameters * (prompt + float(np.mean(read[n]))) for n in ns}
