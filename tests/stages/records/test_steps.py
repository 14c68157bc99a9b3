from dataclasses import replace
from pathlib import Path

import pytest

from stages.records import lines
from stages.records.steps import (
    KnownSteps,
    StepLabels,
    check_apart,
    check_training_steps,
    first_error,
    num_tokens,
    read_known_steps,
    read_training_steps,
)
from stages.sources.steps import processbench

ROW = StepLabels(
    id="a",
    index=0,
    prompt="a",
    prompt_ids=[5, 6],
    steps=["x", "y", "z"],
    step_ids=[[7, 8], [9], [1]],
    labels=[1.0, 0.0, None],
    num_completions=[0, 0, 0],
    true_labels=[True, False, False],
    correct=True,
    source="processbench",
)
LONG = replace(ROW, id="b", prompt="b", prompt_ids=[5] * 9, true_labels=[True, True, True])


@pytest.fixture
def path(tmp_path) -> Path:
    lines.write(tmp_path / "steps.jsonl", [ROW, LONG])
    return tmp_path / "steps.jsonl"


def test_prompt_steps_and_step_tokens_are_counted():
    assert num_tokens(ROW) == 2 + (2 + 1) + (1 + 1) + (1 + 1)


def test_all_rows_are_read_with_their_first_errors(path):
    found = read_known_steps(path, max_tokens=16, leave_out_long=False)
    assert (found.rows, found.first_errors, found.left_out_long) == ([ROW, LONG], [1, -1], 0)


def test_long_rows_are_an_error_or_left_out_and_counted(path):
    with pytest.raises(ValueError, match=r"1 of 2 solutions .* the 15 positions .* up to 16"):
        read_known_steps(path, max_tokens=15, leave_out_long=False)
    found = read_known_steps(path, max_tokens=15, leave_out_long=True)
    assert (found.rows, found.left_out_long) == ([ROW], 1)


@pytest.mark.parametrize("truth", [None, [True]])
def test_steps_whose_truth_is_unknown_are_refused(truth):
    with pytest.raises(ValueError, match="Evaluate on steps whose truth is known"):
        first_error(replace(ROW, true_labels=truth))


def test_a_problem_of_dev_is_no_problem_of_test(path):
    one = read_known_steps(path, max_tokens=15, leave_out_long=True)
    both = read_known_steps(path, max_tokens=16, leave_out_long=False)
    other = KnownSteps(rows=[LONG], first_errors=[-1], left_out_long=0)
    check_apart(one, other)
    with pytest.raises(ValueError, match="found 1 in both, such as 'a'"):
        check_apart(one, both)


TRAINING_STEPS_ROW = StepLabels(
    id="a",
    index=0,
    prompt="a?",
    prompt_ids=[5],
    steps=["x"],
    step_ids=[[7]],
    labels=[1.0],
    num_completions=[4],
    true_labels=None,
    correct=None,
    source="math_shepherd",
)
OTHER = replace(TRAINING_STEPS_ROW, id="b", prompt="b?")


def test_rows_of_different_problems_are_read_as_they_are(tmp_path):
    train, heldout = tmp_path / "train.jsonl", tmp_path / "heldout.jsonl"
    lines.write(train, [TRAINING_STEPS_ROW, replace(TRAINING_STEPS_ROW, index=1)])
    lines.write(heldout, [OTHER])
    assert read_training_steps(train, heldout) == (
        [TRAINING_STEPS_ROW, replace(TRAINING_STEPS_ROW, index=1)],
        [OTHER],
    )
    with pytest.raises(ValueError, match="found 1 in both"):
        read_training_steps(train, train)


def test_one_problem_is_one_prompt_whatever_its_id():
    with pytest.raises(ValueError, match=r"found 1 in both, such as 'a\?'.*another heldout"):
        check_training_steps([OTHER, TRAINING_STEPS_ROW], [replace(TRAINING_STEPS_ROW, id="c")])


def test_a_test_set_is_held_out_and_never_learned():
    test = replace(OTHER, source=processbench.SOURCE)
    check_training_steps([TRAINING_STEPS_ROW], [test])
    with pytest.raises(ValueError, match=r"1 of 2 of processbench, such as problem 'b'"):
        check_training_steps([TRAINING_STEPS_ROW, test], [replace(TRAINING_STEPS_ROW, prompt="c?")])
