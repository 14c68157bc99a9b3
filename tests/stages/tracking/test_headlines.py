"""The numbers of a list of runs, and the policy that they call the best."""

import json
from dataclasses import replace

import pytest

from stages.tracking import headlines
from stages.tracking.lockfile import Artifact, Entry


@pytest.fixture
def entry(tmp_path):
    def make(stage: str, *seeds: dict) -> Entry:
        folder = tmp_path / stage.replace("@", "/")
        for seed, metrics in enumerate(seeds):
            (folder / str(seed)).mkdir(parents=True)
            (folder / str(seed) / "metrics.json").write_text(json.dumps(metrics))
        return Entry(
            stage=stage,
            description="",
            command="",
            params={},
            deps=[],
            outs=[Artifact(path=folder, digest="0")],
            input_key="",
            lock_hash="",
            result_hash="",
        )

    return make


def test_a_number_is_the_mean_over_seeds_of_the_first_place_that_has_it(entry):
    reward = entry(
        "reward@outcome",
        {"heldout": {"labels": {"balanced_accuracy": {"value": 0.5, "low": 0.1}}}},
        {"heldout": {"labels": {"balanced_accuracy": 0.75}}},
    )
    assert headlines.average_headlines(reward) == {"heldout_accuracy": 0.625}
    assert headlines.average_headlines(entry("prepare_data")) == {}


def test_of_reinforcement_learning_the_last_step_counts(entry, tmp_path):
    grpo = entry("train@grpo", {"trained_tokens": 6}, {"trained_tokens": 8})
    for seed, reward in enumerate((0.5, 1.0)):
        rows = [{"index": i, "metrics": {"reward/mean": reward * i}} for i in range(2)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "train/grpo" / str(seed) / "history.jsonl").write_text(text)
    assert headlines.average_headlines(grpo) == {"trained_tokens": 7.0, "reward": 0.75}


def test_the_best_on_dev_over_seeds_is_chosen_whatever_the_test_says(entry):
    entries = [
        entry("evaluate@a", *({"dev_accuracy": 0.5, "mean_accuracy": 1.0},) * 2),
        entry("evaluate@b", {"dev_accuracy": 0.5}, {"dev_accuracy": 1.0}),
        entry("evaluate@c", {"dev_accuracy": 0.75}, {"dev_accuracy": 0.75}),
    ]
    runs = {item.stage for item in entries} | {f"train@{name}" for name in "abc"}
    chosen = headlines.choose_best(entries, runs)
    assert chosen is not None
    assert (chosen.stage, chosen.seed) == ("train@b", "1")  # of equal means the first
    assert chosen.tags["posttrain.dev_accuracy"] == "0.7500"
    # What is not tracked is not chosen.
    chosen = headlines.choose_best(entries, runs - {"train@b"})
    assert chosen is not None
    assert (chosen.stage, chosen.seed) == ("train@c", "0")
    assert headlines.choose_best(entries, set()) is None


def test_a_control_is_never_the_best(entry):
    entries = [
        entry("evaluate@a", {"dev_accuracy": 0.5}),
        entry("evaluate@coin", {"dev_accuracy": 1.0}),
        replace(
            entry("train@coin", {}), command="python -m stages train_grpo coin --control no_effect"
        ),
    ]
    runs = {"evaluate@a", "train@a", "evaluate@coin", "train@coin"}
    chosen = headlines.choose_best(entries, runs)
    assert chosen is not None
    assert chosen.policy == "a"


def test_the_report_names_success_by_environment_and_policy(tmp_path):
    content = {
        "policies": {},
        "episodes": {"calculator": {
            "policies": {"sft": {"success": {"value": 0.25}}, "grpo": {"success": {"value": 0.5}}},
            "gains": {"success": {"grpo": {"value": 0.25}}},
        }},
    }  # fmt: skip
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(content))
    assert headlines.read_report_numbers(path) == {
        "success/calculator/sft": 0.25, "success/calculator/grpo": 0.5,
        "success_gain/calculator/grpo": 0.25,
    }  # fmt: skip
