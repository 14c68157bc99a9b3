import random
from collections import Counter

import pytest

from stages.rewards.answer_checker import is_correct
from stages.rewards.word_problem_steps import first_error, truth
from stages.sources import word_problem_mistakes as mistakes
from stages.sources import word_problem_text, word_problems
from stages.sources.word_problem_text import Move

CONFIG = word_problems.Config(
    kind="word_problems",
    num_problems=300,
    max_value=30,
    guess_share=0.0,
    slip_share=0.0,
    misconception_share=0.0,
)
PROBLEMS = list(word_problems.problems(CONFIG, 0))
MOVES = [Move("+", 4), Move("*", 2), Move("-", 5)]


def kind(critique: str) -> str:
    return critique.rstrip(".").split()[-1]


def test_right_answers_are_right():
    for problem in PROBLEMS:
        start, moves = word_problem_text.read(problem.question)
        answer = mistakes.right(start, moves, 30)
        assert answer.right
        assert is_correct(answer.text, problem.answer)


def test_a_guess_or_working_can_be_asked_for():
    rng = random.Random(0)
    for guessed in (True, False):
        for _ in range(50):
            answer = mistakes.wrong(rng, 3, MOVES, 30, guessed=guessed)
            assert (answer.critique == mistakes.NO_WORKING) == guessed
            assert answer.text != "#### 9"


def test_wrong_answers_are_wrong_and_the_critique_names_the_first_wrong_line():
    """Against the truth of each step, which is computed from the question alone."""
    rng = random.Random(0)
    for problem in PROBLEMS:
        start, moves = word_problem_text.read(problem.question)
        for _ in range(5):
            answer = mistakes.wrong(rng, start, moves, 30)
            assert not answer.right
            assert not is_correct(answer.text, problem.answer)
            steps = answer.text.splitlines()
            if len(steps) == 1:
                assert answer.critique == mistakes.NO_WORKING
                continue
            line = first_error(truth(problem.question, steps)) + 1
            assert answer.critique in (f"Line {line} is wrong.", f"Line {line} misreads.")
            misread = (
                moves[line - 1].operator == "*"
                and f" + {moves[line - 1].operand} =" in (steps[line - 1])
            )
            assert misread == (kind(answer.critique) == "misreads")


def test_each_kind_of_mistake_is_as_frequent():
    rng = random.Random(1)
    drawn = Counter(kind(mistakes.wrong(rng, 3, MOVES, 30).critique) for _ in range(3000))
    assert set(drawn) == {"working", "wrong", "misreads"}
    # Standard deviation 26: five of them.
    assert all(abs(count - 1000) < 130 for count in drawn.values())


def test_a_mistake_without_consequence_is_none():
    """2 times 2 is 2 more than 2: nobody can see the misreading."""
    rng = random.Random(2)
    moves = [Move("*", 2), Move("+", 3)]
    drawn = {kind(mistakes.wrong(rng, 2, moves, 30).critique) for _ in range(200)}
    assert drawn == {"working", "wrong"}


@pytest.mark.parametrize("value", [0, 30])
def test_there_is_a_wrong_answer_at_the_ends_of_the_range(value):
    moves = [Move("-", 5), Move("+", value)]
    for seed in range(20):
        answer = mistakes.wrong(random.Random(seed), 5, moves, 30)
        assert not is_correct(answer.text, str(value))
