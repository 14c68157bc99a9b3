"""Solutions in steps: the ends of steps, the choice of solutions to label, and their labels.

For a generated word problem, the truth of each step of an answer follows from the question. A step
is right if the solution up to and including it has no error:

- A line of working, `a + b = c`, is right when it carries out the next move of the question on the
  value so far, with the right result. White space does not count, and `b + a = c` is the same sum
  (so with `*`). Gains and losses may change places, as long as none passes a "times". A move that
  is skipped, repeated or joined with another makes the line wrong.
- A line that states the final answer is right when that is the answer, by the answer checker. It
  need not say how: so the one step of a guess is right exactly when the guess is.
- Any other line is wrong (words, a sum broken off), and so is a line after the answer.
- A step of several lines is right when all are; one without any is as right as the step before it.
- Whatever follows a wrong step is wrong: it builds on an error.

So wrong steps may lead to the right answer, but right steps never state a wrong one.

Step labels follow from how often a policy completed each prefix rightly (`label_solutions`). Wang
et al., "Math-Shepherd" (2024), https://arxiv.org/abs/2312.08935, section 3.3: a step is good so far
as it can lead to the right answer. With c of K completions right,

    hard estimation (eq. 3)   1 if c > 0 else 0
    soft estimation (eq. 4)   c / K

Departure: after the last step nothing is left to be completed, so its label is the answer
checker's verdict, which costs nothing and is not an estimate.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Literal, NamedTuple

from stages.records.pools import Completion, deduplicate
from stages.records.problems import Prompt
from stages.records.steps import Decode, PrefixCount, StepLabels, split_steps
from stages.rewards import answer_checker
from stages.rewards.final_answer import extract_answer
from stages.sources import word_problems
from stages.sources.word_problems import Move

Problems = Iterable[tuple[Prompt, Sequence[Completion]]]


_SUM = re.compile(r"(-?\d{1,9})([-+*])(\d{1,9})=(-?\d{1,9})", re.ASCII)


def true_step_labels(
    question: str, steps: Sequence[str], forms: answer_checker.Forms = None
) -> list[bool] | None:
    """Whether each step is right; None: `question` was not generated, so no truth is known."""
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
            elif extract_answer(line, forms) is not None:
                correct = stated = answer_checker.is_correct(line, answer, forms)
            else:
                done = _carried_out(line, value, todo)
                correct = done is not None
                if done is not None:
                    value = todo[done].result(value)
                    todo = [*todo[:done], *todo[done + 1 :]]
        right.append(correct)
    return right


def _carried_out(line: str, value: int, todo: Sequence[Move]) -> int | None:
    """Index of the move in `todo` that `line` carries out rightly on `value`, or None."""
    match = _SUM.fullmatch("".join(line.split()))
    if match is None:
        return None
    first, second, result = (int(match[group]) for group in (1, 3, 4))
    operands = [(first, second), (second, first)] if match[2] in "+*" else [(first, second)]
    for index, move in enumerate(todo):
        if index > 0 and "*" in (move.operator, todo[0].operator):
            break
        same = match[2] == move.operator and (value, move.operand) in operands
        if same and result == move.result(value):
            return index
    return None


class Solution(NamedTuple):
    """A completion of a problem in steps, not labelled yet."""

    prompt: Prompt
    row: StepLabels

    def prefixes(self) -> list[tuple[int, ...]]:
        """Tokens up to and including each step but the last: the prefixes that can be completed."""
        return [tuple(prefix) for prefix in accumulate(self.row.step_ids)][:-1]


def choose_solutions(
    problems: Problems, decode: Decode, separator: str, max_per_problem: int
) -> list[Solution]:
    """First `max_per_problem` different completions of each problem that were not truncated.

    A truncated one has no last step: neither its truth nor its label would mean anything.
    """
    chosen = []
    for prompt, pool in problems:
        # In the order of the draws: any other would favour the rare ones or the common ones.
        different, _ = deduplicate([row for row in pool if row.finish_reason == "stop"])
        chosen += [
            split_solution(prompt, row, decode, separator) for row in different[:max_per_problem]
        ]
    return chosen


def finished_solutions(problems: Problems, decode: Decode, separator: str) -> list[Solution]:
    """All completions that were not truncated, with duplicates, as the policy samples."""
    rows = [(prompt, row) for prompt, pool in problems for row in pool]
    return [
        split_solution(prompt, row, decode, separator)
        for prompt, row in rows
        if row.finish_reason == "stop"
    ]


def solution_prefixes(solutions: Iterable[Solution]) -> Iterator[tuple[Prompt, tuple[int, ...]]]:
    """The prefixes of all solutions, with their problems."""
    return ((solution.prompt, prefix) for solution in solutions for prefix in solution.prefixes())


def split_solution(prompt: Prompt, row: Completion, decode: Decode, separator: str) -> Solution:
    """One completion, split and checked; a step's text has no white space around it."""
    step_ids = split_steps(row.completion_ids, decode, separator)
    steps = [decode(ids).strip() for ids in step_ids]
    labels = StepLabels(
        id=prompt.id, index=row.index, prompt=prompt.prompt, prompt_ids=prompt.prompt_ids,
        steps=steps, step_ids=step_ids, labels=[None] * len(steps),
        num_completions=[0] * len(steps), source="none",
        true_labels=true_step_labels(prompt.question, steps, prompt.answer_forms),
        correct=answer_checker.solves_problem(prompt, row.completion),
    )  # fmt: skip
    return Solution(prompt, labels)


Kind = Literal["hard", "soft"]
Labelled = tuple[StepLabels, list[PrefixCount]]
"""A solution's row, and the counts of each step but the last; none if labels are the truth."""


def label_solutions(
    solutions: Iterable[Solution], counts: Iterable[PrefixCount] | None, kind: Kind
) -> list[Labelled]:
    """Solutions labelled by the counts of their prefixes; without counts by the truth."""
    if counts is None:
        return label_by_truth(solutions)
    by_prefix = {(count.id, tuple(count.prefix_ids)): count for count in counts}
    rows: list[Labelled] = []
    for solution in solutions:
        prefix_counts = [by_prefix[solution.prompt.id, prefix] for prefix in solution.prefixes()]
        rates = [count.num_right / count.num_completions for count in prefix_counts]
        assert solution.row.correct is not None, solution.row.id
        labels = rates if kind == "soft" else [float(rate > 0) for rate in rates]
        row = replace(
            solution.row,
            labels=[*labels, float(solution.row.correct)],
            num_completions=[*(count.num_completions for count in prefix_counts), 0],
            source="math_shepherd",
        )
        rows.append((row, prefix_counts))
    return rows


def label_by_truth(solutions: Iterable[Solution]) -> list[Labelled]:
    """Solutions labelled by the truth, which must be known."""
    rows: list[Labelled] = []
    for prompt, row in solutions:
        if row.true_labels is None:
            raise ValueError(
                f"problem '{prompt.id}': num_completions 0 asks for true step labels, which only "
                f"generated word problems have; found the question {prompt.question[:80]!r}. "
                f"Set num_completions to 1 or more."
            )
        assert None not in row.true_labels, prompt.id
        labels = [float(bool(right)) for right in row.true_labels]
        rows.append((replace(row, labels=labels, source="truth"), []))
    return rows


def unlabelled_rows(solutions: Iterable[Solution], have: Iterable[StepLabels]) -> list[StepLabels]:
    """Rows without labels, of the solutions that are not in `have`."""
    keys = {(row.id, row.index) for row in have}
    return [row for _, row in solutions if (row.id, row.index) not in keys]
