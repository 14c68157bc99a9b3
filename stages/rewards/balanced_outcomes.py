"""Right and wrong completions of a problem's pool, each side of the same weight.

In a pool a problem is mostly right or mostly wrong. Taken as they are, completions teach how hard
their problem is, which no choice among them needs (`algorithms/statistics/score_quality`). So
within a problem that has both, all right completions together weigh 1/2 and all wrong ones 1/2. A
problem with one class only can teach nothing but its base rate; it is left out, or weighs
`one_class_weight` in all. What is learned is therefore P(right) where right and wrong are equally
likely beforehand, not the rate at which the policy is right: a score to choose by, which in a pool
that is mostly wrong is too high.
"""

import random
from collections.abc import Sequence
from functools import partial

from stages.records.pools import Completion
from stages.records.preferences import Outcome
from stages.rewards.verifier_labels import JudgedPool, distinct
from stages.seeding import derive


def learned(
    judged: Sequence[JudgedPool], *, max_per_problem: int, one_class_weight: float, seed: int
) -> list[list[Outcome]]:
    """The outcomes that are learned from, of each problem that has any; see `balance`."""
    if not any(one.right and one.wrong for one in judged):
        raise ValueError(
            f"expected problems with both a right and a wrong completion, found none of "
            f"{len(judged)}. Sample more completions of each problem (section sampling: "
            f"num_samples, temperature, max_new_tokens), or use problems that the policy "
            f"sometimes solves."
        )
    draw = partial(balance, max_per_problem=max_per_problem, one_class_weight=one_class_weight)
    problems = [draw(one, seed=derive(seed, one.prompt.id)) for one in judged]
    return [rows for rows in problems if rows]


def balance(
    judged: JudgedPool, *, max_per_problem: int, one_class_weight: float, seed: int
) -> list[Outcome]:
    """At most `max_per_problem` outcomes of one problem, drawn as evenly from both sides as can be.

    Equal completions count once. Where one side has less than its half of the places, the other
    takes them. `max_per_problem` is at least 2, or no problem could have both.
    """
    right, wrong = distinct(judged.right), distinct(judged.wrong)
    total = 1.0 if right and wrong else one_class_weight
    if not total:
        return []
    stream = random.Random(seed)
    stream.shuffle(right)
    stream.shuffle(wrong)
    of_wrong = min(len(wrong), max(max_per_problem // 2, max_per_problem - len(right)))
    of_right = min(len(right), max_per_problem - of_wrong)
    share = total / (bool(right) + bool(wrong))
    return _outcomes(judged, (right[:of_right], share), (wrong[:of_wrong], share))


def tested_on(judged: Sequence[JudgedPool]) -> list[list[Outcome]]:
    """Every completion as the policy samples them, all of a problem with the same weight."""
    found: list[list[Outcome]] = []
    for one in judged:
        total = len(one.right) + len(one.wrong)
        sides = [(rows, len(rows) / total) for rows in (one.right, one.wrong)]
        found.append(_outcomes(one, *sides))
    return found


def _outcomes(
    judged: JudgedPool, right: tuple[list[Completion], float], wrong: tuple[list[Completion], float]
) -> list[Outcome]:
    """Outcomes of both sides, given with what each weighs in all."""
    return [
        Outcome(
            id=judged.prompt.id,
            prompt_ids=judged.prompt.prompt_ids,
            completion_ids=row.completion_ids,
            right=is_right,
            weight=weight / len(rows),
        )
        for is_right, (rows, weight) in ((True, right), (False, wrong))
        for row in rows
    ]
