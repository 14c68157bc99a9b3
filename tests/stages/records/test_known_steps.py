from dataclasses import replace
from pathlib import Path

import pytest

from stages.records import known_steps, lines
from stages.records.step_labels import StepLabels

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
    assert known_steps.num_tokens(ROW) == 2 + (2 + 1) + (1 + 1) + (1 + 1)


def test_all_rows_are_read_with_their_first_errors(path):
    found = known_steps.read(path, max_tokens=16, leave_out_long=False)
    assert (found.rows, found.first_errors, found.left_out_long) == ([ROW, LONG], [1, -1], 0)


def test_long_rows_are_an_error_or_left_out_and_counted(path):
    with pytest.raises(ValueError, match=r"1 of 2 solutions .* the 15 positions .* up to 16"):
        known_steps.read(path, max_tokens=15, leave_out_long=False)
    found = known_steps.read(path, max_tokens=15, leave_out_long=True)
    assert (found.rows, found.left_out_long) == ([ROW], 1)


@pytest.mark.parametrize("truth", [None, [True]])
def test_steps_whose_truth_is_unknown_are_refused(truth):
    with pytest.raises(ValueError, match="Evaluate on steps whose truth is known"):
        known_steps.first_error(replace(ROW, true_labels=truth))


def test_a_problem_of_dev_is_no_problem_of_test(path):
    one = known_steps.read(path, max_tokens=15, leave_out_long=True)
    both = known_steps.read(path, max_tokens=16, leave_out_long=False)
    other = known_steps.KnownSteps(rows=[LONG], first_errors=[-1], left_out_long=0)
    known_steps.check_apart(one, other)
    with pytest.raises(ValueError, match="found 1 in both, such as 'a'"):
        known_steps.check_apart(one, both)
