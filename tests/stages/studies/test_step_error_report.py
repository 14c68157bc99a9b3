import csv

from stages.studies import step_error_report
from stages.studies.step_error_metrics import StepPrediction


def row(scores: list[float], first_error: int) -> StepPrediction:
    return StepPrediction(id="a", index=0, scores=scores, predicted=-1, first_error=first_error)


ROWS = [row([0.9, 0.2, 0.5], 1), row([0.4], 0), row([0.8, 0.6], -1)]


def test_scores_are_averaged_by_distance_from_the_first_error():
    places = step_error_report.around_first_error(ROWS)
    assert [tuple(place) for place in places] == [
        (-1, 0.9, 1),
        (0, (0.2 + 0.4) / 2, 2),
        (1, 0.5, 1),
    ]
    far = step_error_report.around_first_error([row([0.5] * 12, 6)])
    assert [place.offset for place in far] == list(range(-3, 4))


def test_two_runs_write_the_same_bytes_and_the_table_holds_the_plots_numbers(tmp_path):
    for name in ("a", "b"):
        step_error_report.write(tmp_path / name, ROWS, 0.5)
    for file in ("step_scores.png", "step_scores.csv"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    with (tmp_path / "a/step_scores.csv").open(encoding="utf-8") as file:
        assert list(csv.reader(file)) == [
            ["offset", "score", "steps"],
            ["-1", "0.9", "1"],
            ["0", "0.3", "2"],
            ["1", "0.5", "1"],
        ]
