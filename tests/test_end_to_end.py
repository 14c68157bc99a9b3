"""`dvc repro` in a copy of the repository: what runs, what does not, what MLflow then holds."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pipeline_copy import ROOT, PipelineCopy

from stages.config import read_yaml

POLICIES = list(read_yaml(ROOT / "params.yaml")["policies"])
ROWS = {
    "train": "policies",
    "sample": "policies",
    "evaluate": "policies",
    "pool": "pools",
    "label": "pairs",
    "label_steps": "steps",
    "reward": "rewards",
}
"""Stage -> the table of which it runs once a row."""
DAPO = {"train": "grpo", "preset": "dapo", "from": "sft", "on": "rewards/rule"}
pytestmark = pytest.mark.slow


def of_policy(*names: str) -> set[str]:
    return {f"{stage}@{name}" for stage in ("train", "sample", "evaluate") for name in names}


def all_stages() -> set[str]:
    content = read_yaml(ROOT / "params.yaml")
    single = {"plan", "trace_code", "prepare_data", "compare", "track"}
    return single | {f"{stage}@{name}" for stage, table in ROWS.items() for name in content[table]}


@pytest.fixture(scope="module")
def repository(pipeline_copy: Callable[..., PipelineCopy]) -> PipelineCopy:
    copy = pipeline_copy(lambda params, presets: None)
    assert copy.repro() == all_stages()
    return copy


def test_every_policy_is_there_for_each_seed_and_the_report_compares_them(repository: PipelineCopy):
    metrics = repository.read("data/report/metrics.json")
    assert list(metrics["policies"]) == POLICIES
    assert metrics["seeds"] == [0, 1]
    for policy in metrics["policies"].values():
        accuracy = policy["mean_accuracy"]
        assert 0 <= accuracy["value"] <= 1
        assert set(accuracy["seeds"]) == {"0", "1"}
    for name in POLICIES:
        weights = [
            (repository.path / f"data/policies/{name}/model/{seed}/model.safetensors").read_bytes()
            for seed in (0, 1)
        ]
        assert weights[0] != weights[1]
    assert len((repository.path / "data/report/verdict.txt").read_text().splitlines()) == 4


def test_no_output_but_a_run_record_holds_a_time(repository: PipelineCopy):
    words = ('"seconds"', "time/", "_seconds")
    messages = [
        path.relative_to(repository.path).as_posix()
        for path in (repository.path / "data").rglob("*")
        if path.suffix in {".json", ".jsonl", ".csv", ".md"} and "runs" not in path.parts
        if any(word in path.read_text(encoding="utf-8") for word in words)
    ]
    assert messages == []


def test_a_second_run_does_nothing(repository: PipelineCopy):
    lock = (repository.path / "dvc.lock").read_bytes()
    assert repository.repro() == set()
    assert (repository.path / "dvc.lock").read_bytes() == lock


def test_a_policy_is_one_line_and_gone_with_it(repository: PipelineCopy):
    before, lock = repository.records(), (repository.path / "dvc.lock").read_bytes()
    text = (repository.path / "params.yaml").read_text()
    repository.change(lambda params, presets: params["policies"].update(dapo=DAPO))
    assert repository.repro() == {"plan", *of_policy("dapo"), "compare", "track"}
    assert list(repository.read("data/report/metrics.json")["policies"]) == [*POLICIES, "dapo"]
    (repository.path / "params.yaml").write_text(text)
    # What gathers has seen these rows before, and is restored.
    assert repository.repro() == {"plan"}
    assert list(repository.read("data/report/metrics.json")["policies"]) == POLICIES
    assert not (repository.path / "data/policies/dapo").exists()
    assert repository.records() == before
    assert stages_of(repository) == stages_of_text(lock)


def stages_of(repository: PipelineCopy) -> Any:
    return stages_of_text((repository.path / "dvc.lock").read_bytes())


def stages_of_text(lock: bytes) -> Any:
    """dvc.lock without what is no stage any more, and without plan, which reads the files whole."""
    from ruamel.yaml import YAML

    stages = YAML(typ="safe").load(lock.decode())["stages"]
    return {name: item for name, item in stages.items() if "dapo" not in name and name != "plan"}


def test_a_changed_preset_reruns_who_inherits_it_and_a_reverted_one_restores(
    repository: PipelineCopy,
):
    before = repository.records()
    path = repository.path / "stages/presets.yaml"
    text = path.read_text()

    def weigh_less(params: dict[str, Any], presets: dict[str, Any]) -> None:
        presets["dpo_low_beta"]["beta"] = 0.25

    repository.change(weigh_less)
    both = {"plan", "trace_code", *of_policy("dpo", "dpo-ai"), "compare", "track"}
    assert repository.repro() == both
    path.write_text(text)
    assert repository.repro() <= {"plan", "trace_code"}
    assert repository.records() == before


def test_one_number_of_a_method_reruns_its_policies_alone(repository: PipelineCopy):
    before = repository.records()
    repository.change(lambda params, presets: params["grpo"].update(num_steps=3))
    assert repository.repro() == {"plan", *of_policy("grpo"), "compare", "track"}
    repository.change(lambda params, presets: params["grpo"].update(num_steps=2))
    assert repository.repro() == {"plan"}
    assert repository.records() == before


def test_a_wrong_word_costs_nothing_and_is_told_with_what_was_meant(repository: PipelineCopy):
    text = (repository.path / "params.yaml").read_text()
    wrong = DAPO | {"from": "sfft"}
    repository.change(lambda params, presets: params["policies"].update(dapo=wrong))
    with pytest.raises(AssertionError, match=r"no policy 'sfft'; did you mean 'sft'\?"):
        repository.repro()
    assert not (repository.path / "data/policies/dapo").exists()
    (repository.path / "params.yaml").write_text(text)
    assert repository.repro() <= {"plan"}


def test_mlflow_holds_one_run_an_execution_and_one_manifest_a_lock(repository: PipelineCopy):
    def held() -> tuple[list[str], int]:
        runs = repository.mlflow_runs()
        ids = [run.data.tags.get("posttrain.execution_id") for run in runs]
        manifests = [run for run in runs if "posttrain.manifest" in run.data.tags]
        return sorted(item for item in ids if item), len(manifests)

    executions, manifests = held()
    assert executions == sorted(repository.executions)
    assert manifests == 4  # the first, with dapo, with another beta, with another number of steps
    repository.run("-m", "stages.track")
    assert held() == (executions, manifests)


def test_every_stage_left_a_record_with_cpu_threads_and_seconds(repository: PipelineCopy):
    records = repository.records()
    assert set(records) == all_stages() - {"plan", "trace_code", "track"}
    for path in repository.path.glob("data/runs/**/run.json"):
        record = json.loads(path.read_text())
        assert record["threads"] == 1
        assert record["cpu"]["flags"]
        assert record["seconds"] > 0
