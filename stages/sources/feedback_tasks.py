"""Demonstrations of judging, criticising and revising, from problems with known solutions.

With them in its SFT mixture a small model can do what an instruction-tuned one already can: choose
the better of two answers, criticise an answer, revise it. The messages are those of the stages of
AI feedback (`rewards/feedback`, style `short`); the replies are right. A random stream for each
problem and task draws whether the problem is used and the mistakes. The mistakes are those of the
demonstrations (`word_problems`), which a policy that imitates them also makes.
"""

import random
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

from pydantic import Field

from stages.config import Params
from stages.records.problems import Exchange, Problem
from stages.rewards.feedback import prompts
from stages.rewards.feedback.principles import CORRECT
from stages.seeding import derive_seed
from stages.sources.word_problems import GUESSES, SLIPS, Move, read_question, write_working


class CritiquedAnswer(NamedTuple):
    """An answer to a problem, and its critique."""

    text: str
    critique: str
    """Critique by someone who knows the truth, of only the first mistake."""


NO_WORKING = "No working."
ALL_RIGHT = "All lines are right."


def wrong_answer(
    rng: random.Random, start: int, moves: Sequence[Move], max_value: int, *,
    guessed: bool | None = None,
) -> CritiquedAnswer:  # fmt: skip
    """An answer with one mistake that leads to a wrong result; each possible kind equally often.

    `guessed` True: a guess; False: working with a mistake in it; None: any.
    """
    work = partial(write_working, start, moves, max_value=max_value)
    truth = _result(work())
    values = [min(max(int(truth) + delta, 0), max_value) for delta in GUESSES]
    guesses = [CritiquedAnswer(f"#### {value}", NO_WORKING) for value in values]
    slips = [
        CritiquedAnswer(work(slip=slip), f"Line {slip[0] + 1} is wrong.")
        for slip in product(range(len(moves)), SLIPS)
    ]
    times = [line for line, move in enumerate(moves, start=1) if move.operator == "*"]
    misreadings = [
        CritiquedAnswer(work(misread=True), f"Line {line} misreads.") for line in times[:1]
    ]
    kinds = [] if guessed is False else [guesses]
    kinds += [] if guessed else [slips, misreadings]
    wrong_ones = [[answer for answer in kind if _result(answer.text) != truth] for kind in kinds]
    return rng.choice(rng.choice([kind for kind in wrong_ones if kind]))


def _result(answer: str) -> str:
    return answer.rpartition("#### ")[2]


STYLE = "short"
GUESS_SHARE = 0.2
"""Share of the pairs to judge with a bare guess against working. Their length gives the answer
away, so all other pairs are of working against working."""
RIGHT_SHARE = 0.3
"""Share of right answers among those to criticise and to revise."""


class MixtureConfig(Params):
    """Number of demonstrations of other tasks per problem of the train split.

    0.5: one for every second problem.
    """

    judge: float = Field(ge=0)
    """Choice of the better of two answers, one of which is right."""
    critique: float = Field(ge=0)
    revise: float = Field(ge=0)
    max_prompt_tokens: int = Field(gt=0)
    """Limit of the prompts of these tasks, which quote answers."""


def make_exchanges(
    problems: Sequence[Problem], config: MixtureConfig, *, max_value: int, seed: int
) -> Iterator[Exchange]:
    """Examples, task by task, in the order of the generated `problems`.

    `max_value`: of the source, the largest value that a person would accept.
    """
    for task in ("judge", "critique", "revise"):
        for problem in problems:
            rng = random.Random(derive_seed(seed, "mixture", task, problem.id))
            for _ in range(int(getattr(config, task) + rng.random())):
                message, reply = _example(task, rng, problem, max_value)
                yield Exchange(id=problem.id, task=task, message=message, reply=reply)


def _example(task: str, rng: random.Random, problem: Problem, max_value: int) -> tuple[str, str]:
    """A message of this task and the right reply to it."""
    chain = read_question(problem.question)
    if chain is None:
        raise ValueError(
            f"problem '{problem.id}': expected a question that word_problems tells, found "
            f"{problem.question!r:.80}: the steps of others are not known"
        )
    right = CritiquedAnswer(write_working(*chain, max_value=max_value), ALL_RIGHT)
    if task == "judge":
        guessed = rng.random() < GUESS_SHARE
        pair = [right.text, wrong_answer(rng, *chain, max_value, guessed=guessed).text]
        better = rng.randrange(2)
        first, second = pair[better], pair[1 - better]
        principle = rng.choice(CORRECT).name
        message = prompts.judge_message(STYLE, problem.question, first, second, principle)
        return message, prompts.OPTIONS[better]
    is_right = rng.random() < RIGHT_SHARE
    text, critique = right if is_right else wrong_answer(rng, *chain, max_value)
    principle = rng.choice(CORRECT)
    if task == "critique":
        return prompts.critique_message(STYLE, problem.question, text, principle), critique
    message = prompts.revision_message(STYLE, problem.question, text, critique, principle)
    return message, right.text
