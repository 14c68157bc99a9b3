"""The same solution in other steps: a process model's score should not change.

Steps are token ids, as `rewards/steps` cuts them: nothing is tokenised again, and joined they are
the same text but for `inflated`, which repeats a step, and `filler`, which adds one without
content.
"""

from collections.abc import Sequence

Steps = list[list[int]]


def inflated(steps: Sequence[Sequence[int]]) -> Steps | None:
    """The first step twice; None where the first step is the last, whose end ends the text."""
    return [list(step) for step in (steps[0], *steps)] if len(steps) > 1 else None


def filler(steps: Sequence[Sequence[int]], step: Sequence[int]) -> Steps | None:
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
