import json
from pathlib import Path

import pytest

from stages.tracking import best_policy
from stages.tracking.lockfile import Artifact, Entry


@pytest.fixture
def entries(tmp_path):
    def entry(stage: str, content: dict) -> Entry:
        path = Path(tmp_path / stage.replace("@", "/") / "metrics.json")
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(content))
        out = Artifact(path=path, digest="0")
        return Entry(
            stage=stage,
            command="",
            params={},
            deps=[],
            outs=[out],
            input_key="",
            lock_hash="",
            result_hash="",
        )

    def probed(name: str, accuracy: float) -> Entry:
        policy = f"train_dpo/{name}/policy"
        return entry(
            f"probe_policy@{name}", {"policy": policy, "dev_accuracy": {"value": accuracy}}
        )

    gates = {"verdicts": {"a": "Worse.", "b": "Passed."}}
    test = {"policy": "train_dpo/a/policy", "dev_accuracy": {"value": 1.0}}
    return [
        probed("a", 0.5),
        probed("b", 0.75),
        probed("c", 0.75),
        entry("compare_probes", gates),
        entry("evaluate_policy@a", test),
    ]


def test_the_best_on_dev_is_chosen_with_its_verdict_whatever_the_test_says(entries):
    runs = {entry.stage for entry in entries} | {f"train_dpo@{name}" for name in "abc"}
    chosen = best_policy.choose(entries, runs)
    assert chosen is not None
    assert chosen.stage == "train_dpo@b"  # of equals the first
    assert chosen.tags == {
        "posttrain.chosen_by": "dev_accuracy",
        "posttrain.dev_accuracy": "0.7500",
        "posttrain.gate": "Passed.",
    }


def test_what_is_not_tracked_is_not_chosen(entries):
    runs = {entry.stage for entry in entries} | {"train_dpo@a"}
    chosen = best_policy.choose(entries, runs)
    assert chosen is not None
    assert chosen.stage == "train_dpo@a"
    assert best_policy.choose(entries, set()) is None
