import random
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.rewards.answer_checker import is_correct
from stages.sources import word_problems
from stages.sources.word_problems import Move, WordProblemsConfig

MOVES = st.builds(Move, st.sampled_from("+-*"), st.integers(0, 199))


@given(st.integers(0, 199), st.lists(MOVES, min_size=1, max_size=5), st.integers(0, 10_000))
def test_what_was_told_is_read(start, moves, seed):
    question = word_problems.write_question(random.Random(seed), start, moves)
    assert word_problems.read_question(question) == (start, moves)


def test_a_question_worked_by_hand():
    question = "Anna has 3 apples. She buys 4 more. Then Anna has 2 times as many. She sells 5. "
    start, moves = word_problems.read_question(question + "How many apples now?")
    assert (start, moves) == (3, [Move("+", 4), Move("*", 2), Move("-", 5)])
    assert word_problems.chain_values(start, moves) == [3, 7, 14, 9]


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
    assert word_problems.read_question(question) is None


WORD_PROBLEM_WORKING_MOVES = [Move("+", 4), Move("*", 2), Move("-", 5)]


def test_every_move_is_one_line_and_the_last_value_the_answer():
    assert (
        word_problems.write_working(3, WORD_PROBLEM_WORKING_MOVES, max_value=30)
        == "3 + 4 = 7\n7 * 2 = 14\n14 - 5 = 9\n#### 9"
    )


def test_a_slip_is_carried_on():
    text = word_problems.write_working(3, WORD_PROBLEM_WORKING_MOVES, max_value=30, slip=(0, 2))
    assert text == "3 + 4 = 9\n9 * 2 = 18\n18 - 5 = 13\n#### 13"


def test_a_misreading_adds_where_it_should_multiply():
    text = word_problems.write_working(3, WORD_PROBLEM_WORKING_MOVES, max_value=30, misread=True)
    assert text == "3 + 4 = 7\n7 + 2 = 9\n9 - 5 = 4\n#### 4"


@pytest.mark.parametrize(("delta", "result"), [(-10, 0), (10, 17)])
def test_results_stay_in_the_range_that_a_person_would_accept(delta, result):
    text = word_problems.write_working(
        3, WORD_PROBLEM_WORKING_MOVES[:1], max_value=17, slip=(0, delta)
    )
    assert text == f"3 + 4 = {result}\n#### {result}"


SETTINGS = {
    "kind": "word_problems",
    "num_problems": 1500,
    "max_value": 120,
    "guess_share": 0.33,
    "slip_share": 0.2,
    "misconception_share": 0.5,
}
STEP = re.compile(r"(\d+) ([-+*]) (\d+) = (\d+)")
SOLVE = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}


def generate(seed=0, **changes):
    return list(word_problems.generate_problems(WordProblemsConfig(**SETTINGS | changes), seed))


PROBLEMS = generate()


def read(question):
    """The start value and the moves that the text tells."""
    start, *moves = re.findall(r"\d+", question)
    sentences = question.split(". ")[1:]
    kinds = [
        "*" if "times as many" in s else "-" if re.search("gives|loses|sells", s) else "+"
        for s in sentences
        if re.search(r"\d", s)
    ]
    return int(start), list(zip(kinds, map(int, moves), strict=True))


def worked(problem):
    return [(int(a), op, int(b), int(c)) for a, op, b, c in STEP.findall(problem.solution)]


def test_questions_and_ids_are_distinct():
    assert len({problem.question for problem in PROBLEMS}) == 1500
    assert len({problem.id for problem in PROBLEMS}) == 1500


def test_they_are_a_function_of_the_seed_and_more_do_not_change_the_first():
    assert generate(num_problems=50) == PROBLEMS[:50]
    assert generate(num_problems=50) == generate(num_problems=50)
    assert generate(1, num_problems=50) != PROBLEMS[:50]


def test_the_text_tells_the_gold_answer_in_two_to_four_steps_within_the_range():
    for problem in PROBLEMS:
        value, moves = read(problem.question)
        assert 2 <= len(moves) <= 4
        for operator, operand in moves:
            value = SOLVE[operator](value, operand)
            assert 0 <= value <= 120
        assert str(value) == problem.answer


def test_without_faults_every_demonstration_works_to_the_gold_answer():
    for problem in generate(guess_share=0.0, slip_share=0.0, misconception_share=0.0):
        assert is_correct(problem.solution, problem.answer)
        start, moves = read(problem.question)
        steps = worked(problem)
        assert [(op, b) for _, op, b, _ in steps] == moves
        assert steps[0][0] == start
        for a, operator, b, result in steps:
            assert SOLVE[operator](a, b) == result
        assert all(first[3] == second[0] for first, second in pairwise(steps))


def test_shares_are_near_the_configured_ones():
    guesses = [problem for problem in PROBLEMS if not worked(problem)]
    assert len(guesses) / 1500 == pytest.approx(0.33, abs=0.04)
    rest = [problem for problem in PROBLEMS if worked(problem)]
    times = [p for p in rest if any(op == "*" for op, _ in read(p.question)[1])]
    # Misread problems may leave the range, and be cut back to it, without a slip.
    others = [problem for problem in rest if problem not in times]
    slips = [p for p in others if any(SOLVE[op](a, b) != c for a, op, b, c in worked(p))]
    assert len(slips) / len(others) == pytest.approx(0.2, abs=0.05)
    misread = [p for p in times if not any(op == "*" for _, op, _, _ in worked(p))]
    assert len(misread) / len(times) == pytest.approx(0.5, abs=0.06)


def test_the_misconception_reads_times_as_more_and_nothing_else():
    for problem in generate(guess_share=0.0, slip_share=0.0, misconception_share=1.0):
        _, moves = read(problem.question)
        expected = [("+" if op == "*" else op, operand) for op, operand in moves]
        shown = [(op, b) for _, op, b, _ in worked(problem)]
        assert shown == expected
        if not any(op == "*" for op, _ in moves):
            assert is_correct(problem.solution, problem.answer)


def test_values_in_demonstrations_stay_in_range_even_after_a_slip():
    for problem in PROBLEMS:
        numbers = [int(n) for n in re.findall(r"\d+", problem.solution)]
        assert all(0 <= n <= 130 for n in numbers)


def test_guesses_are_an_answer_alone_and_sometimes_right():
    problems = generate(guess_share=1.0)
    assert all(re.fullmatch(r"#### \d+", problem.solution) for problem in problems)
    right = sum(is_correct(problem.solution, problem.answer) for problem in problems)
    assert right / 1500 == pytest.approx(1 / 11, abs=0.03)
