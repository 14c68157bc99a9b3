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


def labelled(
    solutions: Iterable[Solution], counts: Iterable[PrefixCount] | None, kind: Kind
) -> list[Labelled]:
    """Solutions labelled by the counts of their prefixes; without counts by the truth."""
    if counts is None:
        return known(solutions)
    by_prefix = {(count.id, tuple(count.prefix_ids)): count for count in counts}
    rows: list[Labelled] = []
    for one in solutions:
        found = [by_prefix[one.prompt.id, prefix] for prefix in one.prefixes()]
        rates = [count.num_right / count.num_completions for count in found]
        labels = rates if kind == "soft" else [float(rate > 0) for rate in rates]
        numbers = [*(count.num_completions for count in found), 0]
        rows.append((_row(one, [*labels, float(one.correct)], numbers, "math_shepherd"), found))
    return rows


def known(solutions: Iterable[Solution]) -> list[Labelled]:
    """Solutions labelled by the truth, which must be known."""
    rows: list[Labelled] = []
    for one in solutions:
        if one.true_labels is None:
            raise ValueError(
                f"problem '{one.prompt.id}': num_completions 0 asks for true step labels, which "
                f"only generated word problems have; found the question "
                f"{one.prompt.question[:80]!r}. Set num_completions to 1 or more."
            )
        labels = [float(right) for right in one.true_labels]
        rows.append((_row(one, labels, [0] * len(labels), "truth"), []))
    return rows


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
