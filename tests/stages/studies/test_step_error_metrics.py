from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stages.records.steps import StepLabels
from stages.sources import step_files
from stages.studies import step_error_metrics
from stages.studies.step_error_metrics import (
    KnownSteps,
    check_apart,
    find_first_error,
    select_known,
)

FILES = Path(__file__).parents[4] / "shared/data/processbench"
OPTIONS = {"num_resamples": 200, "confidence": 0.95, "seed": 0}


def row(num_steps: int, first: int, correct: bool | None = None, name: str = "a") -> StepLabels:
    right = num_steps if first == -1 else first
    return StepLabels(
        id=name,
        index=0,
        prompt=name,
        prompt_ids=[5],
        steps=["x"] * num_steps,
        step_ids=[[6]] * num_steps,
        labels=[None] * num_steps,
        num_completions=[0] * num_steps,
        true_labels=[step < right for step in range(num_steps)],
        correct=first == -1 if correct is None else correct,
        source="processbench",
    )


def solutions(rows):
    return select_known(rows, "here", max_tokens=999, leave_out_long=False)


ROWS = [
    row(3, 1, name="a"),
    row(2, 0, name="b", correct=True),
    row(2, -1, name="c"),
    row(4, -1, name="d"),
]
SCORES = [[0.9, 0.2, 0.8], [0.7, 0.3], [0.9, 0.8], [0.9, 0.8, 0.7, 0.4]]


def test_the_numbers_by_hand():
    result = step_error_metrics.summarise_predictions(solutions(ROWS), SCORES, 0.5, **OPTIONS)
    assert (result["solutions"], result["erroneous"], result["correct"]) == (4, 2, 2)
    # first steps below 1/2: 1 (right), 1 (wrong: it is 0), none (right), 3 (wrong: none is)
    model = result["model"]
    assert [model[name]["value"] for name in model] == [0.5, 0.5, 0.5]
    # -1 for b, whose answer is right; the middle one of three steps for a
    assert result["outcome_and_middle"]["error_accuracy"]["value"] == 0.5
    assert result["outcome_and_middle"]["correct_accuracy"]["value"] == 1.0
    assert result["outcome_and_middle"]["f1"]["value"] == pytest.approx(2 / 3, abs=1e-6)
    assert result["outcome_and_middle"]["model_f1_minus_this"]["value"] == pytest.approx(
        -1 / 6, abs=1e-6
    )
    assert result["always_correct"]["f1"]["value"] == 0.0
    assert result["always_correct"]["model_f1_minus_this"]["value"] == 0.5
    assert result["right_answer_wrong_process"] == {"solutions": 1, "detected": 1.0, "found": 0.0}


def test_steps_after_the_first_error_are_not_counted():
    steps = step_error_metrics.steps_to_first_error(SCORES, [1, 0, -1, -1], 0.5)
    probabilities = np.array([0.9, 0.2, 0.7, 0.9, 0.8, 0.9, 0.8, 0.7, 0.4])
    right = np.array([1, 0, 0, 1, 1, 1, 1, 1, 1])
    assert (steps["steps"], steps["wrong_share"]) == (9, pytest.approx(2 / 9, abs=1e-6))
    # 6 of 7 right ones and 1 of 2 wrong ones; of the 14 pairs the wrong 0.7 beats 0.4, ties 0.7
    assert steps["balanced_accuracy"] == pytest.approx((6 / 7 + 1 / 2) / 2, abs=1e-6)
    assert steps["auroc"] == pytest.approx(12.5 / 14, abs=1e-6)
    assert steps["brier"] == pytest.approx(((probabilities - right) ** 2).mean(), abs=1e-6)


def test_without_outcomes_there_is_no_baseline_of_outcomes():
    unknown = [*ROWS[:3], row(4, -1, name="d")]
    object.__setattr__(unknown[0], "correct", None)
    assert set(step_error_metrics.predict_by_rules(unknown)) == {"always_correct"}


BASELINE = {  # outcome known + middle step: error accuracy and F1, in per cent
    "gsm8k": (29.5, 45.5),  # 61 of 207
    "math": (23.1, 37.5),  # 137 of 594
    "olympiadbench": (15.9, 27.4),  # 105 of 661
    "omnimath": (11.7, 21.0),  # 89 of 759
}


@pytest.mark.skipif(not FILES.is_dir(), reason="ProcessBench is not at ../shared/data/processbench")
@pytest.mark.parametrize("subset", BASELINE)
def test_trivial_baselines_on_processbench(subset):
    form = step_files.ProcessBench(kind="processbench")
    raws = [
        raw
        for solution in step_files.read_solutions(FILES / f"{subset}.json.gz", form)
        for raw in solution
    ]
    rows = [
        row(len(raw.steps), raw.true_labels.index(False) if False in raw.true_labels else -1,
            raw.correct, raw.question)
        for raw in raws
    ]  # fmt: skip
    perfect = [[float(label) for label in item.true_labels] for item in rows]
    result = step_error_metrics.summarise_predictions(solutions(rows), perfect, 0.5, **OPTIONS)
    assert result["model"]["f1"]["value"] == 1.0
    assert result["always_correct"]["f1"]["value"] == 0.0
    middle = result["outcome_and_middle"]
    assert middle["correct_accuracy"]["value"] == 1.0
    assert (
        round(100 * middle["error_accuracy"]["value"], 1),
        round(100 * middle["f1"]["value"], 1),
    ) == BASELINE[subset], (middle, result["problems"])


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


def test_a_step_that_was_cut_is_one_step_read_at_its_end():
    # Of the marked steps, each of two parts, the second is wrong; the middle of three is the second
    truth = [None, True, None, False, None, False]
    cut = replace(row(6, -1), true_labels=truth, correct=False)
    assert find_first_error(cut) == 1
    assert step_error_metrics.select_marked(cut, [0.1, 0.9, 0.2, 0.3, 0.8, 0.7]) == [0.9, 0.3, 0.7]
    assert step_error_metrics.predict_by_rules([cut])["outcome_and_middle"] == [1]


def test_all_rows_are_read_with_their_first_errors():
    result = select_known([ROW, LONG], "here", max_tokens=16, leave_out_long=False)
    assert (result.rows, result.first_errors, result.left_out_long) == ([ROW, LONG], [1, -1], 0)


def test_long_rows_are_an_error_or_left_out_and_counted():
    with pytest.raises(ValueError, match=r"here: 1 of 2 solutions .* the 15 positions .* up to 16"):
        select_known([ROW, LONG], "here", max_tokens=15, leave_out_long=False)
    result = select_known([ROW, LONG], "here", max_tokens=15, leave_out_long=True)
    assert (result.rows, result.left_out_long) == ([ROW], 1)


@pytest.mark.parametrize("truth", [None, [True]])
def test_steps_whose_truth_is_unknown_are_refused(truth):
    with pytest.raises(ValueError, match="Evaluate on steps whose truth is known"):
        find_first_error(replace(ROW, true_labels=truth))


def test_a_problem_of_dev_is_no_problem_of_test():
    known = select_known([ROW, LONG], "here", max_tokens=15, leave_out_long=True)
    both = select_known([ROW, LONG], "here", max_tokens=16, leave_out_long=False)
    other = KnownSteps(rows=[LONG], first_errors=[-1], left_out_long=0)
    check_apart(known, other)
    with pytest.raises(ValueError, match="found 1 in both, such as 'a'"):
        check_apart(known, both)
