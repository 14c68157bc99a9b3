"""Reading a question is the inverse of telling it."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.sources import word_problem_text
from stages.sources.word_problem_text import Move

MOVES = st.builds(Move, st.sampled_from("+-*"), st.integers(0, 199))


@given(st.integers(0, 199), st.lists(MOVES, min_size=1, max_size=5), st.integers(0, 10_000))
def test_what_was_told_is_read(start, moves, seed):
    told = word_problem_text.tell(random.Random(seed), start, moves)
    assert word_problem_text.read(told) == (start, moves)


def test_a_question_worked_by_hand():
    question = "Anna has 3 apples. She buys 4 more. Then Anna has 2 times as many. She sells 5. "
    start, moves = word_problem_text.read(question + "How many apples now?")
    assert (start, moves) == (3, [Move("+", 4), Move("*", 2), Move("-", 5)])
    assert word_problem_text.values(start, moves) == [3, 7, 14, 9]


@pytest.mark.parametrize(
    "question",
    [
        "",
        "What is 3 + 4?",
        "Anna has 3 apples. How many apples now?",  # nothing happens
        "Anna has 3 apples. She buys 4 more.",  # nothing is asked
        "Anna has 3 apples. She buys 4 more. How many pears now?",
        "Anna has 3 apples. He buys 4 more. How many apples now?",
        "Anna has 3 apples. Then Ben has 2 times as many. How many apples now?",
        "Anna has 3 apples. She eats 2. How many apples now?",
        "Zoe has 3 apples. She buys 4 more. How many apples now?",
        "Anna has 3 apples. She buys many more. How many apples now?",
    ],
)
def test_another_question_is_not_read(question):
    assert word_problem_text.read(question) is None
