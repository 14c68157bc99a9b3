"""Everything that a completion of a problem's samples can be chosen by, and weighed by in a vote.

Rewards that are models, by their names; the policy itself (`mean_logprob`); and what needs no model
at all: `format` (any completion in the format of the demonstrations, and the majority of those),
`longest`, `shortest`. A reward that does not beat these has learned nothing worth its cost.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from stages.algorithms.selection.step_scores import KINDS
from stages.records.pools import Completion, Score
from stages.rewards import format_reward
from stages.rewards.aggregation import Aggregation
from stages.rewards.problem_evaluation import PoolScores

MEAN_LOGPROB, FORMAT, LONGEST, SHORTEST = "mean_logprob", "format", "longest", "shortest"
WITHOUT_A_REWARD = (MEAN_LOGPROB, FORMAT, LONGEST, SHORTEST)


def by_scorer(
    pool: Sequence[Completion],
    rows: Sequence[Score],
    aggregations: Mapping[str, Aggregation],
) -> dict[str, PoolScores]:
    """Each view of one problem's samples.

    Weights are fixed transforms, since a monotone transform changes a vote: the logistic function
    of a logit (of a Bradley-Terry model the probability to beat an answer of reward 0), a process
    score as it is, exp of a mean log-prob. The mean log-prob is of the tempered distribution that
    the samples were drawn from; to choose by it: Chen et al. 2021
    (https://arxiv.org/abs/2107.03374), section 3.3.

    Args:
        pool: a problem's completions.
        rows: their scores in the same order.
        aggregations: of each process model, how the scores of steps become one.

    Raises:
        ValueError: a reward has the name of what needs none.
    """
    if taken := (rows[0].scores.keys() | rows[0].steps.keys()) & set(WITHOUT_A_REWARD):
        raise ValueError(
            f"expected rewards with other names than {', '.join(WITHOUT_A_REWARD)}, which need no "
            f"model, found {', '.join(sorted(taken))}: rename it in the table `rewards`"
        )
    found: dict[str, PoolScores] = {}
    for name in rows[0].scores:
        logits = np.array([row.scores[name] for row in rows])
        found[name] = PoolScores(values=logits, weights=1.0 / (1.0 + np.exp(-logits)))
    for name in rows[0].steps:
        steps, chosen = [row.steps[name] for row in rows], aggregations[name]
        found[name] = PoolScores(
            values=aggregated(steps, KINDS[chosen.best_of]),
            weights=aggregated(steps, KINDS[chosen.weighted]),
        )
    texts = [row.completion for row in pool]
    kept = {text: float(format_reward.has_format(text)) for text in dict.fromkeys(texts)}
    formatted = np.array([kept[text] for text in texts])
    lengths = np.array([len(row.completion_ids) for row in pool], dtype=np.float64)
    logprobs = _rounded([row.logprob_sum / len(row.completion_ids) for row in pool])
    found[MEAN_LOGPROB] = PoolScores(values=logprobs, weights=np.exp(logprobs))
    found[FORMAT] = PoolScores(values=formatted, weights=formatted)
    found[LONGEST] = PoolScores(values=lengths, weights=None)
    found[SHORTEST] = PoolScores(values=-lengths, weights=None)
    return found


def aggregated(
    steps: Sequence[Sequence[float]], aggregate: Callable[[Sequence[float]], float]
) -> Float[np.ndarray, " sample"]:
    """The scores of each completion's steps as one."""
    # Products of the same numbers in another order differ by rounding, and are ties.
    return _rounded([aggregate(one) for one in steps])


def _rounded(values: Sequence[float]) -> Float[np.ndarray, " sample"]:
    return np.round(np.array(values, dtype=np.float64), 9)
