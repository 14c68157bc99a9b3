"""The study on random process models, of solutions whose wrong steps are known."""

import csv
import dataclasses
import json

import pytest
import studied_run
from studied_run import SEEDS

from stages.records import lines
from stages.records.steps import StepLabels
from stages.rows import DATA
from stages.studies import step_errors
from stages.studies.step_error_metrics import StepPrediction

SETTINGS = {
    "process": "process", "policy": "sft", "dev": "dev", "test": "test",
    "max_solutions_per_problem": 4, "leave_out_long": False, "num_bootstrap": 100,
    "confidence": 0.95,
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    studied_run.make("step_errors", SETTINGS)


def write(name: str, numbers: range, num_steps: int = 3) -> list[StepLabels]:
    words, rows = studied_run.words(), []
    for number in numbers:
        right = number % (num_steps + 1)
        steps = [f"{number} + {step} = {number + step}\n" for step in range(num_steps)]
        rows.append(
            StepLabels(
                id=f"p{number}", index=0, prompt=f"{number}?",
                prompt_ids=words(f"{number}?")["input_ids"], steps=steps,
                step_ids=[words(step)["input_ids"] for step in steps], labels=[None] * num_steps,
                num_completions=[0] * num_steps,
                true_labels=[step < right for step in range(num_steps)],
                correct=right == num_steps or number % 5 == 0, source="truth",
            )
        )  # fmt: skip
    lines.write_lines(DATA / f"steps/{name}/heldout.jsonl", rows)
    return rows


def run() -> tuple[dict, list[StepPrediction]]:
    step_errors.main()
    metrics = json.loads(studied_run.outputs("step_errors")["metrics.json"])
    path = DATA / "studies/step_errors/rows/0/predictions.jsonl"
    return metrics, list(lines.read_lines(path, StepPrediction))


def test_the_threshold_is_of_dev_and_the_numbers_are_of_test():
    write("dev", range(40))
    rows = write("test", range(40, 80))
    both, predictions = run()
    written = studied_run.outputs("step_errors")
    assert set(both) == {str(seed) for seed in SEEDS}
    metrics = both["0"]
    assert (metrics["dev_solutions"], metrics["solutions"]) == (40, 40)
    assert (metrics["erroneous"], metrics["correct"]) == (30, 10)
    assert [item.first_error for item in predictions] == [
        row.true_labels.index(False) if False in row.true_labels else -1 for row in rows
    ]
    assert all(len(item.scores) == 3 for item in predictions)
    wrong = [item for item in predictions if item.first_error != -1]
    result = sum(item.predicted == item.first_error for item in wrong) / len(wrong)
    assert metrics["model"]["error_accuracy"]["value"] == pytest.approx(result, abs=1e-6)
    assert metrics["always_correct"]["f1"]["value"] == 0.0
    assert metrics["outcome_and_middle"]["correct_accuracy"]["value"] == 1.0
    assert metrics["right_answer_wrong_process"]["solutions"] > 0
    assert written["plots/1/step_scores.png"].startswith(b"\x89PNG")
    assert "Over 2 seeds the process model's F1 is" in written["report.md"].decode()
    run()
    assert studied_run.outputs("step_errors") == written
    # Other test rows, the same threshold; the scores of a row do not depend on the others.
    first, *others = write("test", range(60, 80))
    # The first two steps are parts of one that was marked.
    cut = dataclasses.replace(first, true_labels=[None, False, False])
    lines.write_lines(DATA / "steps/test/heldout.jsonl", [cut, *others])
    fewer, last = run()
    assert last[0].scores == predictions[20].scores[1:]
    assert fewer["0"]["threshold"] == metrics["threshold"]
    assert [item.predicted for item in last[1:]] == [item.predicted for item in predictions[21:]]


def test_the_same_problems_for_dev_and_test_are_refused():
    write("dev", range(40))
    write("test", range(39, 60))
    with pytest.raises(ValueError, match="the threshold would be chosen on the test"):
        run()


def test_samples_of_generated_problems_have_a_known_truth():
    settings = SETTINGS | {"dev": "samples", "test": "samples"}
    content = {"step_errors": settings}
    studied_run.write_yaml(step_errors.studies.STUDY_PARAMS, content)
    with pytest.raises(ValueError, match="which only generated word problems have"):
        run()


def row(scores: list[float], first_error: int) -> StepPrediction:
    return StepPrediction(id="a", index=0, scores=scores, predicted=-1, first_error=first_error)


ROWS = [row([0.9, 0.2, 0.5], 1), row([0.4], 0), row([0.8, 0.6], -1)]


def test_scores_are_averaged_by_distance_from_the_first_error():
    places = step_errors.average_around_first_error(ROWS)
    assert [tuple(place) for place in places] == [
        (-1, 0.9, 1),
        (0, (0.2 + 0.4) / 2, 2),
        (1, 0.5, 1),
    ]
    far = step_errors.average_around_first_error([row([0.5] * 12, 6)])
    assert [place[0] for place in far] == list(range(-3, 4))


def test_two_runs_write_the_same_bytes_and_the_table_holds_the_plots_numbers(tmp_path):
    for name in ("a", "b"):
        step_errors.draw_plots(tmp_path / name, ROWS, 0.5)
    for file in ("step_scores.png", "step_scores.csv"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    with (tmp_path / "a/step_scores.csv").open(encoding="utf-8") as file:
        assert list(csv.reader(file)) == [
            ["offset", "score", "steps"],
            ["-1", "0.9", "1"],
            ["0", "0.3", "2"],
            ["1", "0.5", "1"],
        ]
