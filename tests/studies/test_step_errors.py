"""Detection of the first wrong step: numbers by hand, and the study at work."""

import dataclasses
import json

import numpy as np
import pytest
import studied_run
from studied_run import SEEDS

from stages.records import lines
from stages.records.steps import StepLabels
from stages.rows import DATA
from studies import step_error_metrics, step_errors
from studies.step_error_metrics import KnownSteps, check_apart, find_first_error, select_known
from studies.step_errors import StepPrediction

OPTIONS = {"num_resamples": 200, "confidence": 0.95, "seed": 0}


def solution(num_steps: int, first: int, name: str = "a", **changes) -> StepLabels:
    """A solution whose first wrong step is `first`, -1 for none, with one token a step."""
    right = num_steps if first == -1 else first
    values = {
        "index": 0, "prompt": name, "prompt_ids": [5], "steps": ["x"] * num_steps,
        "step_ids": [[6]] * num_steps, "labels": [None] * num_steps,
        "num_completions": [0] * num_steps, "correct": first == -1, "source": "processbench",
        "true_labels": [step < right for step in range(num_steps)],
    }  # fmt: skip
    return StepLabels(id=name, **(values | changes))


def summarise(rows, scores):
    known = select_known(rows, "here", max_tokens=999, leave_out_long=False)
    return step_error_metrics.summarise_predictions(known, scores, 0.5, **OPTIONS)


SCORES = [[0.9, 0.2, 0.8], [0.7, 0.3], [0.9, 0.8], [0.9, 0.8, 0.7, 0.4]]


def test_detection_by_hand():
    rows = [solution(3, 1), solution(2, 0, "b", correct=True), solution(2, -1, "c"),
            solution(4, -1, "d")]  # fmt: skip
    result = summarise(rows, SCORES)
    assert (result["solutions"], result["erroneous"], result["correct"]) == (4, 2, 2)
    # first steps below 1/2: 1 (right), 1 (wrong: it is 0), none (right), 3 (wrong: none is)
    assert [numbers["value"] for numbers in result["model"].values()] == [0.5, 0.5, 0.5]
    # -1 for b, whose answer is right; the middle one of three steps for a
    middle = {name: numbers["value"] for name, numbers in result["outcome_and_middle"].items()}
    assert (middle["error_accuracy"], middle["correct_accuracy"]) == (0.5, 1.0)
    assert middle["f1"] == pytest.approx(2 / 3, abs=1e-6)
    assert middle["model_f1_minus_this"] == pytest.approx(-1 / 6, abs=1e-6)
    assert result["always_correct"]["f1"]["value"] == 0.0
    assert result["always_correct"]["model_f1_minus_this"]["value"] == 0.5
    assert list(result["right_answer_wrong_process"].values()) == [1, 1.0, 0.0]
    # of an even number of steps the earlier of the middle two
    wrong = [solution(4, 2), solution(2, 0), solution(1, 0)]
    assert step_error_metrics.predict_by_rules(wrong)["outcome_and_middle"] == [1, 0, 0]
    unknown = [*rows[:3], solution(4, -1, "d", correct=None)]
    assert set(step_error_metrics.predict_by_rules(unknown)) == {"always_correct"}


def test_steps_after_the_first_error_do_not_count():
    steps = step_error_metrics.steps_to_first_error(SCORES, [1, 0, -1, -1], 0.5)
    probabilities = np.array([0.9, 0.2, 0.7, 0.9, 0.8, 0.9, 0.8, 0.7, 0.4])
    right = np.array([1, 0, 0, 1, 1, 1, 1, 1, 1])
    assert (steps["steps"], steps["wrong_share"]) == (9, pytest.approx(2 / 9, abs=1e-6))
    # 6 of 7 right ones and 1 of 2 wrong ones; of the 14 pairs the wrong 0.7 beats 0.4, ties 0.7
    assert steps["balanced_accuracy"] == pytest.approx((6 / 7 + 1 / 2) / 2, abs=1e-6)
    assert steps["auroc"] == pytest.approx(12.5 / 14, abs=1e-6)
    assert steps["brier"] == pytest.approx(((probabilities - right) ** 2).mean(), abs=1e-6)


def test_a_step_that_was_cut_is_read_at_its_end():
    # of the marked steps, each of two parts, the second is wrong; the middle of three is the second
    cut = solution(6, -1, true_labels=[None, True, None, False, None, False], correct=False)
    assert find_first_error(cut) == 1
    assert step_error_metrics.select_marked(cut, [0.1, 0.9, 0.2, 0.3, 0.8, 0.7]) == [0.9, 0.3, 0.7]
    assert step_error_metrics.predict_by_rules([cut])["outcome_and_middle"] == [1]


