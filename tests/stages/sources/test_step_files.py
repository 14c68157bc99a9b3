import dataclasses
import json
from pathlib import Path

import pytest

from stages.records.problems import BadRow
from stages.records.steps import RawSteps
from stages.sources import problem_files, step_files
from stages.sources.problem_files import SourceReport
from stages.sources.quarantine import RejectedError

FILES = Path(__file__).parents[4] / "shared/data/processbench"
ROW = {"id": "gsm8k-0", "problem": "2+2?", "steps": ["a", "b", "c"], "label": 1,
       "final_answer_correct": True}  # fmt: skip
FORM = step_files.ProcessBench(kind="processbench")
TABLE_2 = {  # erroneous, correct; and of the erroneous those with a right final answer
    "gsm8k": (207, 193, 7),
    "math": (594, 406, 94),
    "olympiadbench": (661, 339, 161),
    "omnimath": (759, 241, 259),
}


def read(change: dict[str, object]) -> RawSteps:
    (result,) = FORM.solutions(ROW | change, 4)
    return result


def test_steps_are_right_before_the_first_error_and_unlabelled_after_it():
    result = read({})
    assert result.labels == [1.0, 0.0, None]
    assert result.true_labels == [True, False, False]
    assert (result.id, result.line, result.question, result.correct) == ("gsm8k-0", 4, "2+2?", True)
    assert (result.steps, result.finished) == (["a", "b", "c"], True)
    assert read({"label": 0}).labels == [0.0, None, None]
    assert read({"label": 2}).labels == [1.0, 1.0, 0.0]
    assert read({"label": -1}).labels == [1.0, 1.0, 1.0]
    assert read({"label": -1}).true_labels == [True, True, True]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"label": 3}, "no label"),
        ({"label": -2}, "no label"),
        ({"label": True}, "no label"),
        ({"label": None}, "no label"),
        ({"steps": []}, "no steps"),
        ({"steps": "a"}, "no steps"),
        ({"steps": ["a", " "]}, "empty steps"),
        ({"steps": ["a", 2]}, "wrong type"),
        ({"problem": ""}, "empty problem"),
        ({"final_answer_correct": "yes"}, "wrong type"),
    ],
)
def test_a_bad_row_is_refused(change, reason):
    with pytest.raises(RejectedError, match=f"^{reason}: "):
        read(change)


def test_a_step_is_cut_at_the_separator_and_labelled_at_its_last_part():
    whole = read({"steps": ["a", "b:\n- c\n \n- d", "e\nf"]})
    result = step_files.cut_steps(dataclasses.replace(whole, num_completions=[0, 8, 9]), "\n")
    # a blank line belongs to the part before it; what is tokenised ends with one more separator
    assert result.steps == ["a", "b:", "- c\n ", "- d", "e", "f"]
    assert "\n".join(result.steps) == "\n".join(whole.steps)
    assert result.labels == [1.0, None, None, 0.0, None, None]
    assert result.true_labels == [True, None, None, False, None, False]
    assert result.num_completions == [0, 0, 0, 8, 0, 9]
    assert step_files.cut_steps(whole, "\n\n") == whole
    assert (
        step_files.cut_steps(dataclasses.replace(whole, true_labels=None), "\n").true_labels is None
    )


@pytest.mark.skipif(not FILES.is_dir(), reason="ProcessBench is not at ../shared/data/processbench")
@pytest.mark.parametrize(
    ("subset", "solutions", "steps", "parts"),
    [("gsm8k", 77, 272, 2669), ("math", 419, 2159, 11409)],
)
def test_steps_of_processbench_that_are_cut(subset, solutions, steps, parts):
    read = step_files.read_solutions(FILES / f"{subset}.json.gz", FORM)
    whole = [raw for row in read for raw in row]
    result = [step_files.cut_steps(raw, "\n") for raw in whole]
    pairs = list(zip(whole, result, strict=True))
    assert sum(raw != item for raw, item in pairs) == solutions
    assert sum("\n" in text for raw in whole for text in raw.steps) == steps
    assert sum(len(item.steps) for item in result) == parts
    for raw, parsed in pairs:
        assert "\n".join(parsed.steps) == "\n".join(raw.steps)
        assert [label for label in parsed.true_labels if label is not None] == raw.true_labels
        known = [label for label in parsed.labels if label is not None]
        assert known == [label for label in raw.labels if label is not None]
        assert step_files.cut_steps(raw, "\n\n") == raw


@pytest.mark.skipif(not FILES.is_dir(), reason="ProcessBench is not at ../shared/data/processbench")
@pytest.mark.parametrize("subset", TABLE_2)
def test_the_counts_are_those_of_the_paper(subset):
    rows = list(step_files.read_solutions(FILES / f"{subset}.json.gz", step_files.ProcessBench(
        kind="processbench")))  # fmt: skip
    assert not any(isinstance(row, BadRow) for row in rows)
    result = [raw for row in rows for raw in row]
    wrong = [raw for raw in result if 0.0 in raw.labels]
    assert (len(wrong), len(result) - len(wrong), sum(raw.correct for raw in wrong)) == TABLE_2[
        subset
    ]
    assert all(raw.correct for raw in result if 0.0 not in raw.labels)


