"""Solutions in steps: where a step ends, which of a pool are labelled, and which steps are right.

The truth of each step of an answer to a generated word problem follows from its question alone. A
step is right when the solution up to and including it is free of errors:

- A line of working, `a + b = c`, is right when it carries out the next move of the question on
  the value so far, with the right result. White space does not count, and `b + a = c` is the
  same sum (so with `*`). Gains and losses may change places, as long as none passes a "times":
  that is another order of one sum. A move that is skipped, repeated or joined with another
  makes the line wrong.
- A line that states the final answer is right when that is the answer, by the answer checker.
  It need not say how: an answer without working, or with the last moves done in one's head, has
  no error in it; so the one step of a guess is right exactly when the guess is.
- Any other line is wrong (words, a sum broken off), and so is a line after the answer.
- A step of several lines is right when all of them are; one without any is as right as the
  step before it.
- Whatever follows a wrong step is wrong: it builds on an error.

So a solution with the right answer may have wrong steps, but not the reverse: if all are
right and the last states an answer, the answer is right.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards import answer_checker
from stages.rewards.verifier_labels import distinct
from stages.sources import word_problems
from stages.sources.word_problems import Move


def split_steps(
    token_ids: Sequence[int], decode: Callable[[Sequence[int]], str], separator: str
) -> list[list[int]]:
    r"""Token ids of each step; joined they are `token_ids`.

    A step ends with the token that completes `separator` in the text since the step's start,
    even if that token goes on beyond it (`\n\nSo`): a token is never cut in two, and nothing is
    tokenised again. A step of white space alone belongs to the step before it; at the very
    start, where there is none, to the one that follows. So does the end-of-sequence token,
    whose text is empty, where it stands alone behind a separator.

    Args:
        token_ids: a completion as sampled.
        decode: tokens to text without special tokens.
        separator: what stands between two steps, for example a newline.

    Raises:
        ValueError: the separator is empty.
    """
    if not separator:
        raise ValueError(
            "expected a separator of at least one character between steps, found an empty one: "
            r'set `separator`, for example "\n"'
        )
    steps: list[list[int]] = []
    current: list[int] = []
    for token_id in token_ids:
        current.append(token_id)
        text = decode(current)
        # At the start nothing stands before a blank step: it waits for the text that follows.
        if separator in (text if steps else text.lstrip()):
            _close(steps, current, text)
            current = []
    if current:
        _close(steps, current, decode(current))
    return steps


def _close(steps: list[list[int]], ids: list[int], text: str) -> None:
    if steps and not text.strip():
        steps[-1] += ids
    else:
        steps.append(ids)


_SUM = re.compile(r"(-?\d{1,9})([-+*])(\d{1,9})=(-?\d{1,9})", re.ASCII)


def step_truth(question: str, steps: Sequence[str]) -> list[bool] | None:
    """Whether each step is right; None where `question` is no generated one: no truth is known."""
    chain = word_problems.read_question(question)
    if chain is None:
        return None
    value, todo = chain
    answer = str(word_problems.chain_values(value, todo)[-1])
    right: list[bool] = []
    stated, correct = False, True
    for step in steps:
        for line in filter(None, map(str.strip, step.splitlines())):
            if not correct:
                break
            if stated:
                correct = False
            elif answer_checker.extract(line) is not None:
                correct = stated = answer_checker.is_correct(line, answer)
            else:
                done = _carried_out(line, value, todo)
                correct = done is not None
                if done is not None:
                    value = todo[done].result(value)
                    todo = [*todo[:done], *todo[done + 1 :]]
        right.append(correct)
    return right


def first_error(right: Sequence[bool]) -> int:
    """The first step that is not right, from 0; -1 where all are."""
    return next((index for index, one in enumerate(right) if not one), -1)


def _carried_out(line: str, value: int, todo: Sequence[Move]) -> int | None:
    """Which of the moves to do `line` carries out on `value` rightly, None when it does not."""
    found = _SUM.fullmatch("".join(line.split()))
    if found is None:
        return None
    operator, result = found[2], int(found[4])
    left, right = int(found[1]), int(found[3])
    operands = [(left, right), (right, left)] if operator in "+*" else [(left, right)]
    for index, move in enumerate(todo):
        if index > 0 and "*" in (move.operator, todo[0].operator):
            break
        if (
            operator == move.operator
            and (value, move.operand) in operands
            and result == move.result(value)
        ):
            return index
    return None


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
    """Whether each step is right, where the problem was generated (`step_truth`)."""

    def prefixes(self) -> list[tuple[int, ...]]:
        """The tokens up to and including each step but the last: those that can be completed."""
        whole = accumulate(self.step_ids, lambda before, step: before + step)
        return [tuple(prefix) for prefix in whole][:-1]


def choose_solutions(
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
        true_labels=step_truth(prompt.question, steps),
    )
