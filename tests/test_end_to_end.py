"""`dvc repro` in a copy of the repository: what runs, what does not, what MLflow then holds."""

from collections.abc import Callable
from typing import Any

import pytest
from pipeline_copy import ROOT, PipelineCopy

from stages import params
from stages.recipe import TABLES, Recipe

PLAN = Recipe.model_validate(params.read(ROOT / "params.yaml")["plan"])
AFTER_GRPO = {
    "train_grpo@grpo",
    "sample_candidates@grpo-test",
    "score_candidates@grpo-test",
    "evaluate_policy@grpo",
    "probe_policy@grpo",
    "compare_policies",
    "compare_rewards",
    "compare_search",
    "compare_probes",
    "write_report",
    "evaluate_checkpoints@grpo",
    "report_overoptimization",
}
ALL = {
    "trace_code",
    "prepare_data",
    "assemble_ensembles",
    "compare_policies",
    "compare_rewards",
    "compare_search",
    "compare_probes",
    "write_report",
    "report_overoptimization",
    *(f"{stage}@{name}" for stage in TABLES for name in getattr(PLAN, stage)),
}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def repository(pipeline_copy: Callable[..., PipelineCopy]) -> PipelineCopy:
    copy = pipeline_copy(lambda params: None)
    assert copy.repro() == ALL
    return copy


def test_every_stage_really_ran_and_the_comparison_names_each_policy(repository: PipelineCopy):
    comparison = repository.read("data/compare_policies/metrics.json")["policies"]
    assert set(comparison) == set(PLAN.evaluate_policy)
    for name, numbers in comparison.items():
        accuracy = numbers["mean_accuracy"]
        assert 0 <= numbers["mean_accuracy_low"] <= accuracy <= numbers["mean_accuracy_high"] <= 1
        assert ("versus_baseline" in numbers) == (name != "sft")
    assert (repository.path / "data/compare_policies/report.md").read_text().count("grpo") > 1
    for name in ("train_ppo/ppo", "train_grpo/grpo"):
        assert (repository.path / f"data/{name}/policy/model.safetensors").exists()
        assert (repository.path / f"data/{name}/rollouts.jsonl").read_text()


def test_a_second_run_does_nothing(repository: PipelineCopy):
    lock = (repository.path / "dvc.lock").read_bytes()
    assert repository.repro() == set()
    assert (repository.path / "dvc.lock").read_bytes() == lock


def test_one_changed_parameter_reruns_its_descendants_and_changing_it_back_runs_nothing(
    repository: PipelineCopy,
):
    before = repository.records()
    lock = (repository.path / "dvc.lock").read_bytes()

    def set_steps(number: int) -> Callable[[dict[str, Any]], None]:
        return lambda params: params["train_grpo"]["loop"].update(num_steps=number)

    repository.change(set_steps(3))
    assert repository.repro() == AFTER_GRPO
    assert (repository.path / "dvc.lock").read_bytes() != lock
    repository.change(set_steps(2))
    assert repository.repro() == set()
    assert repository.records() == before
    assert (repository.path / "dvc.lock").read_bytes() == lock


def test_mlflow_holds_one_run_an_execution_and_one_manifest_a_lock(repository: PipelineCopy):
    def held() -> tuple[list[str], int]:
        runs = repository.mlflow_runs()
        ids = [run.data.tags.get("posttrain.execution_id") for run in runs]
        manifests = [run for run in runs if "posttrain.manifest" in run.data.tags]
        return sorted(found for found in ids if found), len(manifests)

    assert held() == (sorted(repository.executions), len(repository.locks))
    repository.run("-m", "stages.track")
    assert held() == (sorted(repository.executions), len(repository.locks))
