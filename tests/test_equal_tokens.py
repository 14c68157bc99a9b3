"""`flows.compare_local` in a small copy of the repository: two methods, two seeds, equal tokens."""

import json
from collections.abc import Callable
from typing import Any

import mlflow
import pytest
from pipeline_copy import PipelineCopy
from ruamel.yaml import YAML

pytestmark = pytest.mark.slow
BUDGET = 20_000
COMMAND = (
    "-m", "flows.compare_local", "--policies", "dpo,grpo", "--seeds", "0,1", "--name", "tried",
    "--tokens", str(BUDGET), "--recipe", "dpo_ppo_grpo",
)  # fmt: skip


def smaller(params: dict[str, Any]) -> None:
    params["sample_candidates"]["test"]["num_samples"] = 2
    params["sft"]["sft"]["num_epochs"] = 4


@pytest.fixture(scope="module")
def repository(pipeline_copy: Callable[..., PipelineCopy]) -> PipelineCopy:
    copy = pipeline_copy(smaller)
    copy.run(*COMMAND)
    return copy


def test_both_spend_the_budget_and_no_more_than_a_step_above_it(repository: PipelineCopy) -> None:
    spent = repository.read("data/compare/tried/metrics.json")["spent"]
    assert [(row["policy"], row["seed"]) for row in spent] == [
        (policy, seed) for policy in ("dpo", "grpo") for seed in (0, 1)
    ]
    for row in spent:
        assert BUDGET <= row["total"] < 1.2 * BUDGET
        assert row["total"] == row["before"] + row["generated"] + row["trained"]
        assert bool(row["before"]) == (row["policy"] == "dpo")


def test_seeds_share_the_problems_and_train_anew(repository: PipelineCopy) -> None:
    copies = [repository.path / f".pipe/compare/tried/seed-{seed}" for seed in (0, 1)]
    locks = [YAML(typ="safe").load(copy / "dvc.lock")["stages"] for copy in copies]
    outs = [{name: entry["outs"] for name, entry in lock.items()} for lock in locks]
    assert outs[0]["prepare_data"] == outs[1]["prepare_data"]
    assert outs[0]["train_sft@sft"] != outs[1]["train_sft@sft"]
    assert "train_ppo@ppo" not in outs[0], "nothing that no policy needs"
    assert "train_reward_model@sft-0" not in outs[0]


def test_the_verdict_is_written_and_rerunning_computes_nothing(repository: PipelineCopy) -> None:
    folder = repository.path / "data/compare/tried"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(before) == {"metrics.json", "verdict.md", "per_problem.jsonl"}
    (pair,) = json.loads(before["metrics.json"])["pairs"]["mean"]
    assert pair["low"] <= pair["value"] <= pair["high"]
    printed = repository.run(*COMMAND)
    assert "executed" not in printed
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    client = mlflow.MlflowClient(f"sqlite:///{repository.path}/mlflow.db")
    experiment = client.get_experiment_by_name("posttrain")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "compare tried"
