import pytest

from stages.sources import word_problem_working as working
from stages.sources.word_problem_text import Move
from stages.sources.word_problem_working import Slip

MOVES = [Move("+", 4), Move("*", 2), Move("-", 5)]


def test_every_move_is_one_line_and_the_last_value_the_answer():
    assert working.write(3, MOVES, max_value=30) == "3 + 4 = 7\n7 * 2 = 14\n14 - 5 = 9\n#### 9"


def test_a_slip_is_carried_on():
    text = working.write(3, MOVES, max_value=30, slip=Slip(0, 2))
    assert text == "3 + 4 = 9\n9 * 2 = 18\n18 - 5 = 13\n#### 13"


def test_a_misreading_adds_where_it_should_multiply():
    text = working.write(3, MOVES, max_value=30, misread=True)
    assert text == "3 + 4 = 7\n7 + 2 = 9\n9 - 5 = 4\n#### 4"


@pytest.mark.parametrize(("delta", "result"), [(-10, 0), (10, 17)])
def test_results_stay_in_the_range_that_a_person_would_accept(delta, result):
    text = working.write(3, MOVES[:1], max_value=17, slip=Slip(0, delta))
    assert text == f"3 + 4 = {result}\n#### {result}"


def test_a_guess_has_no_working():
    assert working.guess(9) == "#### 9"
