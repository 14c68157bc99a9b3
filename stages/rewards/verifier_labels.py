"""What the answer checker's verdicts on a problem's pool teach: pairs, and demonstrations.

The label of a pair of a right and a wrong completion is the checker's, so it is about the final
answer only: a completion that reaches the right number by wrong steps counts as right. Labels can
be made wrong on purpose (`flip_labels`), to measure how much noise a reward model bears.

Demonstrations are a policy's own completions that the checker accepts: rejection-sampling
fine-tuning (Yuan et al. 2023, https://arxiv.org/abs/2308.01825), best of N by a verifier (RAFT,
Dong et al. 2023, https://arxiv.org/abs/2304.06767). Departures: distinct means different tokens,
where Yuan et al. compare the equations; of a problem with more right completions than are kept,
which ones is drawn, so that short ones are not preferred.
"""

import dataclasses
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stages.records.pools import Completion
from stages.records.preferences import Preference
from stages.records.problems import Demonstration, Prompt
from stages.rewards import answer_checker


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledPairs:
    """What one problem's pool gave."""

    preferences: list[Preference]
    num_right: int
    """Completions whose answer is right."""
    num_finished: int
    """Those of them that ended by themselves."""
    num_wrong: int


def label_pairs(
    prompt: Prompt, pool: Sequence[Completion], *, source: str, max_pairs: int, seed: int
) -> LabelledPairs:
    """At most `max_pairs` preferences for one problem.

    Chosen: answers right and ended by itself. Rejected: answers wrong, ended or cut at
    the length limit. A right completion that was cut is neither: chosen, it would teach
    not to stop; rejected, that its answer is wrong. Equal completions count once.
    """
    verdicts = [answer_checker.is_correct(row.completion, prompt.answer) for row in pool]
    right = [row for row, correct in zip(pool, verdicts, strict=True) if correct]
    wrong = [row for row, correct in zip(pool, verdicts, strict=True) if not correct]
    finished = [row for row in right if row.finish_reason == "stop"]
    pairs = draw_pairs(distinct(finished), distinct(wrong), max_pairs=max_pairs, seed=seed)
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
    return LabelledPairs(
        preferences=preferences,
        num_right=len(right),
        num_finished=len(finished),
        num_wrong=len(wrong),
    )


def summarise_pairs(labelled: Sequence[LabelledPairs]) -> dict[str, int | float]:
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


def draw_pairs(
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


def select_demonstrations(
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


def summarise_demonstrations(
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


def flip_labels(pairs: Sequence[Preference], percent: int, seed: int) -> list[Preference]:
    """The pairs in their order, `percent` of 100 with the label p turned into 1 - p.

    An exact number, halves rounded up. The pairs flipped are the first of one order drawn from
    `seed`, so those of 10 per cent are among those of 25: a curve over noise adds, never redraws.

    Raises:
        ValueError: `percent` is not one.
    """
    if not 0 <= percent <= 100:
        raise ValueError(
            f"expected a whole per cent of labels to flip, 0 to 100, found {percent}: change "
            f"`flip_percent` of the preset"
        )
    order = np.random.default_rng(seed).permutation(len(pairs))
    wrong = set(order[: (len(pairs) * percent + 50) // 100].tolist())
    return [
        dataclasses.replace(pair, probability=1 - pair.probability) if number in wrong else pair
        for number, pair in enumerate(pairs)
    ]
