"""Right and wrong completions of a problem's pool, each side of the same weight.

In a pool a problem is mostly right or mostly wrong. Taken as they are, completions teach how
hard their problem is, which no choice among them needs (see
`algorithms/statistics/auc.py`). So within a problem that has both, all right completions
together weigh 1/2 and all wrong ones 1/2: its base rate says nothing. A problem with one class
only can teach nothing but its base rate; it is left out, or weighs `one_class_weight` in all.

What is learned is therefore P(right) where right and wrong are equally likely beforehand, not
the rate at which the policy is right: a score to choose by, which in a pool that is mostly
wrong is too high.
"""

import random
from collections.abc import Sequence

from stages.records.completion import Completion
from stages.records.outcome import Outcome
from stages.records.prompt import Prompt
from stages.rewards import answer_checker
from stages.rewards.preference_pairs import distinct


def verdicts(prompt: Prompt, pool: Sequence[Completion]) -> list[bool]:
    """Whether each completion's final answer is right; one that was cut after it is, too."""
    return [answer_checker.is_correct(row.completion, prompt.answer) for row in pool]


def balance(
    prompt: Prompt,
    pool: Sequence[Completion],
    right: Sequence[bool],
    *,
    max_per_problem: int,
    one_class_weight: float,
    seed: int,
) -> list[Outcome]:
    """At most `max_per_problem` outcomes of one problem, drawn as evenly from both sides as can be.

    Equal completions count once. Where one side has less than its half of the places, the other
    takes them.

    Args:
        prompt: the problem.
        pool: its completions.
        right: the verdict on each.
        max_per_problem: at least 2, or no problem could have both.
        one_class_weight: of all outcomes together of a problem without right or without wrong
            completions; 0 leaves them out.
        seed: of the draws.
    """
    judged = list(zip(pool, right, strict=True))
    sides = [
        distinct([row for row, verdict in judged if verdict is side]) for side in (True, False)
    ]
    total = 1.0 if all(sides) else one_class_weight
    if not total:
        return []
    stream = random.Random(seed)
    for side in sides:
        stream.shuffle(side)
    places = _places([len(side) for side in sides], max_per_problem)
    num_sides = sum(bool(side) for side in sides)
    return [
        Outcome(
            id=prompt.id,
            prompt_ids=prompt.prompt_ids,
            completion_ids=row.completion_ids,
            right=verdict,
            weight=total / num_sides / number,
        )
        for side, number, verdict in zip(sides, places, (True, False), strict=True)
        for row in side[:number]
    ]


def everything(prompt: Prompt, pool: Sequence[Completion], right: Sequence[bool]) -> list[Outcome]:
    """Every completion with the same weight, as the policy samples them: to test on."""
    return [
        Outcome(
            id=prompt.id,
            prompt_ids=prompt.prompt_ids,
            completion_ids=row.completion_ids,
            right=verdict,
            weight=1.0 / len(pool),
        )
        for row, verdict in zip(pool, right, strict=True)
    ]


def _places(available: Sequence[int], most: int) -> tuple[int, int]:
    """How many of the right and of the wrong ones are taken; right ones take an odd place."""
    right, wrong = available
    of_wrong = min(wrong, max(most // 2, most - right))
    return min(right, most - of_wrong), of_wrong
