"""`track` in a real pipeline: what it adds by itself, side by side, and in an experiment of DVC.
What it makes of a finished pipeline: tracking/test_view.py."""

import json
from pathlib import Path
from typing import Any

import mlflow
import pytest
from toy_repo import ToyRepo, make_toy_repo

from stages.tracking import lockfile

pytestmark = pytest.mark.slow

STAGES = {"train@sft", "train@dpo", "sample@dpo", "evaluate@sft", "evaluate@dpo", "compare"}
TRACK = ("python", "-m", "stages.track")


def list_runs(repo: ToyRepo, uri: str = "") -> dict[str, Any]:
    client = mlflow.MlflowClient(uri or f"sqlite:///{repo.path}/mlflow.db")
    experiment = client.get_experiment_by_name("posttrain").experiment_id
    found = client.search_runs([experiment])
    return {run.info.run_id: run for run in found}


def list_names(repo: ToyRepo, uri: str = "") -> list[str]:
    names = sorted(run.info.run_name for run in list_runs(repo, uri).values())
    return [name for name in names if not name.startswith("manifest")]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[ToyRepo, str]:
    """The pipeline after `dvc repro`, and what that printed."""
    repo = make_toy_repo(tmp_path_factory.mktemp("tracked") / "toy")
    return repo, repo.repro()


def test_a_pipeline_ends_with_its_runs_seconds_and_verdict(finished) -> None:
    repo, output = finished
    assert list_names(repo) == sorted(stage.replace("@", " ") for stage in STAGES)
    manifest = json.loads((repo.path / "data/tracked/manifest.json").read_text())
    assert set(manifest) == STAGES
    lines = output[output.index("seconds of each stage") :].splitlines()
    kinds = ["compare", "evaluate", "sample", "train", "all"]
    assert [line.split()[0] for line in lines[1:6]] == kinds
    assert "First.\nSecond.\nThird.\n\nThe report: data/report/report.html" in output
    (dpo,) = [run for run in list_runs(repo).values() if run.info.run_name == "train dpo"]
    record = repo.record("train@dpo")
    assert dpo.data.metrics["run/seconds"] == record["seconds"]
    assert dpo.data.tags["posttrain.execution_id"] == record["execution_id"]
    for seed in (0, 1):
        path = repo.find_record("train@dpo") / f"journal-seed-{seed}.jsonl"
        rows = [json.loads(line)["metrics"]["loss/total"] for line in path.read_text().splitlines()]
        assert dpo.data.metrics[f"seed-{seed}/loss/total"] == rows[-1]


def test_an_execution_that_changes_nothing_leaves_the_lock_and_a_second_record(
    finished, monkeypatch
) -> None:
    repo, _ = finished
    monkeypatch.chdir(repo.path)
    lock = Path("dvc.lock").read_bytes()
    (entry,) = [entry for entry in lockfile.read_entries() if entry.stage == "train@sft"]
    first = entry.record
    repo.repro("--force", "--single-item", "train@sft")
    assert Path("dvc.lock").read_bytes() == lock
    assert entry.record != first
    assert sorted(entry.record.parent.iterdir()) == sorted([first, entry.record])
    lines = Path("data/journals/train/sft/journal-seed-0.jsonl").read_text().splitlines()
    timed = (entry.record / "journal-seed-0.jsonl").read_text().splitlines()
    assert all(json.loads(line)["metrics"].keys() == {"loss/total"} for line in lines)
    assert [json.loads(line)["metrics"] for line in timed] == [
        json.loads(line)["metrics"] | {"time/step": 0.5} for line in lines
    ]


def test_four_calls_on_a_fresh_store_add_each_run_once(finished, tmp_path) -> None:
    repo, _ = finished
    uri = f"sqlite:///{tmp_path}/fresh.db"
    calls = [repo.start(*TRACK, MLFLOW_TRACKING_URI=uri) for _ in range(4)]
    outputs = [call.communicate(timeout=600)[0] for call in calls]
    assert [call.returncode for call in calls] == [0, 0, 0, 0], outputs
    assert sum("MLflow: 7 runs added" in text for text in outputs) == 1, outputs
    assert sum("MLflow: 0 runs added" in text for text in outputs) == 3, outputs
    assert set(list_names(repo, uri)) == {stage.replace("@", " ") for stage in STAGES}


def test_an_experiment_in_a_temporary_copy_is_a_group_in_the_store_of_the_checkout(
    finished,
) -> None:
    repo, _ = finished
    before = list_runs(repo)
    repo.commit("lock")
    output = repo.run("dvc", "exp", "run", "--temp", "--name", "hot", "-S", "goal=0.375")
    assert "WARNING" not in output
    added = {run.info.run_name for key, run in list_runs(repo).items() if key not in before}
    assert added >= {"manifest hot", "evaluate sft", "evaluate dpo", "compare"}
    assert "train dpo" not in added
    repo.run("dvc", "exp", "apply", "hot")
    assert "0 runs added" in repo.run(*TRACK)
