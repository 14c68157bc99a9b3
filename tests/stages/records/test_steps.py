from dataclasses import replace

import pytest

from stages.records import lines
from stages.records.steps import StepLabels, read_training_steps

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


@pytest.fixture
def read(tmp_path):
    def read(rows, held):
        train, heldout = tmp_path / "train.jsonl", tmp_path / "heldout.jsonl"
        lines.write_lines(train, rows)
        lines.write_lines(heldout, held)
        return read_training_steps(train, heldout)

    return read


def test_rows_of_different_problems_are_read_as_they_are(read):
    rows = [TRAINING_STEPS_ROW, replace(TRAINING_STEPS_ROW, index=1)]
    assert read(rows, [OTHER]) == (rows, [OTHER])
    with pytest.raises(ValueError, match="found 1 in both"):
        read(rows, rows)


def test_one_problem_is_one_prompt_whatever_its_id(read):
    with pytest.raises(ValueError, match=r"found 1 in both, such as 'a\?'.*another heldout"):
        read([OTHER, TRAINING_STEPS_ROW], [replace(TRAINING_STEPS_ROW, id="c")])


def test_a_test_set_is_held_out_and_never_learned(read):
    test = replace(OTHER, source="processbench")
    read([TRAINING_STEPS_ROW], [test])
    with pytest.raises(ValueError, match=r"1 of 2 of processbench, such as problem 'b'"):
        read([TRAINING_STEPS_ROW, test], [replace(TRAINING_STEPS_ROW, prompt="c?")])
