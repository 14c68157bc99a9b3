"""Running stages in MLflow: a real store, and journals that grow, shrink and vanish."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from stages.runtime import journal
from stages.tracking import store, view

FOLDER = Path(".pipe/train@dpo-0123456789abcdef")
KEY = "seed-0/loss/total"


def write(indices, *, scale=1.0, attempt=1, torn="", stage="train@dpo"):
    """A journal as it is when these steps were done; times differ at every call."""
    execution = {"execution_id": "e" * 32, "stage": stage, "input_key": "k", "attempt": attempt}
    (FOLDER / "seed-0").mkdir(parents=True, exist_ok=True)
    (FOLDER / "exec.json").write_text(json.dumps(execution))
    rows = [
        journal.JournalRow(
            index=index,
            time=1e9 + 100 * attempt + index,
            metrics={"loss/total": scale / (1 + index), "time/step": 0.5 * attempt},
        )
        for index in indices
    ]
    text = "".join(json.dumps(asdict(row)) + "\n" for row in rows)
    (FOLDER / "seed-0/journal.jsonl").write_text(text + torn)
    (FOLDER / "journal.jsonl").write_text("")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a store, whose making takes seconds."""
    folder = tmp_path_factory.mktemp("live")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with store.connect(folder):
            pass
    return folder


@pytest.fixture
def shown(place, monkeypatch, request):
    """Call to look once; the points of a metric, and the run, of an experiment of its own."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", request.node.name)
    shutil.rmtree(FOLDER, ignore_errors=True)

    def look(last, key=KEY):
        with store.connect(place) as target:
            for folder in view.find_running():
                view.send_points(target, folder, last)
            runs = target.client.search_runs([target.experiment_id])
            if not runs:
                return None, []
            (run,) = runs
            points = target.client.get_metric_history(run.info.run_id, key)
        return run, [(point.step, point.value) for point in points]

    return look


def test_new_points_follow_and_a_torn_line_waits(shown):
    last = {}
    write(range(2), torn='{"index": 2, "met')
    run, points = shown(last)
    assert points == [(0, 1.0), (1, 0.5)]
    assert run.info.run_name == "train dpo"
    assert run.info.status == "RUNNING"
    assert run.data.tags["posttrain.execution_id"] == "e" * 32
    assert (run.data.tags["stage"], run.data.tags["row"]) == ("train", "dpo")
    write(range(4))
    assert shown(last)[1] == [(0, 1.0), (1, 0.5), (2, 1 / 3), (3, 0.25)]


def test_what_a_resumed_attempt_does_again_is_no_second_point(shown):
    last = {}
    write(range(5))
    shown(last)
    write(range(3), attempt=2)  # cut back to its checkpoint
    assert len(shown(last)[1]) == 5
    write(range(7), attempt=2)
    _, points = shown(last)
    assert [step for step, _ in points] == list(range(7))


def test_another_process_goes_on_where_the_first_ended(shown):
    write(range(3))
    shown({})
    write(range(6))
    assert [step for step, _ in shown({})[1]] == list(range(6))


def test_times_are_left_to_the_end(shown):
    write(range(3))
    assert shown({}, "seed-0/time/step")[1] == []


def test_a_failure_shows_until_the_next_attempt(shown):
    last = {}
    write(range(3))
    (FOLDER / "failed.json").write_text("{}")
    shown(last)
    assert shown(last)[0].info.status == "FAILED"
    (FOLDER / "failed.json").unlink()
    shown(last)
    assert shown(last)[0].info.status == "RUNNING"


def test_studies_and_what_was_killed_long_ago_are_left_out(shown, monkeypatch):
    write(range(3), stage="studies/dvc.yaml:search")
    assert shown({}) == (None, [])
    write(range(3))
    monkeypatch.setattr(view, "SECONDS_OF_A_STEP", 0.0)
    assert shown({}) == (None, [])


def test_a_stage_that_ends_meanwhile_is_no_error(shown, place):
    write(range(3))
    (folder,) = view.find_running()
    shutil.rmtree(folder)
    with store.connect(place) as target:
        view.send_points(target, folder, {})


def test_points_that_are_known_are_not_sent_again_but_each_of_equal_steps_is():
    points = [view.Metric("a", value, 0, step) for step, value in ((0, 1.0), (0, 2.0), (1, 3.0))]
    known = view.Counter({("a", 0): 1})
    assert [point.value for point in view._drop_logged(points, known)] == [2.0, 3.0]
