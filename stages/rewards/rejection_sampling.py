"""Demonstrations out of a policy's own completions: those that the answer checker accepts.

Rejection-sampling fine-tuning (Yuan et al. 2023, https://arxiv.org/abs/2308.01825), best of N
by a verifier (RAFT, Dong et al. 2023, https://arxiv.org/abs/2304.06767). Departures: distinct
means different tokens, where Yuan et al. compare the equations; of a problem with more right
completions than are kept, which ones is drawn, so that short ones are not preferred.
"""

import random
from collections.abc import Sequence

from stages.records.pools import Completion
from stages.records.problems import Demonstration, Prompt
from stages.rewards import answer_checker
from stages.rewards.preference_pairs import distinct


def select(
    prompt: Prompt, pool: Sequence[Completion], *, max_kept: int, seed: int
) -> list[Demonstration]:
    """At most `max_kept` demonstrations of one problem, in the order of the pool.

    A completion that was cut is left out, right or not: it would teach not to stop.
    """
    right = [
        row
        for row in distinct([row for row in pool if row.finish_reason == "stop"])
        if answer_checker.is_correct(row.completion, prompt.answer)
    ]
    if len(right) > max_kept:
        right = sorted(random.Random(seed).sample(right, max_kept), key=lambda row: row.index)
    return [
        Demonstration(
            id=prompt.id,
            task=prompt.task,
            prompt=prompt.prompt,
            prompt_ids=prompt.prompt_ids,
            completion=row.completion,
            completion_ids=row.completion_ids,
        )
        for row in right
    ]


def summarise(
    selected: Sequence[Sequence[Demonstration]], num_completions: int
) -> dict[str, int | float]:
    """Problems, those that keep any, what is kept, and its share of all completions."""
    kept = sum(len(rows) for rows in selected)
    return {
        "problems": len(selected),
        "problems_with_any": sum(bool(rows) for rows in selected),
        "kept": kept,
        "share": round(kept / num_completions, 6),
    }
