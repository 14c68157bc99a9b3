"""Labels from the answer checker's verdicts on a pool: pairs, demonstrations, outcomes.

A pair has a right and a wrong completion by the checker, which checks only the final answer: a
completion that reaches the right number by wrong steps counts as right. `flip_labels` makes labels
wrong on purpose, to measure how much noise a reward model tolerates.

Demonstrations are a policy's completions that the checker accepts: rejection-sampling fine-tuning
(Yuan et al. 2023, https://arxiv.org/abs/2308.01825), best of N by a verifier (RAFT, Dong et al.
2023, https://arxiv.org/abs/2304.06767). Departures: distinct means different tokens, where Yuan et
al. compare the equations; if a problem has more right completions than the limit, a random draw
selects among them, so that short ones are not preferred.

Outcomes train an outcome reward model. In a pool, a problem's completions are mostly right or
mostly wrong, so unweighted ones teach how hard the problem is, which is useless for a choice among
them (`algorithms/statistics/score_quality`). So a problem's right completions together weigh 1/2,
and its wrong ones 1/2; a problem with only one class, which teaches only a base rate, is left out
or weighs `one_class_weight` in all. The model learns P(right) for a prior of 1/2: a score to choose
by, which is too high in a pool that is mostly wrong.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from stages.records.pools import Completion, make_demonstration, make_preference
from stages.records.preferences import Outcome, Preference
from stages.records.problems import Demonstration, Prompt
from stages.rewards import answer_checker
from stages.seeding import derive_seed


class CheckedProblem(NamedTuple):
    """Completions of a problem with the answer checker's verdicts."""

    prompt: Prompt
    right: list[Completion]
    """Completions with a right final answer, also those that were truncated after it."""
    wrong: list[Completion]


def check_pool(prompt: Prompt, pool: Sequence[Completion]) -> CheckedProblem:
    """Verdicts on one problem's completions."""
    sides: dict[bool, list[Completion]] = {True: [], False: []}
    for row in pool:
        sides[answer_checker.solves_problem(prompt, row.completion)].append(row)
    return CheckedProblem(prompt=prompt, right=sides[True], wrong=sides[False])


def drop_repeats(rows: Sequence[Completion]) -> list[Completion]:
    """First of each set of completions with the same tokens, in the order of the sets' last ones.

    Later draws by a seed depend on this order.
    """
    return list({tuple(row.completion_ids): row for row in reversed(rows)}.values())[::-1]


class LabelledPairs(NamedTuple):
    """Preference pairs of a problem's pool, with the verdicts behind them."""

    preferences: list[Preference]
    checked: CheckedProblem


def label_pairs(
    prompt: Prompt, pool: Sequence[Completion], *, max_pairs: int, seed: int
) -> LabelledPairs:
    """Preference pairs of a problem, at most `max_pairs`.

    Chosen: right, and not truncated. Rejected: wrong, truncated or not. A right but truncated one
    is neither: chosen, it would teach not to stop; rejected, that its answer is wrong. Equal
    completions count once.
    """
    checked = check_pool(prompt, pool)
    finished = [row for row in checked.right if row.finish_reason == "stop"]
    right, wrong = drop_repeats(finished), drop_repeats(checked.wrong)
    pairs = draw_pairs(right, wrong, max_pairs=max_pairs, seed=seed)
    return LabelledPairs(
        [make_preference(prompt, *pair, 1.0, "verifier") for pair in pairs], checked
    )


def summarise_pairs(labelled: Sequence[LabelledPairs]) -> dict[str, int | float]:
    """Number of problems by result, number of pairs, and mean lengths in tokens (with the end)."""
    pairs = [pair for problem in labelled for pair in problem.preferences]
    checked = [pool.checked for pool in labelled]
    both = [pool for pool in checked if pool.right and pool.wrong]
    ends = [{row.finish_reason for row in pool.right} for pool in both]
    return {
        "problems": len(labelled),
        "problems_with_pairs": sum(bool(pool.preferences) for pool in labelled),
        "problems_all_correct": sum(not pool.wrong for pool in checked),
        "problems_all_wrong": sum(not pool.right for pool in checked),
        # Without pairs, since every right completion was truncated.
        "problems_right_only_cut": ends.count({"length"}),
        "pairs": len(pairs),
        "mean_length_chosen": _mean([len(pair.chosen_ids) for pair in pairs]),
        "mean_length_rejected": _mean([len(pair.rejected_ids) for pair in pairs]),
    }


def _mean(lengths: Sequence[int]) -> float:
    return round(sum(lengths) / len(lengths), 4) if lengths else 0.0


