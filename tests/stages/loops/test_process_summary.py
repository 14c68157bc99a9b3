import dataclasses
import math

import pytest

from stages.loops.process_reward import HardTargets, SoftTargets, lowest_is_last, measure_quality
from stages.records.steps import StepLabels


def row(problem, labels, truth=None):
    return StepLabels(
        id=problem,
        index=0,
        prompt="",
        prompt_ids=[4],
        steps=["x"] * len(labels),
        step_ids=[[5]] * len(labels),
        labels=labels,
        num_completions=[4] * len(labels),
        true_labels=truth,
        correct=None,
        source="math_shepherd",
    )


ROWS = [row("a", [1.0, 0.25], [True, False]), row("b", [0.0, None], [False, False])]
SCORES = [[0.9, 0.6], [0.7, 0.1]]


def test_against_labels_and_against_the_truth_by_hand():
    result = measure_quality(ROWS, SCORES, HardTargets(kind="hard", threshold=0.0))
    # Labels: right 0.9 and 0.6, wrong 0.7.
    assert result["labels"] == {
        "steps": 3,
        "right_share": pytest.approx(2 / 3),
        "balanced_accuracy": pytest.approx(0.5),
        "negative_log_likelihood": pytest.approx(
            -(math.log(0.9) + math.log(0.6) + math.log(0.3)) / 3
        ),
        "auroc": pytest.approx(0.5),
        "auroc_within_problem": None,
    }
    # Truth: right 0.9, wrong 0.6, 0.7 and 0.1, of which 0.1 is called wrong.
    assert result["truth"]["balanced_accuracy"] == pytest.approx((1 + 1 / 3) / 2)
    assert result["truth"]["auroc"] == 1.0
    assert result["truth"]["auroc_within_problem"] == 1.0


def test_a_part_of_a_step_is_compared_with_nothing():
    parts = [row("a", [None, 1.0, 0.25], [None, True, False]), ROWS[1]]
    scores = [[0.2, *SCORES[0]], SCORES[1]]
    result, whole = (
        measure_quality(rows, item, HardTargets(kind="hard", threshold=0.0))
        for rows, item in [(parts, scores), (ROWS, SCORES)]
    )
    assert (result["labels"], result["truth"]) == (whole["labels"], whole["truth"])


def test_soft_labels_are_right_from_one_half_and_likely_as_they_are():
    actual = measure_quality(ROWS, SCORES, SoftTargets(kind="soft"))["labels"]
    assert actual["right_share"] == pytest.approx(1 / 3)
    expected = -(math.log(0.9) + 0.25 * math.log(0.6) + 0.75 * math.log(0.4) + math.log(0.3)) / 3
    assert actual["negative_log_likelihood"] == pytest.approx(expected)


def test_a_score_that_only_knows_the_problem_has_no_auroc_within_it():
    rows = [row("a", [1.0, 1.0, 0.0]), row("b", [0.0, 0.0, 1.0])]
    result = measure_quality(rows, [[0.9] * 3, [0.1] * 3], SoftTargets(kind="soft"))["labels"]
    assert result["auroc"] == pytest.approx(6 / 9)
    assert result["auroc_within_problem"] == 0.5


def test_rows_without_a_known_truth_have_none():
    rows = [dataclasses.replace(item, true_labels=None) for item in ROWS]
    assert measure_quality(rows, SCORES, SoftTargets(kind="soft"))["truth"] == {"steps": 0}


def test_rows_whose_labels_do_not_fit_are_refused():
    broken = dataclasses.replace(ROWS[0], labels=[1.0])
    with pytest.raises(ValueError, match="one label for each step"):
        measure_quality([broken], [[0.9, 0.6]], SoftTargets(kind="soft"))


def test_the_share_of_solutions_that_fail_at_the_end():
    assert lowest_is_last([[0.9, 0.2], [0.2, 0.9], [0.3], [0.4, 0.4]]) == pytest.approx(1 / 3)
    assert lowest_is_last([[0.3]]) is None
