"""Does a process model's score of this policy's answers hang on how they are cut into steps?"""

from collections.abc import Callable, Iterator, Sequence

from stages.models.process_head import Solution
from stages.records.completion import Completion
from stages.records.probe_value import ProbeValue
from stages.records.prompt import Prompt
from stages.rewards.probes import step_edits
from stages.rewards.probes.step_edits import Steps

DECIMALS = 5
"""A change below them is rounding."""
SIZES = ("split", "merged")
"""The same text: any change is a fault, so its size is told, not its direction."""


def values(
    problems: Sequence[tuple[Prompt, Sequence[Completion]]],
    cut: Callable[[Sequence[int]], list[list[int]]],
    score: Callable[[Sequence[Solution]], Sequence[float]],
    *,
    filler: Sequence[int],
    max_tokens: int,
) -> Iterator[ProbeValue]:
    """For each problem the share of edits that raise the score, and how far they move it.

    Args:
        problems: with the completions that are looked at.
        cut: a completion's tokens into steps.
        score: of each solution, its steps' scores as one.
        filler: the tokens of a step without content.
        max_tokens: an edited solution that is longer, with its prompt and a token more for each
            step, is left out.
    """
    edited = [
        (prompt, own) for prompt, pool in problems for own in _edited(pool, cut, filler) if own
    ]
    kept = [
        (
            prompt,
            {kind: steps for kind, steps in own.items() if _length(prompt, steps) <= max_tokens},
        )
        for prompt, own in edited
    ]
    solutions = [
        Solution(prompt_ids=prompt.prompt_ids, steps=steps)
        for prompt, own in kept
        for steps in own.values()
    ]
    scores = iter(score(solutions) if solutions else [])
    changes: dict[tuple[str, str], list[float]] = {}
    for prompt, own in kept:
        found = {kind: round(next(scores), DECIMALS) for kind in own}
        for kind, value in found.items():
            if kind != "plain" and "plain" in found:
                changes.setdefault((kind, prompt.id), []).append(value - found["plain"])
    for (kind, name), own in changes.items():
        raised = sum(change > 0 for change in own) / len(own)
        yield ProbeValue(probe=f"{kind}_raised", id=name, value=raised)
        told = [abs(change) for change in own] if kind in SIZES else own
        probe = f"{kind}_change" if kind in SIZES else f"{kind}_gain"
        yield ProbeValue(probe=probe, id=name, value=sum(told) / len(told))


def _edited(
    pool: Sequence[Completion],
    cut: Callable[[Sequence[int]], list[list[int]]],
    filler: Sequence[int],
) -> Iterator[dict[str, Steps]]:
    for row in pool:
        steps = cut(row.completion_ids)
        found = {
            "plain": steps,
            "inflated": step_edits.inflated(steps),
            "filler": step_edits.filler(steps, filler),
            "split": step_edits.split(steps),
            "merged": step_edits.merged(steps),
        }
        yield {kind: edit for kind, edit in found.items() if edit is not None}


def _length(prompt: Prompt, steps: Steps) -> int:
    return len(prompt.prompt_ids) + sum(len(step) + 1 for step in steps)
