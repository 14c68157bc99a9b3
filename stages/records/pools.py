"""Pools of completions joined with the prompts they answer."""

from collections import defaultdict
from collections.abc import Iterable

from stages.records.completion import Completion
from stages.records.prompt import Prompt


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


def _refuse(found: str) -> None:
    raise ValueError(
        f"Expected a pool with the same number of completions, numbered from 0, for each of "
        f"its prompts; found {found}. Prompts and pool come from different runs: rerun "
        f"`dvc repro`, which samples the pool again."
    )
