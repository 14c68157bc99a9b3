"""The study that trains rows again in copies, on a small run of the real stages."""

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
    ignored = shutil.ignore_patterns("__pycache__", "plan.py", "smollm2")
    for package in ("stages", "studies"):
        shutil.copytree(ROOT / package, path / package, ignore=ignored)
    shutil.copy(ROOT / "constraints.txt", path)
    content, presets = (read_yaml(ROOT / name) for name in (PARAMS_PATH, PRESETS_PATH))
    shrink(content, presets)
    content["sampling"]["test"]["num_samples"] = 2
    studied_run.write_yaml(path / PARAMS_PATH, content)
    studied_run.write_yaml(path / PRESETS_PATH, presets)
    settings = read_yaml(ROOT / STUDY_PARAMS)
    experiments = settings["retrain"]["experiments"]
    experiments["label_noise"]["variants"] = {"half": {"preset": {"flip_percent": 50}}}
    experiments["equal_tokens"] = {"rows": ["policies/dpo", "policies/grpo"], "tokens": BUDGET}
    del experiments["staleness"]["variants"]["k2"], experiments["staleness"]["variants"]["k4"]
    experiments["rounding"]["rows"] = ["policies/sft"]
    studied_run.write_yaml(path / STUDY_PARAMS, settings)
    studied_run.write_json(path / ".dvc/.keep", {})
    (path / ".dvc/config").write_text("[core]\n    no_scm = True\n")
    plan = {name: content[name] for name in ("policies", "pools", "pairs", "steps", "rewards")}
    copy = RepoCopy(path=path)
    start(copy, "stages.prepare_data")
    studied_run.write_json(path / "data/plan.json", plan)
    for policy in ("dpo", "grpo"):
        for table, name in copies.list_needed_rows(plan, "policies", policy):
            if name != "grpo":  # which the study alone trains
                copy.run(copies.make_row_command(table, name, plan[table][name]))
    copy.run(copies.make_row_command("rewards", "preference", plan["rewards"]["preference"]))
    for name in ("sft", "dpo"):
        copy.run(copies.make_sample_command(name))
    return copy


def start(copy: RepoCopy, module: str, *words: str) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "POSTTRAIN_ROUNDING"}
    command = [sys.executable, "-m", module, *words]
    done = subprocess.run(
        command, cwd=copy.path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def metrics(copy: RepoCopy, study: str) -> dict:
    return json.loads((copy.data / f"studies/{study}/metrics.json").read_text())


def test_a_reward_model_learns_something_else_from_wrong_labels(run):
    start(run, "studies.retrain", "label_noise")
    accuracy = metrics(run, "retrain/label_noise")["accuracy"]["rewards/preference"]
    levels = {variant: accuracy[variant]["mean"] for variant in ("run", "half")}
    assert set(levels["half"]["seeds"]) == {"0", "1"}
    # Which of them orders more pairs right is chance at this size.
    assert levels["run"]["seeds"] != levels["half"]["seeds"]
    (path,) = run.data.glob("runs/studies/retrain/label_noise/*/run.json")
    assert json.loads(path.read_text())["stage"] == "studies/dvc.yaml:retrain@label_noise"


def test_both_seeds_spend_the_budget_and_no_more_than_a_step_above_it(run):
    start(run, "studies.retrain", "equal_tokens")
    spent = metrics(run, "retrain/equal_tokens")["spent"]
    assert sorted((row["row"], row["seed"]) for row in spent) == [
        (f"policies/{policy}", seed) for policy in ("dpo", "grpo") for seed in (0, 1)
    ]
    for row in spent:
        assert BUDGET <= row["before"] + row["generated"] + row["trained"] < 1.3 * BUDGET
        assert bool(row["before"]) == (row["row"] == "policies/dpo")


def test_variants_are_compared_with_the_run(run):
    """Of a preset, for which the parents are shared, and of params.yaml, for which they are not."""
    plan = json.loads((run.data / "plan.json").read_text())
    run.run(copies.make_row_command("policies", "grpo", plan["policies"]["grpo"]))
    run.run(copies.make_sample_command("grpo"))
    variants = {"staleness": ("policies/grpo", "k1"), "rounding": ("policies/sft", "native")}
    for experiment, (row, variant) in variants.items():
        start(run, "studies.retrain", experiment)
        result = metrics(run, f"retrain/{experiment}")
        assert result["accuracy"][row].keys() == {"run", variant}
        assert result["differences"][row]["mean"].keys() == {f"{variant} - run"}
        assert {row["seed"] for row in result["spent"]} == {0, 1}
