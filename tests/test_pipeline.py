"""`dvc repro` in one small copy of the repository, in which SFT is trained once: what runs and what
does not, what is restored, what a kill costs, what MLflow then holds; and README's commands."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from page_commands import COMMAND_BLOCKS, run_blocks
from pipeline_copy import FILES, Edit, PipelineCopy, find_edit
from resume.killed_stages import FAMILIES, KilledStages

from stages.config import read_yaml
from stages.environments.checks import check_replay
from stages.environments.definition import load_factory, read_environment, read_rows

pytestmark = pytest.mark.slow

POLICIES = ["sft", "dpo", "grpo"]
ROWS = {
    "train": "policies", "sample": "policies", "evaluate": "policies", "pool": "pools",
    "label": "pairs", "label_steps": "steps", "reward": "rewards", "environment": "environments",
    "play": "episodes",
}  # fmt: skip
"""Stage -> the table of which it runs once per row."""
GATHER = {"compare", "track"}


def of_policy(*names: str) -> set[str]:
    return {f"{stage}@{name}" for stage in ("train", "sample", "evaluate") for name in names}


def list_stages(path: Path) -> set[str]:
    content = read_yaml(path / "params.yaml")
    single = {"plan", "trace_code", "prepare_data", *GATHER}
    return single | {f"{stage}@{name}" for stage, table in ROWS.items() for name in content[table]}


class Change(NamedTuple):
    """What an edit of pipeline_edits.yaml runs beside plan and what gathers."""

    runs: set[str]
    policies: list[str] = []  # noqa: RUF012 - that it adds
    recipe: str = ""


OF_GAME = {"environment@g", "play@demos", "play@tries", "play@test", "label@tries"}
CHANGES = {
    "a number": Change(of_policy("grpo")),
    "a preset": Change({"trace_code", *of_policy("dpo")}),
    "a row": Change(of_policy("dapo"), ["dapo"]),
    # the samples of every policy are scored again
    "an own reward": Change(
        {"trace_code", "reward@mine", *of_policy("mine"), *(f"evaluate@{x}" for x in POLICIES)},
        ["mine"],
    ),
    "an own environment": Change(
        {"trace_code", *OF_GAME, *of_policy("copy", "play")}, ["copy", "play"]
    ),
    "a recipe": Change(
        {"pool@sft-train", "label@right", *of_policy("rft")}, ["rft"], "rejection_sampling"
    ),
}
"""A newly supported edit is a row."""
EDITED = (*FILES, "dvc.yaml")


@contextmanager
def restored(copy: PipelineCopy) -> Iterator[None]:
    """The files that users edit are afterwards what they were."""
    before = {name: (copy.path / name).read_text() for name in EDITED}
    yield
    for name, text in before.items():
        (copy.path / name).write_text(text)


def apply(copy: PipelineCopy, *names: str) -> set[str]:
    """Make the changes and run; what has to run."""
    for name in names:
        copy.change(find_edit(name))
    copy.switch_on(*filter(None, (CHANGES[name].recipe for name in names)))
    return {"plan", *GATHER}.union(*(CHANGES[name].runs for name in names))


@pytest.fixture(scope="module")
def copy(pipeline_copy: Callable[[Edit], PipelineCopy]) -> PipelineCopy:
    made = pipeline_copy(find_edit("few policies"))
    assert made.repro() == list_stages(made.path)
    return made


def test_every_policy_is_trained_for_each_seed_and_compared(copy: PipelineCopy) -> None:
    metrics = copy.read("data/report/metrics.json")
    assert list(metrics["policies"]) == POLICIES
    assert metrics["seeds"] == [0, 1]
    for name, policy in metrics["policies"].items():
        assert 0 <= policy["mean_accuracy"]["value"] <= 1
        assert set(policy["mean_accuracy"]["seeds"]) == {"0", "1"}
        models = [copy.path / f"data/policies/{name}/model/{seed}" for seed in (0, 1)]
        weights = [(model / "model.safetensors").read_bytes() for model in models]
        assert weights[0] != weights[1]


def test_a_second_run_does_nothing_and_the_first_left_records(copy: PipelineCopy) -> None:
    assert set(copy.records()) == list_stages(copy.path) - {"plan", "trace_code", "track"}
    lock = (copy.path / "dvc.lock").read_bytes()
    assert copy.repro() == set()
    assert (copy.path / "dvc.lock").read_bytes() == lock


def test_changes_rerun_what_they_reach_and_are_restored_when_undone(copy: PipelineCopy) -> None:
    before, lock = copy.records(), copy.locked()
    with restored(copy):
        expected = apply(copy, *CHANGES)
        assert copy.repro() == expected
        added = [name for change in CHANGES.values() for name in change.policies]
        report = copy.read("data/report/metrics.json")
        assert set(report["policies"]) == {*POLICIES, *added}
        journals = copy.path / "data/journals/train"
        assert "reward/own" in (journals / "mine/journal-seed-0.jsonl").read_text()
        assert "episode/turns" in (journals / "play/journal-seed-0.jsonl").read_text()
        assert copy.read("data/episodes/demos/0/metrics.json")["success"] == 1.0
        played = (copy.path / "data/episodes/test/0/episodes.jsonl").read_text().splitlines()
        assert len(played) == 4 * 8  # episodes of each start
        environment = read_environment(copy.path / "data/environments/g")
        starts = read_rows(copy.path / "data/environments/g", "test")
        check_replay(load_factory(environment), starts[:2], environment.preset, seed=1)
    # What gathers has seen these rows before.
    assert copy.repro() <= {"plan", "trace_code"}
    assert list(copy.read("data/report/metrics.json")["policies"]) == POLICIES
    assert not (copy.path / "data/policies/dapo").exists()
    assert copy.records() == before
    assert copy.locked() == lock


def test_a_wrong_word_costs_nothing_and_is_shown_with_what_was_meant(copy: PipelineCopy) -> None:
    with restored(copy):
        copy.change(find_edit("a wrong word"))
        with pytest.raises(AssertionError, match=r"'sfft'.*'sft'"):
            copy.repro()
        assert not (copy.path / "data/policies/wrong").exists()
    assert copy.repro() <= {"plan"}


def test_mlflow_holds_one_run_an_execution_and_one_manifest_a_lock(copy: PipelineCopy) -> None:
    def list_runs() -> tuple[list[str], int]:
        runs = copy.mlflow_runs()
        ids = [run.data.tags.get("posttrain.execution_id") for run in runs]
        manifests = [run for run in runs if "posttrain.manifest" in run.data.tags]
        return sorted(item for item in ids if item), len(manifests)

    executions, manifests = list_runs()
    assert set(executions) >= set(copy.records().values())
    assert len(executions) == len(set(executions))
    assert manifests >= 1
    copy.run("-m", "stages.track")
    assert list_runs() == (executions, manifests)


def test_the_commands_of_readme_run_in_their_order(
    copy: PipelineCopy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    run_blocks([block for block in COMMAND_BLOCKS if block.page == "README.md"], copy)


# It makes DVC forget its run cache: the last of this file.


@pytest.fixture(scope="module")
def stages(copy: PipelineCopy) -> KilledStages:
    return KilledStages(copy)


def test_a_killed_stage_ends_with_the_same_bits(stages: KilledStages) -> None:
    """A kind of stage a landing; all kinds weekly: resume/test_kills.py."""
    stages.check(FAMILIES["group_rl"], 1, random.Random("group_rl"))
