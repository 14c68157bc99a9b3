"""Pools of completions joined with the prompts they answer, and with their scores."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from stages.records.completion import Completion
from stages.records.prompt import Prompt
from stages.records.score import Score


def by_problem(
    prompts: Iterable[Prompt], completions: Iterable[Completion]
) -> list[tuple[Prompt, list[Completion]]]:
    """Each prompt with its completions in the order of their index; prompts keep their order.

    Raises:
        ValueError: a completion of no prompt, a prompt without completions, problems
            with different numbers of completions, or an index missing or twice.
    """
    pools: dict[str, list[Completion]] = defaultdict(list)
    for completion in completions:
        pools[completion.id].append(completion)
    pairs = [(prompt, sorted(pools.pop(prompt.id, []), key=lambda row: row.index))
             for prompt in prompts]  # fmt: skip
    if pools:
        _refuse(f"completions of problem '{next(iter(pools))}', which is not among the prompts")
    if not pairs:
        _refuse("no prompt at all")
    num_samples = len(pairs[0][1])
    for prompt, pool in pairs:
        if not pool or [row.index for row in pool] != list(range(num_samples)):
            found = [row.index for row in pool]
            _refuse(f"indices {found} at problem '{prompt.id}' (the first has {num_samples})")
    return pairs


def scores(
    problems: Sequence[tuple[Prompt, list[Completion]]], rows: Iterable[Score]
) -> list[list[Score]]:
    """The scores of each completion of each problem, in the order of `problems`.

    Raises:
        ValueError: a completion without a row of scores, a row of no completion, or no number.
    """
    of_completion = {(row.id, row.index): row for row in rows}
    keys = [[(row.id, row.index) for row in pool] for _, pool in problems]
    expected = {key for pool in keys for key in pool}
    for key in sorted(expected ^ of_completion.keys()):
        kind = "no score" if key in expected else "a score of no completion"
        _refuse(f"{kind} at problem '{key[0]}', index {key[1]}")
    for key, row in of_completion.items():
        for name, score in [*row.scores.items(), *(("process", one) for one in row.steps or [])]:
            if not math.isfinite(score):
                raise ValueError(
                    f"Expected finite scores, found {score} by '{name}' at problem '{key[0]}', "
                    f"index {key[1]}. The model diverged: look at its training loss, lower its "
                    f"learning rate and rerun."
                )
    return [[of_completion[key] for key in pool] for pool in keys]


def distinct(pool: Sequence[Completion]) -> tuple[list[Completion], list[int]]:
    """The first of each group of equal completions, and for each completion its group.

    A small model repeats itself: of 16 samples of the default run's policies 3 to 7 differ, and
    what a model makes of a text has to be computed once.
    """
    groups: dict[tuple[int, ...], int] = {}
    places = [groups.setdefault(tuple(row.completion_ids), len(groups)) for row in pool]
    firsts = [pool[places.index(group)] for group in range(len(groups))]
    return firsts, places


def _refuse(found: str) -> None:
    raise ValueError(
        f"Expected a pool with the same number of completions, numbered from 0, for each of "
        f"its prompts, and a score of each where there are scores; found {found}. The files "
        f"come from different runs: rerun `dvc repro`, which makes them from one another."
    )
