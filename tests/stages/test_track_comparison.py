"""A comparison's run in a real sqlite store."""

import json
import shutil
from pathlib import Path

import mlflow
import pytest

from stages import track_comparison

INTERVAL = {"value": 0.5, "low": 0.4, "high": 0.6}
FOUND = {
    "num_seeds": 2,
    "num_problems": 9,
    "tokens": 1000,
    "policies": {name: {"mean": INTERVAL} for name in ("sft", "dpo", "grpo")},
    "pairs": {"mean": [{"first": "grpo", "second": "dpo", "resolved": True, **INTERVAL}]},
    "gains": {"mean": []},
    "spent": [
        {"policy": name, "seed": seed, "before": 7, "generated": 0, "trained": 993 + seed,
         "total": 1000 + seed, "seconds": 1.5}
        for name in ("dpo", "grpo") for seed in (0, 1)
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = Path("data/compare/mine")
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(json.dumps(FOUND))
    (folder / "verdict.md").write_text("grpo beats dpo")
    return folder


def runs():
    client = mlflow.MlflowClient(f"sqlite:///{Path.cwd()}/mlflow.db")
    experiment = client.get_experiment_by_name("posttrain")
    assert experiment is not None
    return client, client.search_runs([experiment.experiment_id])


def test_a_comparison_is_one_run_however_often_it_is_told(folder):
    for _ in range(2):
        track_comparison.main("mine")
    client, (run,) = runs()
    assert run.info.run_name == "compare mine"
    assert run.info.status == "FINISHED"
    assert run.data.params == {
        "tokens": "1000",
        "policies": "dpo,grpo",
        "seeds": "0,1",
        "num_problems": "9",
    }
    metrics = run.data.metrics
    assert metrics["policies.sft.mean.value"] == 0.5
    assert metrics["pairs.mean.grpo-dpo.low"] == 0.4
    assert metrics["pairs.mean.grpo-dpo.resolved"] == 1.0
    assert metrics["spent.dpo.seed-1.total"] == 1001.0
    names = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert names == {"metrics.json", "verdict.md"}
    (folder / "metrics.json").write_text(json.dumps(FOUND | {"tokens": 2000}))
    track_comparison.main("mine")
    assert sorted(run.data.params["tokens"] for run in runs()[1]) == ["1000", "2000"]


def test_the_same_comparison_under_another_name_is_another_run(folder):
    shutil.copytree(folder, folder.parent / "yours")
    for name in ("mine", "yours"):
        track_comparison.main(name)
    assert sorted(run.info.run_name for run in runs()[1]) == ["compare mine", "compare yours"]


def test_a_name_of_no_comparison_is_an_error_not_an_outage():
    with pytest.raises(SystemExit, match="no comparison data/compare/typo; there is mine"):
        track_comparison.main("typo")
    assert not Path("mlflow.db").exists()


def test_a_store_that_cannot_be_reached_is_told_without_its_password(monkeypatch, caplog):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:secret@127.0.0.1:9")
    track_comparison.main("mine")
    assert "run `python -m stages.track_comparison mine` when it can be reached" in caplog.text
    assert "secret" not in caplog.text