SAMPLE = Path(__file__).parents[4] / "shared/data/prm_format_samples/math_shepherd_sample7.jsonl"
CONFIG = step_files.MathShepherd(kind="math_shepherd", num_completions=8)
INPUT = "2 + 2 - 1? Step 1: 2+2 = 4 ки\nStep 2: The answer is: 4 ки"


def read_marked(text: str, signs: str) -> RawSteps:
    label = text
    for sign in signs:
        label = label.replace("ки", sign, 1)
    (result,) = CONFIG.solutions({"input": text, "label": label}, 1)
    return result


def test_each_marker_has_the_sign_that_stands_in_its_place():
    result = read_marked(INPUT, "+-")
    assert result.question == "2 + 2 - 1?"
    assert result.steps == ["Step 1: 2+2 = 4", "Step 2: The answer is: 4"]
    assert (result.labels, result.num_completions) == ([1.0, 0.0], [8, 8])
    assert (result.correct, result.finished, result.true_labels) == (False, True, None)


def test_a_step_may_be_right_again_and_the_last_label_is_the_answers():
    result = read_marked(INPUT, "-+")
    assert (result.labels, result.correct) == ([0.0, 1.0], True)


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
        CONFIG.solutions({"input": text, "label": label}, 1)


@pytest.mark.skipif(not SAMPLE.is_file(), reason="no ../shared/data/prm_format_samples")
def test_the_real_rows():
    result = [raw for row in step_files.read_solutions(SAMPLE, CONFIG) for raw in row]
    assert [len(raw.steps) for raw in result] == [5, 3, 2, 5, 5, 2, 3]
    assert [sum(raw.labels) for raw in result] == [4, 0, 0, 0, 1, 0, 0]
    assert result[0].question.startswith("Janet pays $40/hour")
    assert result[0].steps[0] == (
        "Step 1: Janet spends 3 hours + 5 hours = <<3+5=8>>8 hours per week on music lessons."
    )
    assert result[0].labels == [1.0, 1.0, 1.0, 1.0, 0.0]
    assert not any(raw.correct for raw in result)


STEPWISE = {"prompt": "How much?", "completions": ["a", "b"], "labels": [True, False]}


@pytest.mark.parametrize("labels", [[True, False], [1, 0], [1.0, 0.0], ["+", "-"], ["True", "0"]])
def test_labels_of_steps_are_flags_digits_or_signs(labels):
    form = step_files.Stepwise(kind="stepwise")
    (result,) = form.solutions(STEPWISE | {"labels": labels}, 1)
    assert result.labels == [1.0, 0.0]


@pytest.mark.parametrize("labels", [[1, -1], [1, 0.5], [1, None], ["+", "?"], [1], [1, 0, 1]])
def test_labels_of_steps_that_may_mean_more_are_refused(labels):
    form = step_files.Stepwise(kind="stepwise")
    with pytest.raises(RejectedError, match=r"no labels: .* 1 or 0, or \+ or - for each of the 2"):
        form.solutions(STEPWISE | {"labels": labels}, 1)


FORMS = [
    (step_files.Stepwise(kind="stepwise"), STEPWISE), (FORM, ROW),
    (CONFIG, {"input": "2? Step 1: 2 ки", "label": "2? Step 1: 2 +"}),
]  # fmt: skip


@pytest.mark.parametrize(("form", "row"), FORMS)
@pytest.mark.parametrize(
    "more",
    [{"system": "Use base 7."}, {"context": "TABLE"}, {"images": ["x.png"]}, {"split": "test"}],
)
def test_a_column_that_carries_meaning_is_refused_unless_it_is_ignored(tmp_path, form, row, more):
    path, (name,) = tmp_path / "mine.jsonl", more
    path.write_text(json.dumps(row) + "\n" + json.dumps(row | more))
    with pytest.raises(ValueError, match=rf"row 2: {name} carries meaning.*ignore: \[{name}\]"):
        list(step_files.read_solutions(path, form))
    assert len(list(step_files.read_solutions(path, form, [name]))) == 2


@pytest.mark.parametrize(("form", "row"), FORMS)
def test_a_row_that_the_file_marks_as_invalid_is_left_out(tmp_path, form, row):
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(row | {"is_valid": True}) + "\n" + json.dumps(row | {"deleted": 1}))
    good, bad = step_files.read_solutions(path, form)
    assert isinstance(good, list)
    assert isinstance(bad, BadRow)
    assert bad.line == 2
    assert bad.reason.startswith("marked as invalid: 'deleted' is 1;")
    assert good == next(iter(step_files.read_solutions(path, form, ["deleted"])))


@pytest.mark.parametrize(("form", "row"), FORMS)
def test_what_says_nothing_of_the_steps_is_reported_as_not_read(tmp_path, form, row):
    path, report = tmp_path / "mine.jsonl", SourceReport(path="mine.jsonl")
    path.write_text(json.dumps(row | {"generator": "m", "final_answer": "4", "images": None}))
    (result,) = step_files.read_solutions(path, form, report=report)
    assert not isinstance(result, BadRow)
    described = problem_files.describe_report(report)
    assert described.startswith(f"mine.jsonl: labelled steps ({form.kind}), 1 rows; read as ")
    assert all(f"'{name}'" in described for name in row)
    assert described.endswith("columns that are not read: generator, final_answer, images")
