"""Pairs of a right and a wrong completion of one problem, from its pool.

The label is the answer checker's, so it is about the final answer only: a
completion that reaches the right number by wrong steps counts as right.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from stages.records.pools import Completion
from stages.records.preferences import Preference
from stages.records.problems import Prompt
from stages.rewards import answer_checker


@dataclass(frozen=True, kw_only=True, slots=True)
class Labelled:
    """What one problem's pool gave."""

    preferences: list[Preference]
    num_right: int
    """Completions whose answer is right."""
    num_finished: int
    """Those of them that ended by themselves."""
    num_wrong: int


def label(
    prompt: Prompt, pool: Sequence[Completion], *, source: str, max_pairs: int, seed: int
) -> Labelled:
    """At most `max_pairs` preferences for one problem.

    Chosen: answers right and ended by itself. Rejected: answers wrong, ended or cut at
    the length limit. A right completion that was cut is neither: chosen, it would teach
    not to stop; rejected, that its answer is wrong. Equal completions count once.
    """
    verdicts = [answer_checker.is_correct(row.completion, prompt.answer) for row in pool]
    right = [row for row, correct in zip(pool, verdicts, strict=True) if correct]
    wrong = [row for row, correct in zip(pool, verdicts, strict=True) if not correct]
    finished = [row for row in right if row.finish_reason == "stop"]
    pairs = draw(distinct(finished), distinct(wrong), max_pairs=max_pairs, seed=seed)
    preferences = [
        Preference(
            id=prompt.id,
            prompt=prompt.prompt,
            prompt_ids=prompt.prompt_ids,
            chosen=chosen.completion,
            chosen_ids=chosen.completion_ids,
            rejected=rejected.completion,
            rejected_ids=rejected.completion_ids,
            probability=1.0,
            source=source,
        )
        for chosen, rejected in pairs
    ]
    return Labelled(
        preferences=preferences,
        num_right=len(right),
        num_finished=len(finished),
        num_wrong=len(wrong),
    )


def summarise(labelled: Sequence[Labelled]) -> dict[str, int | float]:
    """Problems by what became of them, pairs, and mean lengths in tokens (end token included).

    `problems_right_only_cut` have no pair because every right completion was cut.
    """
    pairs = [pair for problem in labelled for pair in problem.preferences]
    return {
        "problems": len(labelled),
        "problems_with_pairs": sum(bool(one.preferences) for one in labelled),
        "problems_all_correct": sum(one.num_wrong == 0 for one in labelled),
        "problems_all_wrong": sum(one.num_right == 0 for one in labelled),
        "problems_right_only_cut": sum(
            one.num_wrong > 0 and one.num_right > 0 and one.num_finished == 0 for one in labelled
        ),
        "pairs": len(pairs),
        "mean_length_chosen": _mean([len(pair.chosen_ids) for pair in pairs]),
        "mean_length_rejected": _mean([len(pair.rejected_ids) for pair in pairs]),
    }


def draw(
    chosen: Sequence[Completion], rejected: Sequence[Completion], *, max_pairs: int, seed: int
) -> list[tuple[Completion, Completion]]:
    """Different (chosen, rejected) pairs in random order, each completion used as evenly as can be.

    Both sides are shuffled and paired diagonally, ``(k mod c, (k + k div lcm(c, r)) mod r)``,
    which runs through all ``c r`` pairs once and repeats no completion before it must.
    """
    if not chosen or not rejected:
        return []
    stream = random.Random(seed)
    left, right = list(chosen), list(rejected)
    stream.shuffle(left)
    stream.shuffle(right)
    period = math.lcm(len(left), len(right))
    return [
        (left[k % len(left)], right[(k + k // period) % len(right)])
        for k in range(min(max_pairs, len(left) * len(right)))
    ]


def distinct(rows: Sequence[Completion]) -> list[Completion]:
    """The first of each group of completions with the same tokens."""
    return list({tuple(row.completion_ids): row for row in reversed(rows)}.values())[::-1]


def _mean(lengths: Sequence[int]) -> float:
    return round(sum(lengths) / len(lengths), 4) if lengths else 0.0
