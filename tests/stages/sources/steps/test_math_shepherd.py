from pathlib import Path

import pytest

from stages.records.steps import RawSteps
from stages.sources.quarantine import RejectedError
from stages.sources.steps import catalogue, math_shepherd

SAMPLE = Path(__file__).parents[5] / "shared/data/prm_format_samples/math_shepherd_sample7.jsonl"
CONFIG = math_shepherd.Config(kind="math_shepherd", num_completions=8)
INPUT = "2 + 2 - 1? Step 1: 2+2 = 4 ки\nStep 2: The answer is: 4 ки"


def read(text: str, signs: str) -> RawSteps:
    label = text
    for sign in signs:
        label = label.replace("ки", sign, 1)
    (found,) = math_shepherd.solutions({"input": text, "label": label}, CONFIG, 1)
    return found


def test_each_marker_has_the_sign_that_stands_in_its_place():
    found = read(INPUT, "+-")
    assert found.question == "2 + 2 - 1?"
    assert found.steps == ["Step 1: 2+2 = 4", "Step 2: The answer is: 4"]
    assert (found.labels, found.num_completions) == ([1.0, 0.0], [8, 8])
    assert (found.correct, found.finished, found.true_labels) == (False, True, None)


def test_a_step_may_be_right_again_and_the_last_label_is_the_answers():
    found = read(INPUT, "-+")
    assert (found.labels, found.correct) == ([0.0, 1.0], True)


@pytest.mark.parametrize(
    ("text", "label", "reason"),
    [
        (INPUT, INPUT.replace("ки", "+", 1), "markers and labels"),
        (INPUT, INPUT.replace("ки", "+") + " +", "markers and labels"),
        (INPUT, INPUT.replace("ки", "?"), "markers and labels"),
        (INPUT, INPUT.replace("ки", "+").replace("= 4", "= 5"), "markers and labels"),
        (INPUT + " and so", INPUT.replace("ки", "+"), "no marker"),
        ("2+2? Step 1: 4", "2+2? Step 1: 4", "no marker"),
        ("2+2? 4 ки", "2+2? 4 +", "no question"),
        ("Step 1: 4 ки", "Step 1: 4 +", "no question"),
        ("2? Step 1: 2 ки ки", "2? Step 1: 2 + +", "empty step"),
        ("", "", "empty input"),
    ],
)
def test_a_row_whose_labels_are_not_one_for_each_marker_is_refused(text, label, reason):
    with pytest.raises(RejectedError, match=f"^{reason}: "):
        math_shepherd.solutions({"input": text, "label": label}, CONFIG, 1)


@pytest.mark.skipif(not SAMPLE.is_file(), reason="no ../shared/data/prm_format_samples")
def test_the_real_rows():
    found = [raw for row in catalogue.solutions(SAMPLE, CONFIG) for raw in row]
    assert [len(raw.steps) for raw in found] == [5, 3, 2, 5, 5, 2, 3]
    assert [sum(raw.labels) for raw in found] == [4, 0, 0, 0, 1, 0, 0]
    assert found[0].question.startswith("Janet pays $40/hour")
    assert found[0].steps[0] == (
        "Step 1: Janet spends 3 hours + 5 hours = <<3+5=8>>8 hours per week on music lessons."
    )
    assert found[0].labels == [1.0, 1.0, 1.0, 1.0, 0.0]
    assert not any(raw.correct for raw in found)
