"""Which outputs are copied into MLflow, under which names."""

from pathlib import Path
from unittest.mock import Mock

import mlflow

from stages.tracking import artifacts, store
from stages.tracking.lockfile import Artifact, Entry
from stages.tracking.store import Store


def entry(*outs: Path) -> Entry:
    return Entry(
        stage="a",
        description="",
        command="a",
        params={},
        deps=[],
        outs=[Artifact(path=path, digest="0") for path in outs],
        input_key="0",
        lock_hash="0",
        result_hash="0",
    )


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")


def test_of_a_folder_with_models_no_file_of_a_model_is_copied(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reward, record = Path("data/rewards/ensemble"), Path("data/journals/reward/ensemble")
    members = [f"{seed}/model/{member}" for seed in (0, 1) for member in (0, 1)]
    for model in members:
        write(reward / model, "config.json", "tokenizer.json", "model.safetensors")
    write(reward, "reward.json", "0/metrics.json", "1/metrics.json")
    write(record, "key.json", "journal-seed-0.jsonl")
    result = {
        path.as_posix(): folder
        for path, folder in artifacts.find_small_files(entry(reward, record))
    }
    assert result == {
        "data/rewards/ensemble/reward.json": None,
        "data/rewards/ensemble/0/metrics.json": "0",
        "data/rewards/ensemble/1/metrics.json": "1",
        "data/journals/reward/ensemble/key.json": "run",
        "data/journals/reward/ensemble/journal-seed-0.jsonl": "run",
    }
    # Reward models are no policies to deploy.
    assert list(artifacts.find_policies(entry(reward, record))) == []


def test_the_policy_of_each_seed_is_a_checkpoint_and_none_along_the_way(tmp_path):
    for folder in ("model/0", "model/1", "training/0/checkpoints/step-0008"):
        write(tmp_path / folder, "config.json", "model.safetensors")
    result = artifacts.find_policies(entry(tmp_path / "model", tmp_path / "training"))
    assert [path.relative_to(tmp_path).as_posix() for path, _ in result] == ["model/0", "model/1"]


def test_names_keep_their_meaning():
    assert store.escape_key("pass@4") == "pass_at_4"
    assert store.escape_key("policies.grpo.mean (all)/loss-1") == "policies.grpo.mean _all_/loss-1"


def test_batches_leave_nothing_out():
    client = Mock(spec=mlflow.MlflowClient)
    Store(client, "0").log("run", "params", list(range(250)))
    calls = [call.kwargs["params"] for call in client.log_batch.call_args_list]
    assert [len(batch) for batch in calls] == [100, 100, 50]
    assert [item for batch in calls for item in batch] == list(range(250))
