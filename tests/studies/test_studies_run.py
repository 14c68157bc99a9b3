"""The studies that run stages in copies, on a small run of the real ones."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import studied_run
from conftest import shrink
from studied_run import ROOT

from stages.config import PARAMS_PATH, PRESETS_PATH, read_yaml
from studies import copies
from studies.copies import RepoCopy
from studies.study import STUDY_PARAMS

pytestmark = pytest.mark.weekly
BUDGET = 40_000


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RepoCopy:
    """SFT and DPO policies with their samples, made by the stages themselves."""
    path: Path = tmp_path_factory.mktemp("run")
    ignored = shutil.ignore_patterns("__pycache__", "plan.py")
    shutil.copytree(ROOT / "stages", path / "stages", ignore=ignored)
    shutil.copy(ROOT / "constraints.txt", path)
    content, presets = (read_yaml(ROOT / name) for name in (PARAMS_PATH, PRESETS_PATH))
    shrink(content, presets)
    content["sampling"]["test"]["num_samples"] = 2
    studied_run.write_yaml(path / PARAMS_PATH, content)
    studied_run.write_yaml(path / PRESETS_PATH, presets)
    settings = read_yaml(ROOT / STUDY_PARAMS)
    settings["label_noise"]["flip_percents"] = [0, 50]
    settings["equal_tokens"] |= {"policies": ["dpo", "grpo"], "tokens": BUDGET}
    settings["staleness"] |= {"policy": "grpo", "ages": [1]}
    settings["rounding"] |= {"policies": ["sft"], "roundings": ["native-2"]}
    studied_run.write_yaml(path / STUDY_PARAMS, settings)
    studied_run.write_json(path / ".dvc/.keep", {})
    (path / ".dvc/config").write_text("[core]\n    no_scm = True\n")
    plan = {name: content[name] for name in ("policies", "pools", "pairs", "steps", "rewards")}
    copy = RepoCopy(path=path)
    start(copy, "prepare_data")
    studied_run.write_json(path / "data/plan.json", plan)
    for policy in ("dpo", "grpo"):
        for table, name in copies.list_needed_rows(plan, "policies", policy):
            if name != "grpo":  # which the study alone trains
                copy.run(copies.make_row_command(table, name, plan[table][name]))
    for name in ("sft", "dpo"):
        copy.run(copies.make_sample_command(name))
    return copy


def start(copy: RepoCopy, module: str) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "POSTTRAIN_ROUNDING"}
    command = [sys.executable, "-m", f"stages.{module}"]
    done = subprocess.run(
        command, cwd=copy.path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def metrics(copy: RepoCopy, study: str) -> dict:
    return json.loads((copy.data / f"studies/{study}/metrics.json").read_text())


def test_rounding(run):
    start(run, "studies.rounding")
    result = metrics(run, "rounding")
    assert result["roundings"] == ["pinned", "native-2"]
    assert len(result["policies"]["sft"]["test"]["accuracy"]) == 2
    (path,) = run.data.glob("runs/studies/rounding/*/run.json")
    record = json.loads(path.read_text())
    assert record["stage"] == "studies/dvc.yaml:rounding"


def test_label_noise(run):
    start(run, "studies.label_noise")
    result = metrics(run, "label_noise")
    assert set(result) == {"0", "50"}
    assert set(result["50"]) == {"0", "1"}
    # Half of the labels wrong say nothing.
    means = {
        p: sum(item["accuracy"]["value"] for item in item.values()) for p, item in result.items()
    }
    assert means["0"] > means["50"]


def test_both_seeds_spend_the_budget_and_no_more_than_a_step_above_it(run):
    start(run, "studies.equal_tokens")
    result = metrics(run, "equal_tokens")
    assert [(row["policy"], row["seed"]) for row in result["spent"]] == [
        (policy, seed) for policy in ("dpo", "grpo") for seed in (0, 1)
    ]
    for row in result["spent"]:
        assert BUDGET <= row["total"] < 1.3 * BUDGET
        assert row["total"] == row["before"] + row["generated"] + row["trained"]
        assert bool(row["before"]) == (row["policy"] == "dpo")


def test_a_stale_policy_is_compared_with_the_one_of_the_run(run):
    plan = json.loads((run.data / "plan.json").read_text())
    run.run(copies.make_row_command("policies", "grpo", plan["policies"]["grpo"]))
    run.run(copies.make_sample_command("grpo"))
    start(run, "studies.staleness")
    result = metrics(run, "staleness")
    assert result["ages"].keys() == result["tokens"].keys() == {"0", "1"}
    assert result["differences"]["mean"].keys() == {"1"}
