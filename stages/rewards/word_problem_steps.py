r"""The truth of each step of an answer to a generated word problem, from its question alone.

A step is right when the solution up to and including it is free of errors:

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
from collections.abc import Sequence

from stages.rewards import answer_checker
from stages.sources import word_problems
from stages.sources.word_problems import Move

_SUM = re.compile(r"(-?\d{1,9})([-+*])(\d{1,9})=(-?\d{1,9})", re.ASCII)


def truth(question: str, steps: Sequence[str]) -> list[bool] | None:
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
