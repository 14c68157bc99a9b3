"""Does a process model's score of this policy's answers hang on how they are cut into steps?

Steps are token ids, as `rewards/step_solutions` cuts them: nothing is tokenised again, and joined
they are the same text but for `inflated`, which repeats a step, and `filler`, which adds one
without content.
"""

from collections.abc import Callable, Iterator, Sequence

from stages.models.process_head import Solution
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.studies.probe_catalogue import ProbeValue

Steps = list[list[int]]


def inflated(steps: Sequence[Sequence[int]]) -> Steps | None:
    """The first step twice; None where the first step is the last, whose end ends the text."""
    return [list(step) for step in (steps[0], *steps)] if len(steps) > 1 else None


def with_filler(steps: Sequence[Sequence[int]], step: Sequence[int]) -> Steps | None:
    """A step without content before the last one; None where there is only one."""
    *working, last = steps
    return [list(one) for one in (*working, step, last)] if working else None


def split(steps: Sequence[Sequence[int]]) -> Steps | None:
    """Every step but the last cut in the middle; None where none of them has two tokens."""
    *working, last = steps
    if not any(len(step) > 1 for step in working):
        return None
    halves = [half for step in working for half in (step[: len(step) // 2], step[len(step) // 2 :])]
    return [list(half) for half in (*halves, last) if half]


def merged(steps: Sequence[Sequence[int]]) -> Steps | None:
    """The first two steps as one; None where there are not three."""
    if len(steps) < 3:
        return None
    first, second, *rest = steps
    return [[*first, *second], *(list(step) for step in rest)]


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
            "inflated": inflated(steps),
            "filler": with_filler(steps, filler),
            "split": split(steps),
            "merged": merged(steps),
        }
        yield {kind: edit for kind, edit in found.items() if edit is not None}


def _length(prompt: Prompt, steps: Steps) -> int:
    return len(prompt.prompt_ids) + sum(len(step) + 1 for step in steps)
