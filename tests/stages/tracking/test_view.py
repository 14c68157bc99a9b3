"""Running stages in MLflow: a real store, and journals that grow, shrink and vanish."""

import json
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import mlflow
import pytest
import report_inputs

from stages.records import lines
from stages.runtime import journal
from stages.tables import NAME
from stages.tracking import headlines, registry, store, view
from stages.tracking.headlines import BestPolicy
from stages.tracking.lockfile import Artifact, Entry

FOLDER = Path(".pipe/train@dpo-0123456789abcdef")
KEY = "seed-0/loss/total"


RECORD = {
    "attempt": 1, "git_dirty": False, "host": "h", "device": "cpu", "git_commit": None,
    "started": "2026-01-01T00:00:00+00:00", "ended": "2026-01-01T00:00:01+00:00", "seconds": 1.0,
    "peak_memory_bytes": None,
}  # fmt: skip


def make_entry(stage, *, deps=(), outs=()):
    """A stage whose journal is empty."""
    journals = Path("data/journals") / stage.replace("@", "/")
    journals.mkdir(parents=True, exist_ok=True)
    (journals / "journal.jsonl").touch()
    return Entry(
        stage=stage,
        description="",
        command="",
        params={},
        deps=[Artifact(path=path, digest="0") for path in deps],
        outs=[Artifact(path=path, digest="0") for path in (journals, *outs)],
        input_key="key",
        lock_hash="",
        result_hash=stage,
    )


