"""Step labels of a solution, from how often a policy completed each of its prefixes rightly.

Wang et al., "Math-Shepherd" (2024), https://arxiv.org/abs/2312.08935, section 3.3: a step is
good so far as it can lead to the right answer. With c of K completions right,

    hard estimation (eq. 3)   1 if c > 0 else 0
    soft estimation (eq. 4)   c / K

Departure: after the last step nothing is left to be completed, so its label is the answer
checker's verdict itself, which costs nothing and is no estimate.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from stages.records.steps import PrefixCount, StepLabels
from stages.rewards.step_solutions import Solution

Kind = Literal["hard", "soft"]


Labelled = tuple[StepLabels, list[PrefixCount]]
"""A solution's row, and the counts of each step but the last; none where labels are the truth."""


def label(num_right: int, num_completions: int, kind: Kind) -> float:
    """The label that `num_right` of `num_completions` make."""
    return float(num_right > 0) if kind == "hard" else num_right / num_completions


def labelled(
    solutions: Iterable[Solution], counts: Iterable[PrefixCount] | None, kind: Kind
) -> list[Labelled]:
    """Solutions labelled by the counts of their prefixes; without counts by the truth."""
    return known(solutions) if counts is None else estimated(solutions, counts, kind)


def estimated(
    solutions: Iterable[Solution], counts: Iterable[PrefixCount], kind: Kind
) -> list[Labelled]:
    """Solutions labelled by the counts of their prefixes."""
    by_prefix = {(count.id, tuple(count.prefix_ids)): count for count in counts}
    labelled: list[Labelled] = []
    for solution in solutions:
        found = [by_prefix[solution.prompt.id, prefix] for prefix in solution.prefixes()]
        labels = [label(one.num_right, one.num_completions, kind) for one in found]
        row = _row(
            solution,
            [*labels, float(solution.correct)],
            [*(one.num_completions for one in found), 0],
            "math_shepherd",
        )
        labelled.append((row, found))
    return labelled


def known(solutions: Iterable[Solution]) -> list[Labelled]:
    """Solutions labelled by the truth.

    Raises:
        ValueError: the truth of a problem's steps is not known.
    """
    labelled: list[Labelled] = []
    for solution in solutions:
        if solution.true_labels is None:
            raise ValueError(
                f"problem '{solution.prompt.id}': num_completions 0 asks for true step labels, "
                f"which only generated word problems have; found the question "
                f"{solution.prompt.question[:80]!r}. Set num_completions to 1 or more."
            )
        labels = [float(right) for right in solution.true_labels]
        row = _row(solution, labels, [0] * len(labels), "truth")
        labelled.append((row, []))
    return labelled


def unlabelled(solutions: Iterable[Solution], labelled: Iterable[StepLabels]) -> list[StepLabels]:
    """The solutions that are not among the labelled, as rows without labels."""
    have = {(row.id, row.index) for row in labelled}
    return [
        _row(one, [None] * len(one.steps), [0] * len(one.steps), "none")
        for one in solutions
        if (one.prompt.id, one.index) not in have
    ]


def _row(
    solution: Solution, labels: Sequence[float | None], num_completions: list[int], source: str
) -> StepLabels:
    return StepLabels(
        id=solution.prompt.id,
        index=solution.index,
        prompt=solution.prompt.prompt,
        prompt_ids=solution.prompt.prompt_ids,
        steps=solution.steps,
        step_ids=solution.step_ids,
        labels=[*labels],
        num_completions=num_completions,
        true_labels=solution.true_labels,
        correct=solution.correct,
        source=source,
    )
