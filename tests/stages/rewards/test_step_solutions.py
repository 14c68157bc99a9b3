import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged_rows import completion

from stages.models import model_tokenizer as tokenizers
from stages.models.model_tokenizer import make_decode
from stages.records.problems import Prompt
from stages.records.steps import PrefixCount, StepLabels, split_steps
from stages.rewards import answer_checker, step_solutions
from stages.rewards.step_solutions import Solution, true_step_labels
from stages.sources import word_problems
from stages.sources.word_problems import WordProblemsConfig

VOCAB = ["", "a", "b", "\n", "\n\n", ".\n\n", "\nb", " ", "\n\nSo"]
END = 0


def decode(ids):
    return "".join(VOCAB[i] for i in ids)


@pytest.mark.parametrize(
    ("ids", "separator", "expected"),
    [
        ([1, 3, 2, END], "\n", [[1, 3], [2, END]]),
        ([1, 3, 2, 3, END], "\n", [[1, 3], [2, 3, END]]),  # the end alone is no step
        ([1, 3, 3, 2], "\n", [[1, 3, 3], [2]]),  # a blank line joins the step before
        ([1, 3, 7, 3, 2], "\n", [[1, 3, 7, 3], [2]]),
        ([3, 3, 1, 2, 3, 2], "\n", [[3, 3, 1, 2, 3], [2]]),  # at the start, the one that follows
        ([1, 3, 2], "\n\n", [[1, 3, 2]]),
        ([1, 3, 3, 2], "\n\n", [[1, 3, 3], [2]]),  # completed by the second token
        ([1, 4, 2], "\n", [[1, 4], [2]]),
        ([1, 5, 2], "\n\n", [[1, 5], [2]]),
        ([1, 6, 2], "\n", [[1, 6], [2]]),  # a token that goes on beyond it is not cut
        ([1, 8, 2], "\n\n", [[1, 8], [2]]),
        ([3, END], "\n", [[3, END]]),  # nothing but white space: one step
        ([END], "\n", [[END]]),
        ([], "\n", []),
    ],
)
def test_a_step_ends_with_the_token_that_completes_the_separator(ids, separator, expected):
    assert split_steps(ids, decode, separator) == expected


@given(st.lists(st.integers(0, len(VOCAB) - 1)), st.sampled_from(["\n", "\n\n", "a"]))
def test_the_steps_joined_are_the_completion_and_none_is_empty(ids, separator):
    steps = split_steps(ids, decode, separator)
    assert [i for step in steps for i in step] == ids
    assert all(steps)
    # Only a completion without any text has a step without text.
    assert all(decode(step).strip() for step in steps) or len(steps) == 1


def test_lines_of_the_embedded_tokenizer():
    tokenizer = tokenizers.train_tokenizer(["3 + 4 = 7\n7 * 2 = 14\n#### 14"], 700)
    decode = make_decode(tokenizer)
    ids = tokenizer("3 + 4 = 7\n7 * 2 = 14\n#### 14")["input_ids"] + [tokenizer.eos_token_id]
    steps = split_steps(ids, decode, "\n")
    assert [decode(step) for step in steps] == ["3 + 4 = 7\n", "7 * 2 = 14\n", "#### 14"]
    assert steps[-1][-1] == tokenizer.eos_token_id


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
    assert true_step_labels(question, steps) == [bool(item) for item in expected]


def test_of_another_question_no_truth_is_known():
    assert true_step_labels("What is 3 + 4?", ["3 + 4 = 7", "#### 7"]) is None


@pytest.mark.parametrize("seed", range(4))
def test_of_every_generated_problem_the_worked_solution_is_all_right(seed):
    for problem in word_problems.generate_problems(WordProblemsConfig(**SETTINGS), seed):
        steps = problem.solution.splitlines(keepends=True)
        assert true_step_labels(problem.question, steps) == [True] * len(steps)
        assert true_step_labels(problem.question, [f"#### {problem.answer}"]) == [True]
        assert true_step_labels(problem.question, [f"#### {int(problem.answer) + 1}"]) == [False]


def test_a_slip_at_a_step_is_the_first_error_though_the_rest_follows_from_it():
    for problem in word_problems.generate_problems(WordProblemsConfig(**SETTINGS), 5):
        start, moves = word_problems.read_question(problem.question)
        for slip_at in range(len(moves)):
            value, steps = start, []
            for index, move in enumerate(moves):
                result = move.result(value) + (1 if index == slip_at else 0)
                steps.append(f"{value} {move.operator} {move.operand} = {result}\n")
                value = result
            right = true_step_labels(problem.question, [*steps, f"#### {value}"])
            assert right == [True] * slip_at + [False] * (len(moves) - slip_at + 1)


@pytest.mark.parametrize("shares", [(0.3, 0.1, 0.5), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)])
def test_a_solution_without_an_error_has_the_right_answer(shares):
    guess, slip, misread = shares
    config = WordProblemsConfig(
        **SETTINGS | {"guess_share": guess, "slip_share": slip, "misconception_share": misread}
    )
    for problem in word_problems.generate_problems(config, 6):
        right = true_step_labels(problem.question, problem.solution.splitlines())
        if all(right):
            assert answer_checker.is_correct(problem.solution, problem.answer)