def write(indices, *, scale=1.0, attempt=1, torn="", stage="train@dpo", seed=0):
    """A journal as it is when these steps were done; times differ at every call."""
    execution = {"execution_id": "e" * 32, "stage": stage, "input_key": "k", "attempt": attempt}
    (FOLDER / f"seed-{seed}").mkdir(parents=True, exist_ok=True)
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
    (FOLDER / f"seed-{seed}/journal.jsonl").write_text(text + torn)
    (FOLDER / "journal.jsonl").write_text("")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a store, whose making takes seconds."""
    folder = tmp_path_factory.mktemp("live")
    (folder / "params.yaml").write_text("seeds: [0]\n")
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


def test_the_mean_over_seeds_follows_when_every_seed_has_the_step(shown, monkeypatch):
    last = {}
    monkeypatch.setattr(view, "read_yaml", lambda: {"seeds": [0, 1]})
    write(range(3))
    assert shown(last, "loss/total")[1] == []
    write(range(2), scale=3.0, seed=1)
    assert shown(last, "loss/total")[1] == [(0, 2.0), (1, 1.0)]


def test_completions_of_the_first_seed_follow_with_the_steps(shown, place, tmp_path):
    last = {}
    write(range(1))
    path = FOLDER / "seed-0/loop/rollouts.jsonl"
    path.parent.mkdir(parents=True)
    for step in range(3):
        with path.open("a") as file:
            file.write(json.dumps({"completion": f"of {step}", "id": "a", "step": step}) + "\n")
        run, _ = shown(last)
        (listed,) = json.loads(run.data.tags["mlflow.loggedArtifacts"])
        with store.connect(place) as target:
            table = target.client.download_artifacts(run.info.run_id, listed["path"], str(tmp_path))
        rows = json.loads(Path(table).read_text())["data"]
        assert [row[1] for row in rows] == [f"of {number}" for number in range(step + 1)]


@pytest.mark.parametrize("row", ["dpo-beta0.5", "a..b", "0.", "A_b-1.0-", "x" * 100])
def test_every_row_name_that_the_plan_allows_is_tracked(place, monkeypatch, row):
    monkeypatch.chdir(place)
    assert NAME.fullmatch(row)
    model = Path("data/policies") / row / "model"
    (model / "0").mkdir(parents=True)
    (model / "0/config.json").write_text("{}")
    entry = make_entry(f"train@{row}", outs=[model])
    chosen = BestPolicy(stage=entry.stage, seed="0", tags={})
    with store.connect(place) as target:
        run = view.sync_stage(target, entry, RECORD | {"execution_id": row})
        registry.mark_best(target, run.run_id, chosen)
        version = target.client.get_model_version_by_alias("posttrain-policy", "best")
        assert version.tags["dvc.path"] == f"data/policies/{row}/model/0"
        target.log_numbers(run.run_id, {f"accuracy/{row}": 1.0}, 0)


def test_the_data_sets_of_a_run_are_data_and_policies_and_no_sources(place, monkeypatch):
    monkeypatch.chdir(place)
    deps = ["data/code/train_grpo.json", "data/inputs.json", "data/policies/sft/model",
            "data/prompts", "data/rewards/rule", "params.yaml"]  # fmt: skip
    entry = make_entry("train@inputs", deps=map(Path, deps))
    with store.connect(place) as target:
        run = view.sync_stage(target, entry, RECORD | {"execution_id": "inputs"})
        inputs = target.client.get_run(run.run_id).to_dictionary()["inputs"]["dataset_inputs"]
    names = [item["dataset"]["name"] for item in inputs]
    assert sorted(names) == ["policies/sft/model", "prompts", "rewards/rule"]


def test_a_run_of_episodes_has_its_numbers_and_conversations(place, monkeypatch):
    monkeypatch.chdir(place)
    folder = Path("data/episodes/grpo-test")
    played = [report_inputs.episode(f"s{at}", 0, is_right=at == 0) for at in range(2)]
    for seed, success in enumerate((0.5, 1.0)):
        lines.write_lines(folder / str(seed) / "episodes.jsonl", played)
        report_inputs.write_json(f"episodes/grpo-test/{seed}/metrics.json", {"success": success})
    entry = make_entry("play@grpo-test", outs=[folder])
    with store.connect(place) as target:
        run = view.sync_stage(target, entry, RECORD | {"execution_id": "played"})
        logged = target.client.get_run(run.run_id).data
        path = target.client.download_artifacts(run.run_id, "completions/episodes.json")
    assert logged.metrics["success"] == 0.75
    assert "completions/episodes.json" in logged.tags["mlflow.loggedArtifacts"]
    table = json.loads(Path(path).read_text(encoding="utf-8"))
    assert table["columns"][:3] == ["conversation", "reward", "success"]
    assert "[assistant, turn 2, reward 1]\n7" in table["data"][0][0]
    assert [row[2] for row in table["data"]] == [True, False]


def test_what_a_seed_used_is_a_system_metric(place, monkeypatch):
    monkeypatch.chdir(place)
    folder = Path("data/runs/train/used/key-0")
    folder.mkdir(parents=True)
    (folder / "journal.jsonl").touch()
    (folder / "run.json").write_text(json.dumps({"ended": "2026-01-01T00:00:00+00:00"}))
    row = journal.JournalRow(index=0, time=1.0, metrics={"cpu_cores": 0.75})
    (folder / "usage-seed-0.jsonl").write_text(json.dumps(asdict(row)) + "\n")
    entry = make_entry("train@used")
    with store.connect(place) as target:
        run = view.sync_stage(target, entry, RECORD | {"execution_id": "used"})
        metrics = target.client.get_run(run.run_id).data.metrics
    assert metrics["system/seed-0/cpu_cores"] == 0.75


def test_a_deleted_experiment_is_restored_as_the_message_says(place, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "deleted")
    with store.connect(place) as target:
        target.client.delete_experiment(target.experiment_id)
    with pytest.raises(store.OUTAGES) as caught, store.connect(place):
        pass
    message = store.describe_outage(caught.value, "stages.track")
    restore = f"mlflow experiments restore --experiment-id {target.experiment_id}"
    assert restore in message
    subprocess.run([sys.executable, "-m", *restore.split()], check=True, timeout=60)
    with store.connect(place) as again:
        assert again.experiment_id == target.experiment_id


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


def test_the_evaluation_of_the_manifest_that_was_tracked_last_is_shown(tmp_path, monkeypatch):
    """The third manifest has the first one's evaluation, which is older than the second one's."""
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/m.db")
    tracked = store.Store(client, client.create_experiment("x", artifact_location=str(tmp_path)))
    started = "2026-01-01T00:00:00+00:00"
    run = tracked.run("posttrain.execution_id", "a", name="train grpo", started=started, tags={})
    entry = make_entry("evaluate@grpo")
    for second, accuracy in ((1, 0.5), (2, 0.62), (1, 0.5), (1, 0.5)):
        monkeypatch.setattr(headlines, "average_headlines", lambda _, value=accuracy: {"a": value})
        record = {"ended": f"2026-01-01T00:00:0{second}+00:00"}
        view._log_evaluation(tracked, entry, {"train@grpo": (run, {}), entry.stage: (run, record)})
        assert client.get_run(run.run_id).data.metrics["a"] == accuracy
    points = client.get_metric_history(run.run_id, "a")
    assert [point.value for point in points] == [0.5, 0.62, 0.5], "the last is not logged again"