def test_long_solutions_are_refused_or_counted_and_problems_kept_apart():
    ids = {"step_ids": [[7, 8], [9], [1]]}
    short = solution(3, 1, prompt_ids=[5, 6], **ids)
    long = solution(3, -1, "b", prompt_ids=[5] * 9, **ids)
    both = select_known([short, long], "here", max_tokens=16, leave_out_long=False)
    assert (both.rows, both.first_errors, both.left_out_long) == ([short, long], [1, -1], 0)
    with pytest.raises(ValueError, match=r"here: 1 of 2 .* 15 .* 16"):
        select_known([short, long], "here", max_tokens=15, leave_out_long=False)
    known = select_known([short, long], "here", max_tokens=15, leave_out_long=True)
    assert (known.rows, known.left_out_long) == ([short], 1)
    check_apart(known, KnownSteps(rows=[long], first_errors=[-1], left_out_long=0))
    with pytest.raises(ValueError, match="1 in both, such as 'a'"):
        check_apart(known, both)
    for truth in (None, [True]):
        with pytest.raises(ValueError, match="truth is known"):
            find_first_error(dataclasses.replace(short, true_labels=truth))


# The study at work

SETTINGS = {
    "process": "process", "policy": "sft", "dev": "dev", "test": "test",
    "max_solutions_per_problem": 4, "leave_out_long": False, "num_bootstrap": 100,
    "confidence": 0.95,
}  # fmt: skip


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    studied_run.make("step_errors", SETTINGS)


def write(name: str, numbers: range) -> list[StepLabels]:
    words, rows = studied_run.words(), []
    for number in numbers:
        right = number % 4
        steps = [f"{number} + {step} = {number + step}\n" for step in range(3)]
        ids = {"prompt_ids": words(f"{number}?")["input_ids"], "steps": steps,
               "step_ids": [words(step)["input_ids"] for step in steps]}  # fmt: skip
        answer = {"correct": right == 3 or number % 5 == 0, "source": "truth"}
        rows.append(solution(3, -1 if right == 3 else right, f"p{number}", **ids, **answer))
    lines.write_lines(DATA / f"steps/{name}/heldout.jsonl", rows)
    return rows


def predict() -> tuple[dict, list[StepPrediction]]:
    step_errors.main()
    metrics = json.loads(studied_run.outputs("step_errors")["metrics.json"])
    path = DATA / "studies/step_errors/rows/0/predictions.jsonl"
    return metrics, list(lines.read_lines(path, StepPrediction))


def test_the_threshold_is_from_dev_and_the_numbers_are_from_test(run):
    write("dev", range(40))
    rows = write("test", range(40, 80))
    both, predictions = predict()
    written = studied_run.outputs("step_errors")
    assert set(both) == {str(seed) for seed in SEEDS}
    metrics = both["0"]
    names = ("dev_solutions", "solutions", "erroneous", "correct")
    assert [metrics[name] for name in names] == [40, 40, 30, 10]
    firsts = [[*row.true_labels, False].index(False) for row in rows]
    assert [item.first_error for item in predictions] == [-1 if n == 3 else n for n in firsts]
    wrong = [item for item in predictions if item.first_error != -1]
    share = sum(item.predicted == item.first_error for item in wrong) / len(wrong)
    assert metrics["model"]["error_accuracy"]["value"] == pytest.approx(share, abs=1e-6)
    assert metrics["right_answer_wrong_process"]["solutions"] > 0
    predict()
    assert studied_run.outputs("step_errors") == written
    # other test rows, the same threshold; the scores of a row do not depend on the others
    first, *others = write("test", range(60, 80))
    # the first two steps are parts of one that was marked
    cut = dataclasses.replace(first, true_labels=[None, False, False])
    lines.write_lines(DATA / "steps/test/heldout.jsonl", [cut, *others])
    fewer, last = predict()
    assert last[0].scores == predictions[20].scores[1:]
    assert fewer["0"]["threshold"] == metrics["threshold"]
    assert [item.predicted for item in last[1:]] == [item.predicted for item in predictions[21:]]


def test_rows_that_cannot_be_evaluated_are_refused(run):
    write("dev", range(40))
    write("test", range(39, 60))
    with pytest.raises(ValueError, match="chosen on the test"):
        predict()
    settings = SETTINGS | {"dev": "samples", "test": "samples"}
    studied_run.write_yaml(step_errors.studies.STUDY_PARAMS, {"step_errors": settings})
    with pytest.raises(ValueError, match="generated word problems"):
        predict()
