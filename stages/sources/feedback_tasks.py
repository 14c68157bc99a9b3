"""Demonstrations of judging, criticising and revising, made from problems whose truth is known.

With them in its SFT mixture a small model can do what an instruction-tuned one does unasked:
say which of two answers is better, say what is wrong with one, write it again. The messages are
those that the stages of AI feedback send (`rewards/feedback`, style `short`); the replies are
right. Which problems are used for which task, and which mistakes stand in them, is drawn from a
stream of each problem and task.
"""

import random
from collections.abc import Iterator, Sequence

from pydantic import Field

from stages.params import Params
from stages.records.problems import Exchange, Problem
from stages.rewards.feedback.judge_prompt import OPTIONS, judge_message
from stages.rewards.feedback.principles_of_correctness import CORRECT
from stages.rewards.feedback.revision_prompt import critique_message, revision_message
from stages.seeding import derive
from stages.sources import word_problem_mistakes as mistakes
from stages.sources.word_problem_mistakes import Answer
from stages.sources.word_problem_text import Move, read

STYLE = "short"
GUESS_SHARE = 0.2
"""Of the pairs to judge: a bare guess against working. Length tells these apart, so the others are
of working against working."""
RIGHT_SHARE = 0.3
"""Of the answers to criticise and to revise."""


class MixtureConfig(Params):
    """Demonstrations of other tasks than solving, for each problem of the train split.

    0.5 is one for every other problem.
    """

    judge: float = Field(ge=0)
    """Which of two answers, one of them right, is better."""
    critique: float = Field(ge=0)
    """What is wrong with an answer."""
    revise: float = Field(ge=0)
    """The answer again, without its mistake."""
    max_prompt_tokens: int = Field(gt=0)
    """Longest prompt of these tasks, which quote answers."""

    @property
    def asks(self) -> bool:
        """Whether there are to be any."""
        return max(self.judge, self.critique, self.revise) > 0


def make(
    problems: Sequence[Problem], config: MixtureConfig, *, max_value: int, seed: int
) -> Iterator[Exchange]:
    """The examples of each task, task by task, in the order of the problems.

    Args:
        problems: generated word problems of the train split.
        config: how many.
        max_value: the source's: the largest value that a person would accept.
        seed: of the whole run.
    """
    makers = {"judge": _judge, "critique": _critique, "revise": _revise}
    for task, maker in makers.items():
        share = getattr(config, task)
        for problem in problems:
            rng = random.Random(derive(seed, "mixture", task, problem.id))
            for _ in range(int(share + rng.random())):
                message, reply = maker(rng, problem, max_value)
                yield Exchange(id=problem.id, task=task, message=message, reply=reply)


def _judge(rng: random.Random, problem: Problem, max_value: int) -> tuple[str, str]:
    start, moves = _chain(problem)
    right = mistakes.right(start, moves, max_value)
    guessed = rng.random() < GUESS_SHARE
    wrong = mistakes.wrong(rng, start, moves, max_value, guessed=guessed)
    better = rng.randrange(2)
    first, second = (right, wrong) if better == 0 else (wrong, right)
    principle = rng.choice(CORRECT).name
    message = judge_message(STYLE, problem.question, first.text, second.text, principle)
    return message, OPTIONS[better]


def _critique(rng: random.Random, problem: Problem, max_value: int) -> tuple[str, str]:
    answer = _answer(rng, problem, max_value)
    message = critique_message(STYLE, problem.question, answer.text, rng.choice(CORRECT))
    return message, answer.critique


def _revise(rng: random.Random, problem: Problem, max_value: int) -> tuple[str, str]:
    answer = _answer(rng, problem, max_value)
    message = revision_message(
        STYLE, problem.question, answer.text, answer.critique, rng.choice(CORRECT)
    )
    return message, mistakes.right(*_chain(problem), max_value).text


def _answer(rng: random.Random, problem: Problem, max_value: int) -> Answer:
    start, moves = _chain(problem)
    if rng.random() < RIGHT_SHARE:
        return mistakes.right(start, moves, max_value)
    return mistakes.wrong(rng, start, moves, max_value)


def _chain(problem: Problem) -> tuple[int, list[Move]]:
    chain = read(problem.question)
    if chain is None:
        raise ValueError(
            f"problem '{problem.id}': expected a question that word_problems tells, found "
            f"{problem.question!r:.80}: the truth of others is not known step by step"
        )
    return chain
