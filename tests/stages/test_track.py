"""`track` in a real pipeline: what it adds by itself, side by side, and in an experiment of DVC.
What it makes of a finished pipeline: tracking/test_view.py."""

from typing import Any

import mlflow
import pytest
from toy_repo import ToyRepo, make_toy_repo

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
def repo(tmp_path_factory) -> ToyRepo:
    """The pipeline after `dvc repro`."""
    repo = make_toy_repo(tmp_path_factory.mktemp("tracked") / "toy")
    repo.repro()
    return repo


def test_four_calls_on_a_fresh_store_add_each_run_once(repo, tmp_path) -> None:
    uri = f"sqlite:///{tmp_path}/fresh.db"
    calls = [repo.start(*TRACK, MLFLOW_TRACKING_URI=uri) for _ in range(4)]
    outputs = [call.communicate(timeout=600)[0] for call in calls]
    assert [call.returncode for call in calls] == [0, 0, 0, 0], outputs
    assert sum("MLflow: 7 runs added" in text for text in outputs) == 1, outputs
    assert sum("MLflow: 0 runs added" in text for text in outputs) == 3, outputs
    assert set(list_names(repo, uri)) == {stage.replace("@", " ") for stage in STAGES}


@pytest.mark.weekly
def test_an_experiment_in_a_temporary_copy_is_a_group_in_the_store_of_the_checkout(
    repo,
) -> None:
    before = list_runs(repo)
    repo.commit("lock")
    output = repo.run("dvc", "exp", "run", "--temp", "--name", "hot", "-S", "goal=0.375")
    assert "WARNING" not in output
    added = {run.info.run_name for key, run in list_runs(repo).items() if key not in before}
    assert added >= {"manifest hot", "evaluate sft", "evaluate dpo", "compare"}
    assert "train dpo" not in added
    repo.run("dvc", "exp", "apply", "hot")
    assert "0 runs added" in repo.run(*TRACK)
