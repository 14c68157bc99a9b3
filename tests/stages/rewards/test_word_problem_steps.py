"""The truth of each step, on questions worked by hand and on every generated one."""

import pytest

from stages.rewards import answer_checker
from stages.rewards.word_problem_steps import first_error, truth
from stages.sources import word_problems
from stages.sources.word_problems import Config

TIMES = "Anna has 3 apples. She buys 4 more. Then Anna has 2 times as many. She sells 5. "
TIMES += "How many apples now?"  # 3, 7, 14, 9
PLUS = "Anna has 3 apples. She buys 4 more. She finds 2 more. How many apples now?"  # 3, 7, 9
SETTINGS = {
    "kind": "word_problems",
    "num_problems": 300,
    "max_value": 30,
    "guess_share": 0.0,
    "slip_share": 0.0,
    "misconception_share": 0.0,
}


@pytest.mark.parametrize(
    ("question", "steps", "expected"),
    [
        (TIMES, ["3 + 4 = 7", "7 * 2 = 14", "14 - 5 = 9", "#### 9"], [1, 1, 1, 1]),
        (TIMES, ["3+4 =7", " 7 *2= 14 ", "14 - 5 = 9", "####9"], [1, 1, 1, 1]),
        (TIMES, ["4 + 3 = 7", "2 * 7 = 14", "14 - 5 = 9", "#### 9"], [1, 1, 1, 1]),
        (TIMES, ["3 + 4 = 7", "7 * 2 = 14", "5 - 14 = 9", "#### 9"], [1, 1, 0, 0]),
        # the misconception: 2 more in place of 2 times
        (TIMES, ["3 + 4 = 7", "7 + 2 = 9", "9 - 5 = 4", "#### 4"], [1, 0, 0, 0]),
        # a slip that a second one repairs: the answer is right, the steps are not
        (TIMES, ["3 + 4 = 8", "8 * 2 = 14", "14 - 5 = 9", "#### 9"], [0, 0, 0, 0]),
        # merged steps, and working left out
        (TIMES, ["3 + 4 = 7\n7 * 2 = 14", "14 - 5 = 9\n#### 9"], [1, 1]),
        (TIMES, ["3 + 4 = 7\n7 * 2 = 15", "14 - 5 = 9\n#### 9"], [0, 0]),
        (TIMES, ["3 + 4 * 2 - 5 = 9", "#### 9"], [0, 0]),
        (TIMES, ["#### 9"], [1]),
        (TIMES, ["#### 8"], [0]),
        (TIMES, ["3 + 4 = 7", "7 * 2 = 14", "#### 9"], [1, 1, 1]),
        (TIMES, ["7 * 2 = 14", "14 - 5 = 9", "#### 9"], [0, 0, 0]),
        # no move passes a "times"; gains and losses may change places
        (TIMES, ["3 * 2 = 6", "6 + 4 = 10"], [0, 0]),
        (TIMES, ["3 - 5 = -2"], [0]),
        (PLUS, ["3 + 2 = 5", "5 + 4 = 9", "#### 9"], [1, 1, 1]),
        (PLUS, ["3 + 2 = 5", "5 + 2 = 7"], [1, 0]),
        # superfluous lines
        (PLUS, ["3 + 4 = 7", "3 + 4 = 7", "7 + 2 = 9", "#### 9"], [1, 0, 0, 0]),
        (PLUS, ["3 + 4 = 7", "7 + 2 = 9", "9 + 0 = 9", "#### 9"], [1, 1, 0, 0]),
        (PLUS, ["3 + 4 = 7", "7 + 2 = 9", "#### 9", "#### 9"], [1, 1, 1, 0]),
        (PLUS, ["First:", "3 + 4 = 7"], [0, 0]),
        (PLUS, ["3 + 4 = 7", "7 + 2 ="], [1, 0]),
        (PLUS, ["3 + 4 = 7\n\n", "  ", "7 + 2 = 9"], [1, 1, 1]),
        (PLUS, ["3 + 4 = 7", "The answer is 9."], [1, 1]),
        (PLUS, [], []),
    ],
)
def test_worked_by_hand(question, steps, expected):
    assert truth(question, steps) == [bool(one) for one in expected]


def test_of_another_question_no_truth_is_known():
    assert truth("What is 3 + 4?", ["3 + 4 = 7", "#### 7"]) is None


def test_the_first_error():
    assert first_error([True, False, False]) == 1
    assert first_error([False]) == 0
    assert first_error([True, True]) == -1
    assert first_error([]) == -1


@pytest.mark.parametrize("seed", range(4))
def test_of_every_generated_problem_the_worked_solution_is_all_right(seed):
    for problem in word_problems.problems(Config(**SETTINGS), seed):
        steps = problem.solution.splitlines(keepends=True)
        assert truth(problem.question, steps) == [True] * len(steps)
        assert truth(problem.question, [f"#### {problem.answer}"]) == [True]
        assert truth(problem.question, [f"#### {int(problem.answer) + 1}"]) == [False]


def test_a_slip_at_a_step_is_the_first_error_though_the_rest_follows_from_it():
    for problem in word_problems.problems(Config(**SETTINGS), 5):
        start, moves = word_problems.read_question(problem.question)
        for slip_at in range(len(moves)):
            value, steps = start, []
            for index, move in enumerate(moves):
                result = move.result(value) + (1 if index == slip_at else 0)
                steps.append(f"{value} {move.operator} {move.operand} = {result}\n")
                value = result
            right = truth(problem.question, [*steps, f"#### {value}"])
            assert right == [True] * slip_at + [False] * (len(moves) - slip_at + 1)


@pytest.mark.parametrize("shares", [(0.3, 0.1, 0.5), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)])
def test_a_solution_without_an_error_has_the_right_answer(shares):
    guess, slip, misread = shares
    config = Config(
        **SETTINGS | {"guess_share": guess, "slip_share": slip, "misconception_share": misread}
    )
    for problem in word_problems.problems(config, 6):
        right = truth(problem.question, problem.solution.splitlines())
        if all(right):
            assert answer_checker.is_correct(problem.solution, problem.answer)
