import dataclasses

import pytest

from stages.loops.process_reward import HardTargets, SoftTargets, compute_targets
from stages.records.steps import StepLabels

ROW = StepLabels(
    id="a",
    index=2,
    prompt="",
    prompt_ids=[4],
    steps=["x", "y", "z", "w"],
    step_ids=[[5], [6], [7], [8]],
    labels=[1.0, 0.25, None, 0.0],
    num_completions=[8, 8, 0, 8],
    true_labels=None,
    correct=None,
    source="math_shepherd",
)
HARD, SOFT = HardTargets(kind="hard", threshold=0.0), SoftTargets(kind="soft")


def row(**changes):
    return dataclasses.replace(ROW, **changes)


def test_hard_targets_are_right_as_soon_as_one_completion_was():
    assert compute_targets(ROW, HARD, up_to_first_error=False) == [1.0, 1.0, None, 0.0]


def test_the_threshold_itself_is_wrong():
    quarter = HardTargets(kind="hard", threshold=0.25)
    assert compute_targets(ROW, quarter, up_to_first_error=False) == [1.0, 0.0, None, 0.0]


def test_soft_targets_are_the_labels_uncut():
    assert compute_targets(ROW, SOFT, up_to_first_error=False) == [1.0, 0.25, None, 0.0]


def test_nothing_is_learned_after_the_first_error():
    labels = [1.0, 0.0, 1.0, 0.0]
    result = compute_targets(row(labels=labels), HARD, up_to_first_error=True)
    assert result == [1.0, 0.0, None, None]


def test_a_soft_error_is_a_share_below_one_half():
    labels = [1.0, 0.5, 0.4, 0.9]
    result = compute_targets(row(labels=labels), SOFT, up_to_first_error=True)
    assert result == [1.0, 0.5, 0.4, None]


def test_a_solution_without_an_error_is_learned_from_whole():
    labels = [1.0, 1.0, None, 1.0]
    assert compute_targets(row(labels=labels), HARD, up_to_first_error=True) == labels


@pytest.mark.parametrize(
    "changes", [{"labels": [1.0, 1.0, 1.0]}, {"step_ids": [[5]]}, {"steps": ["x"] * 5}]
)
def test_as_many_labels_as_steps(changes):
    with pytest.raises(ValueError, match=r"solution 2 of problem a .*one label for each step"):
        compute_targets(row(**changes), HARD, up_to_first_error=False)


@pytest.mark.parametrize("label", [-1.0, 1.01, float("nan"), float("inf")])
def test_labels_are_probabilities(label):
    with pytest.raises(ValueError, match="from 0 to 1 or null"):
        compute_targets(row(labels=[1.0, label, 0.0, 0.0]), SOFT, up_to_first_error=False)
