"""How right each way to aggregate the scores of steps is, where it chooses or weighs."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from stages.algorithms.selection.best_of_n import best_of_n
from stages.algorithms.selection.step_scores import KINDS, Kind
from stages.algorithms.selection.votes import weighted_vote
from stages.records.pools import Completion, Score
from stages.records.problems import Prompt
from stages.rewards import answer_checker, pool_scores
from stages.rewards.problem_evaluation import answer_of, numbered


def accuracies(
    problems: Sequence[tuple[Prompt, Sequence[Completion]]],
    rows: Sequence[Sequence[Score]],
    subsets: Int[np.ndarray, "draw n"],
) -> dict[str, dict[Kind, float]]:
    """`best_of` and `weighted` -> kind -> mean accuracy over the problems.

    Args:
        problems: each prompt with its pool.
        rows: the scores of each pool.
        subsets: n samples of a pool each; votes are averaged over them, best-of-n is exact.
    """
    n = subsets.shape[1]
    found: dict[str, dict[Kind, list[float]]] = {
        use: {kind: [] for kind in KINDS} for use in ("best_of", "weighted")
    }
    for (prompt, pool), pool_rows in zip(problems, rows, strict=True):
        right = [answer_checker.is_correct(row.completion, prompt.answer) for row in pool]
        numbers, is_right = numbered([answer_of(row.completion) for row in pool], right)
        quality = np.array(right, dtype=np.float64)
        for kind, aggregate in KINDS.items():
            scores = pool_scores.aggregated(pool_rows, aggregate)
            found["best_of"][kind].append(best_of_n(scores, quality, n=n))
            vote = weighted_vote(numbers, scores, is_right, subsets=subsets)
            found["weighted"][kind].append(vote)
    return {
        use: {kind: round(float(np.mean(values)), 6) for kind, values in of_kind.items()}
        for use, of_kind in found.items()
    }