def draw_pairs(
    chosen: Sequence[Completion], rejected: Sequence[Completion], *, max_pairs: int, seed: int
) -> list[tuple[Completion, Completion]]:
    """Distinct (chosen, rejected) pairs in random order, with completions used equally often.

    Both sides are shuffled and paired diagonally, ``(k mod c, (k + k div lcm(c, r)) mod r)``,
    which runs through all ``c r`` pairs once and repeats no completion before it must.
    """
    stream = random.Random(seed)
    chosen, rejected = list(chosen), list(rejected)
    stream.shuffle(chosen)
    stream.shuffle(rejected)
    period = math.lcm(len(chosen), len(rejected))
    return [
        (chosen[k % len(chosen)], rejected[(k + k // period) % len(rejected)])
        for k in range(min(max_pairs, len(chosen) * len(rejected)))
    ]


def flip_labels(pairs: Sequence[Preference], percent: int, seed: int) -> list[Preference]:
    """Pairs in their order, `percent` % of them with the label 1 - p in place of p.

    The number is exact, halves rounded up. The flipped pairs are the first ones of a random order
    by `seed`, so those at 10 % are among those at 25 %: a curve over noise only adds flips.
    """
    order = np.random.default_rng(seed).permutation(len(pairs))
    wrong = set(order[: (len(pairs) * percent + 50) // 100].tolist())
    return [
        replace(pair, probability=1 - pair.probability) if number in wrong else pair
        for number, pair in enumerate(pairs)
    ]


def swap_sides(labelled: Sequence[LabelledPairs], percent: int, seed: int) -> list[LabelledPairs]:
    """Pairs, with chosen and rejected swapped in the `percent` % that `flip_labels` flips.

    At 50 %, the right completion is chosen exactly as often as the wrong one.
    """
    pairs = [pair for problem in labelled for pair in problem.preferences]
    flipped = flip_labels(pairs, percent, seed)
    swapped = iter([
        pair if flip is pair else replace(
            pair, chosen=pair.rejected, chosen_ids=pair.rejected_ids, rejected=pair.chosen,
            rejected_ids=pair.chosen_ids,
        )
        for pair, flip in zip(pairs, flipped, strict=True)
    ])  # fmt: skip
    return [
        problem._replace(preferences=[next(swapped) for _ in problem.preferences])
        for problem in labelled
    ]


def select_demonstrations(
    prompt: Prompt, pool: Sequence[Completion], *, max_kept: int, seed: int
) -> list[Demonstration]:
    """Demonstrations of a problem, at most `max_kept`.

    A truncated completion is left out, right or not: it would teach not to stop.
    """
    finished = drop_repeats([row for row in pool if row.finish_reason == "stop"])
    right = check_pool(prompt, finished).right
    if len(right) > max_kept:
        right = sorted(random.Random(seed).sample(right, max_kept), key=lambda row: row.index)
    return [make_demonstration(prompt, row) for row in right]


def summarise_demonstrations(
    selected: Sequence[Sequence[Demonstration]], num_completions: int
) -> dict[str, int | float]:
    """Numbers of problems, of those with demonstrations, and of demonstrations; their share."""
    num_selected = sum(len(rows) for rows in selected)
    return {
        "problems": len(selected),
        "problems_with_any": sum(map(bool, selected)),
        "kept": num_selected,
        "share": round(num_selected / num_completions, 6),
    }


def training_outcomes(
    checked: Sequence[CheckedProblem], *, max_per_problem: int, one_class_weight: float, seed: int
) -> list[list[Outcome]]:
    """Outcomes to train on, for each problem that has any; see `balance_outcomes`."""
    if not any(pool.right and pool.wrong for pool in checked):
        raise ValueError(
            f"expected problems with both a right and a wrong completion, found none of "
            f"{len(checked)}. Sample more of each (section sampling: num_samples, temperature, "
            f"max_new_tokens), or use problems that the policy sometimes solves."
        )
    problems = [balance_outcomes(pool, max_per_problem, one_class_weight, seed) for pool in checked]
    return [rows for rows in problems if rows]


def balance_outcomes(
    checked: CheckedProblem, max_per_problem: int, one_class_weight: float, seed: int
) -> list[Outcome]:
    """Outcomes of a problem, at most `max_per_problem`, drawn evenly from both sides if possible.

    Equal completions count once. If one side has fewer than half of the maximum, the other has
    more. `max_per_problem` is at least 2, since a problem needs both.
    """
    right, wrong = drop_repeats(checked.right), drop_repeats(checked.wrong)
    total = 1.0 if right and wrong else one_class_weight
    if not total:
        return []
    stream = random.Random(derive_seed(seed, checked.prompt.id))
    stream.shuffle(right)
    stream.shuffle(wrong)
    of_wrong = min(len(wrong), max(max_per_problem // 2, max_per_problem - len(right)))
    of_right = min(len(right), max_per_problem - of_wrong)
    share = total / (bool(right) + bool(wrong))
    return _outcomes(checked.prompt, (right[:of_right], share), (wrong[:of_wrong], share))


def heldout_outcomes(checked: Sequence[CheckedProblem]) -> list[list[Outcome]]:
    """Outcomes of every completion as the policy samples them, of equal weight within a problem."""
    outcomes: list[list[Outcome]] = []
    for pool in checked:
        total = len(pool.right) + len(pool.wrong)
        right, wrong = ((rows, len(rows) / total) for rows in (pool.right, pool.wrong))
        outcomes.append(_outcomes(pool.prompt, right, wrong))
    return outcomes


def _outcomes(
    prompt: Prompt, right: tuple[list[Completion], float], wrong: tuple[list[Completion], float]
) -> list[Outcome]:
    """Rows of both sides; each side comes with its total weight."""
    return [
        Outcome(id=prompt.id, prompt_ids=prompt.prompt_ids, completion_ids=row.completion_ids,
                right=is_right, weight=weight / len(rows))
        for is_right, (rows, weight) in ((True, right), (False, wrong))
        for row in rows
    ]  # fmt: skip
