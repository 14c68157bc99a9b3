"""How well a process reward model judges the steps of solutions that it has not seen."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from stages.algorithms.statistics.score_quality import (
    auc,
    balanced_accuracy,
    negative_log_likelihood,
)
from stages.loops import process_reward
from stages.loops.process_reward import Targets
from stages.records.steps import StepLabels

THRESHOLD = 0.5


class Judgement(NamedTuple):
    """A step's score and its label."""

    problem: str
    score: float
    label: float
    """The target that the score is the probability of."""


def summary(
    rows: Sequence[StepLabels], scores: Sequence[Sequence[float]], kind: Targets
) -> dict[str, Any]:
    """The scores against the labels (`labels`) and, where it is known, the truth (`truth`).

    A soft label counts as right from 1/2 on; its likelihood is that of the label itself. Where
    no truth is known, `truth` has no steps. Solutions without any label, there to be chosen among,
    are left out. `solutions`: the others; `lowest_is_last` as below.

    Raises:
        ValueError: a row whose labels do not fit its steps.
    """
    for row in rows:
        process_reward.check(row)
    found = [
        (row, own)
        for row, own in zip(rows, scores, strict=True)
        if any(label is not None for label in row.labels)
    ]
    labels = [
        Judgement(row.id, score, kind.of(label))
        for row, own in found
        for score, label in zip(own, row.labels, strict=True)
        if label is not None
    ]
    truth = [
        Judgement(row.id, score, float(right))
        for row, own in found
        if row.true_labels is not None
        for score, right in zip(own, row.true_labels, strict=True)
    ]
    return {
        "solutions": len(found),
        "labels": agreement(labels),
        "truth": agreement(truth),
        "lowest_is_last": lowest_is_last([own for _, own in found]),
    }


def agreement(steps: Sequence[Judgement]) -> dict[str, float | int | None]:
    """Balanced accuracy at 1/2, negative log-likelihood and AUROC of the steps.

    `auroc` is over all steps, as one threshold sees them; `auroc_within_problem` the mean over
    the problems that have right and wrong steps, which no difference in difficulty can raise.
    None: there are only right or only wrong steps.
    """
    if not steps:
        return {"steps": 0}
    scores = np.array([step.score for step in steps])
    labels = np.array([step.label for step in steps])
    is_right = labels >= THRESHOLD
    of_problem: dict[str, list[int]] = {}
    for number, step in enumerate(steps):
        of_problem.setdefault(step.problem, []).append(number)
    within = [auc(scores[own], is_right[own]) for own in of_problem.values()]
    compared = [value for value in within if value is not None]
    return {
        "steps": len(steps),
        "right_share": float(is_right.mean()),
        "balanced_accuracy": balanced_accuracy(scores, is_right, threshold=THRESHOLD),
        "negative_log_likelihood": negative_log_likelihood(scores, labels),
        "auroc": auc(scores, is_right),
        "auroc_within_problem": sum(compared) / len(compared) if compared else None,
    }


def lowest_is_last(scores: Sequence[Sequence[float]]) -> float | None:
    """Share of the solutions of several steps whose lowest score is that of the last step.

    A model of steps that finds most faults at the end judges outcomes. Zhang et al., "The
    Lessons of Developing Process Reward Models in Mathematical Reasoning" (2025),
    https://arxiv.org/abs/2501.07301, where it is above 40 % for several models. A tie with an
    earlier step is not counted. None: no solution has several.
    """
    several = [own for own in scores if len(own) > 1]
    if not several:
        return None
    return sum(own[-1] < min(own[:-1]) for own in several) / len(several)