QUESTION = "Anna has 3 apples. She buys 4 more. She finds 2 more. How many apples now?"
PROMPT = Prompt(
    id="a", task="solve", question=QUESTION, prompt=QUESTION, prompt_ids=[7], answer="9"
)
RIGHT, REPAIRED, WRONG, GUESS = (
    "3 + 4 = 7\n7 + 2 = 9\n#### 9",
    "3 + 4 = 8\n8 + 2 = 9\n#### 9",
    "3 + 4 = 7\n7 + 2 = 8\n#### 8",
    "#### 9",
)


def step_solutions_decode(ids):
    return "".join(map(chr, ids)).rstrip("$")


def pool(*texts, cut=()):
    return [
        completion(text, index, ids=[ord(character) for character in f"{text}$"], cut=index in cut)
        for index, text in enumerate(texts)
    ]


def choose(rows, number=9, prompt=PROMPT):
    return step_solutions.choose_solutions([(prompt, rows)], step_solutions_decode, "\n", number)


def test_steps_verdict_and_truth():
    result = choose(pool(RIGHT, REPAIRED, WRONG, GUESS))
    right, repaired, wrong, guess = (item.row for item in result)
    assert right.steps == ["3 + 4 = 7", "7 + 2 = 9", "#### 9"]
    assert (right.correct, right.true_labels) == (True, [True, True, True])
    assert (repaired.correct, repaired.true_labels) == (True, [False, False, False])
    assert (wrong.correct, wrong.true_labels) == (False, [True, False, False])
    assert (guess.correct, guess.true_labels, result[-1].prefixes()) == (True, [True], [])


def test_a_prefix_ends_after_each_step_but_the_last():
    (solution,) = choose(pool(RIGHT))
    assert [step_solutions_decode(ids) for ids in solution.prefixes()] == [
        "3 + 4 = 7\n",
        "3 + 4 = 7\n7 + 2 = 9\n",
    ]


def test_prefixes_of_several_come_with_their_problem():
    result = list(step_solutions.solution_prefixes(choose(pool(RIGHT, GUESS, WRONG))))
    assert [(item.id, step_solutions_decode(ids).splitlines()[-1]) for item, ids in result] == [
        ("a", "3 + 4 = 7"), ("a", "7 + 2 = 9"), ("a", "3 + 4 = 7"), ("a", "7 + 2 = 8")
    ]  # fmt: skip


def test_the_first_different_ones_that_ended_in_the_order_of_the_draws():
    rows = pool(RIGHT, WRONG, RIGHT, GUESS, WRONG, RIGHT, REPAIRED, cut={1, 3})
    assert [item.row.index for item in choose(rows)] == [0, 4, 6]
    assert [item.row.index for item in choose(rows, 2)] == [0, 4]


def test_without_a_generated_question_no_truth_is_known():
    prompt = Prompt(id="a", task="solve", question="3 + 6?", prompt="", prompt_ids=[1], answer="9")
    ((_, row),) = choose(pool(WRONG), prompt=prompt)
    assert (row.true_labels, row.correct) == (None, False)


ASKED = Prompt(id="a", task="solve", question="", prompt="Q", prompt_ids=[9], answer="4")
ROW = StepLabels(
    id="a",
    index=3,
    prompt="Q",
    prompt_ids=[9],
    step_ids=[[1, 2], [3], [4, 5]],
    steps=["x", "y", "#### 4"],
    labels=[None] * 3,
    num_completions=[0] * 3,
    correct=True,
    true_labels=[True, False, False],
    source="none",
)
SOLUTION = Solution(ASKED, ROW)


def count(ids, right, drawn=8):
    return PrefixCount(
        id="a",
        prefix_ids=ids,
        num_completions=drawn,
        num_right=right,
        low=0.0,
        high=1.0,
        generated_tokens=0,
    )


COUNTS = [count([1, 2, 3], 0), count([1, 2], 3), count([7], 8)]


@pytest.mark.parametrize(
    ("kind", "labels"), [("hard", [1.0, 0.0, 1.0]), ("soft", [0.375, 0.0, 1.0])]
)
def test_hard_is_any_soft_is_the_share_and_the_last_is_the_verdict(kind, labels):
    ((row, counts),) = step_solutions.label_solutions([SOLUTION], COUNTS, kind)
    assert row.labels == labels
    assert row.num_completions == [8, 8, 0]
    assert [count.num_right for count in counts] == [3, 0]
    assert (row.source, row.index, row.correct) == ("math_shepherd", 3, True)
    assert row.true_labels == [True, False, False]
    assert row.step_ids == ROW.step_ids


def test_a_guess_needs_no_completion():
    guess = dataclasses.replace(ROW, step_ids=[[4]], steps=["#### 5"], correct=False)
    ((row, counts),) = step_solutions.label_solutions([Solution(ASKED, guess)], [], "soft")
    assert (row.labels, row.num_completions, counts) == ([0.0], [0], [])


def test_of_another_problem_equal_tokens_are_another_prefix():
    other = Solution(dataclasses.replace(ASKED, id="b"), ROW)
    with pytest.raises(KeyError):
        step_solutions.label_solutions([other], COUNTS, "hard")


def test_the_known_truth():
    ((row, _),) = step_solutions.label_by_truth([SOLUTION])
    assert row.labels == [1.0, 0.0, 0.0]
    assert row.num_completions == [0, 0, 0]
    assert row.source == "truth"


def test_a_truth_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="Set num_completions to 1"):
        step_solutions.label_by_truth([Solution(ASKED, dataclasses.replace(ROW, true_labels=None))])
