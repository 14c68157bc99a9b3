"""Right and wrong completions of a problem's pool, each side of the same weight.

In a pool a problem is mostly right or mostly wrong. Taken as they are, completions teach how
hard their problem is, which no choice among them needs (see
`algorithms/statistics/score_quality.py`). So within a problem that has both, all right completions
together weigh 1/2 and all wrong ones 1/2: its base rate says nothing. A problem with one class
only can teach nothing but its base rate; it is left out, or weighs `one_class_weight` in all.

What is learned is therefore P(right) where right and wrong are equally likely beforehand, not
the rate at which the policy is right: a score to choose by, which in a pool that is mostly
wrong is too high.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from stages.records.pools import Completion
from stages.records.preferences import Outcome
from stages.records.problems import Prompt
from stages.rewards import answer_checker
from stages.rewards.verifier_labels import distinct
from stages.seeding import derive


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedPool:
    """One problem's completions with what the answer checker says of them."""

    prompt: Prompt
    right: list[Completion]
    """Their final answer is right; a completion that was cut after it is, too."""
    wrong: list[Completion]


def judge(prompt: Prompt, pool: Sequence[Completion]) -> JudgedPool:
    """The verdicts on one problem's completions."""
    right, wrong = [], []
    for row in pool:
        correct = answer_checker.is_correct(row.completion, prompt.answer)
        (right if correct else wrong).append(row)
    return JudgedPool(prompt=prompt, right=right, wrong=wrong)


def learned(
    judged: Sequence[JudgedPool], *, max_per_problem: int, one_class_weight: float, seed: int
) -> list[list[Outcome]]:
    """The outcomes that are learned from, of each problem that has any; see `balance`.

    Raises:
        ValueError: there is not a problem with both right and wrong completions.
    """
    if not any(one.right and one.wrong for one in judged):
        raise ValueError(
            f"expected problems with both a right and a wrong completion, found none of "
            f"{len(judged)}. Sample more completions of each problem (section sampling: "
            f"num_samples, temperature, max_new_tokens), or use problems that the policy "
            f"sometimes solves."
        )
    problems = [
        balance(
            one,
            max_per_problem=max_per_problem,
            one_class_weight=one_class_weight,
            seed=derive(seed, one.prompt.id),
        )
        for one in judged
    ]
    return [rows for rows in problems if rows]


def balance(
    judged: JudgedPool, *, max_per_problem: int, one_class_weight: float, seed: int
) -> list[Outcome]:
    """At most `max_per_problem` outcomes of one problem, drawn as evenly from both sides as can be.

    Equal completions count once. Where one side has less than its half of the places, the other
    takes them.

    Args:
        judged: the problem.
        max_per_problem: at least 2, or no problem could have both.
        one_class_weight: of all outcomes together of a problem without right or without wrong
            completions; 0 leaves them out.
        seed: of the draws.
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
    return [
        *_outcomes(judged.prompt, right[:of_right], right=True, weight=share),
        *_outcomes(judged.prompt, wrong[:of_wrong], right=False, weight=share),
    ]


def tested_on(judged: Sequence[JudgedPool]) -> list[list[Outcome]]:
    """Every completion as the policy samples them, all of a problem with the same weight."""
    return [
        [
            *_outcomes(one.prompt, one.right, right=True, weight=_share(one.right, one.wrong)),
            *_outcomes(one.prompt, one.wrong, right=False, weight=_share(one.wrong, one.right)),
        ]
        for one in judged
    ]


def _share(some: Sequence[Completion], others: Sequence[Completion]) -> float:
    return len(some) / (len(some) + len(others))


def _outcomes(
    prompt: Prompt, rows: Sequence[Completion], *, right: bool, weight: float
) -> list[Outcome]:
    """Outcomes of one side that weigh `weight` together."""
    return [
        Outcome(
            id=prompt.id,
            prompt_ids=prompt.prompt_ids,
            completion_ids=row.completion_ids,
            right=right,
            weight=weight / len(rows),
        )
        for row in rows
    ]
