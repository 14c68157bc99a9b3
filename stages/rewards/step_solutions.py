"""Solutions in steps: which of a pool are labelled, and what is asked about each."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards import answer_checker, word_problem_steps
from stages.rewards.preference_pairs import distinct
from stages.rewards.steps import split_steps


@dataclass(frozen=True, kw_only=True, slots=True)
class Solution:
    """A completion of a problem, in steps."""

    prompt: Prompt
    index: int
    """Of the completion in its pool."""
    step_ids: list[list[int]]
    steps: list[str]
    """Their texts, without the separator and other white space around them."""
    correct: bool
    """Whether the final answer is right, by the answer checker."""
    true_labels: list[bool] | None
    """Whether each step is right, where the problem was generated (`word_problem_steps`)."""

    def prefixes(self) -> list[tuple[int, ...]]:
        """The tokens up to and including each step but the last: those that can be completed."""
        whole = accumulate(self.step_ids, lambda before, step: before + step)
        return [tuple(prefix) for prefix in whole][:-1]


def choose(
    problems: Iterable[tuple[Prompt, Sequence[Completion]]],
    decode: Callable[[Sequence[int]], str],
    separator: str,
    max_per_problem: int,
) -> list[Solution]:
    """Of each problem the first `max_per_problem` different completions that ended by themselves.

    One that was cut has no last step: neither its truth nor its label would mean anything.
    """
    chosen = []
    for prompt, pool in problems:
        different = distinct([row for row in pool if row.finish_reason == "stop"])
        # In the order of the draws: any other would favour the rare ones or the common ones.
        different.sort(key=lambda row: row.index)
        chosen += [solution(prompt, row, decode, separator) for row in different[:max_per_problem]]
    return chosen


def finished(
    problems: Iterable[tuple[Prompt, Sequence[Completion]]],
    decode: Callable[[Sequence[int]], str],
    separator: str,
) -> list[Solution]:
    """Every completion that ended by itself, equal ones each for itself: as the policy samples."""
    return [
        solution(prompt, row, decode, separator)
        for prompt, pool in problems
        for row in pool
        if row.finish_reason == "stop"
    ]


def prefixes(solutions: Iterable[Solution]) -> Iterator[tuple[Prompt, tuple[int, ...]]]:
    """The prefixes of all solutions, with their problems."""
    return ((one.prompt, prefix) for one in solutions for prefix in one.prefixes())


def solution(
    prompt: Prompt, row: Completion, decode: Callable[[Sequence[int]], str], separator: str
) -> Solution:
    """One completion, split and checked."""
    step_ids = split_steps(row.completion_ids, decode, separator)
    steps = [decode(ids).strip() for ids in step_ids]
    return Solution(
        prompt=prompt,
        index=row.index,
        step_ids=step_ids,
        steps=steps,
        correct=answer_checker.is_correct(row.completion, prompt.answer),
        true_labels=word_problem_steps.truth(prompt.question, steps),
    )
