"""How the scores of steps become one score, chosen on held-out solutions."""

from collections.abc import Sequence

import numpy as np

from stages.algorithms.selection.best_of_n import best_of_n
from stages.algorithms.selection.step_scores import KINDS, Kind
from stages.algorithms.selection.votes import weighted_vote
from stages.records.steps import StepLabels
from stages.rewards.aggregation import Aggregation
from stages.rewards.problem_evaluation import answer_of, numbered

UNKNOWN: Kind = "min"
"""Where no problem has both a right and a wrong solution, so that nothing can be chosen by: a
solution is as good as its worst step (Zhang et al. 2025, https://arxiv.org/abs/2501.07301, section
3.4: for scores learned from people, whose files seldom say whether an answer is right)."""


def choose(
    rows: Sequence[StepLabels], scores: Sequence[Sequence[float]]
) -> tuple[Aggregation, dict[str, dict[Kind, float]]]:
    """The kinds of `selection/step_scores` with the highest accuracy, and the accuracies of all.

    Accuracy is the mean over the problems that have right and wrong solutions: of the solution with
    the highest score among all of the problem's (`best_of`), and of the answer with the largest sum
    of scores (`weighted`). Which kind is best follows what the labels mean (Zhang et al. 2025).

    Args:
        rows: held-out solutions; those of whose answer nothing is known are left out.
        scores: of each step of each.
    """
    problems: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        if row.correct is not None:
            problems.setdefault(row.id, []).append(number)
    found: dict[str, dict[Kind, list[float]]] = {
        use: {kind: [] for kind in KINDS} for use in ("best_of", "weighted")
    }
    for own in problems.values():
        right = [bool(rows[number].correct) for number in own]
        if all(right) or not any(right):
            continue
        answers = [answer_of("\n".join(rows[number].steps)) for number in own]
        numbers, is_right = numbered(answers, right)
        for kind, aggregate in KINDS.items():
            # Products of the same numbers in another order differ by rounding, and are ties.
            values = np.round([aggregate(scores[number]) for number in own], 9)
            quality = np.array(right, dtype=np.float64)
            found["best_of"][kind].append(best_of_n(values, quality, n=len(own)))
            every = np.arange(len(own))[None]
            found["weighted"][kind].append(weighted_vote(numbers, values, is_right, subsets=every))
    if not found["best_of"][UNKNOWN]:
        return Aggregation(best_of=UNKNOWN, weighted=UNKNOWN), {}
    accuracy = {
        use: {kind: round(float(np.mean(values)), 6) for kind, values in of_kind.items()}
        for use, of_kind in found.items()
    }
    choice = {use: max(KINDS, key=of_kind.__getitem__) for use, of_kind in accuracy.items()}
    return Aggregation(best_of=choice["best_of"], weighted=choice["weighted"]), accuracy
