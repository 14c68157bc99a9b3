"""The stage on made-up files: a run that is over-optimised, one that is not, and nothing at all."""

import copy
import csv
import dataclasses
import json
from pathlib import Path

import numpy as np
import presets
import pytest

from stages import report_overoptimization
from stages.records import lines
from stages.records.checkpoint_result import CheckpointResult
from stages.records.scored_pool import ScoredPool
from stages.reports import checkpoint_summary

DATA, OUTPUT = report_overoptimization.DATA, report_overoptimization.OUTPUT
PROBLEMS = [f"p{number}" for number in range(60)]
SAMPLES = 16
POOL = DATA / "evaluate_best_of_n/sft/rows.jsonl"
SINGLE = "train_reward_model/sft-0/reward_model"
POOLS = {
    "sft": {
        "policy": "train_sft/sft/policy",
        "reward_model": SINGLE,
        "ensemble": "assemble_ensembles/ensembles/sft",
        "split": "dev",
    }
}
RUN = {
    "reference": "train_sft/sft/policy",
    "reward_model": "no_model",
    "ensemble": "assemble_ensembles/ensembles/sft",
    "split": "dev",
}
CURVES = {
    # accuracy, score and divergence at each step
    "ppo": {0: (0.4, 0.0, 0.0), 8: (0.8, 1.0, 0.5), 16: (0.7, 1.5, 2.0), 24: (0.3, 2.0, 4.0)},
    "grpo": {0: (0.4, 0.0, 0.0), 8: (0.6, 0.2, 0.1), 16: (0.7, 0.3, 0.2), 24: (0.9, 0.4, 0.3)},
}


def write_json(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def plan(**tables):
    content = copy.deepcopy(presets.CONTENT["recipes"]["comparison"]) | tables
    fits = {"min_distance": 0.1, "num_bootstrap": 200, "confidence": 0.95}
    write_json(Path("params.yaml"), {"seed": 0, "plan": content, "report_overoptimization": fits})


def report():
    report_overoptimization.main()
    metrics = json.loads((OUTPUT / "metrics.json").read_text(encoding="utf-8"))
    return metrics, (OUTPUT / "report.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stream = np.random.default_rng(0)
    rows = []
    for name in PROBLEMS:
        correct = (stream.random(SAMPLES) < 0.5).tolist()
        rows.append(
            ScoredPool(
                id=name, correct=correct, num_distinct=SAMPLES,
                # one scorer knows, the other prefers what is wrong
                reward_model=[float(stream.normal()) - 2 * right for right in correct],
                ensemble=[float(right) for right in correct],
            )
        )  # fmt: skip
    lines.write(POOL, rows)
    for name, steps in CURVES.items():
        rows = [
            CheckpointResult(
                step=step, id=problem, correct=accuracy + 0.1 * float(stream.normal()),
                reward_model=None, ensemble=score + 0.1 * float(stream.normal()),
                ensemble_std=0.2, kl_k1=kl, kl_k3=kl, tokens=9.0, entropy=0.1, truncated=0.0,
                repetition=0.0, num_distinct=2,
            )
            for step, (accuracy, score, kl) in steps.items()
            for problem in PROBLEMS
        ]  # fmt: skip
        lines.write(DATA / f"evaluate_checkpoints/{name}/rows.jsonl", rows)
        summary = checkpoint_summary.summarise(rows, num_resamples=100, confidence=0.95, seed=0)
        write_json(DATA / f"evaluate_checkpoints/{name}/metrics.json", summary)


def test_who_is_over_optimised_and_where_is_told():
    runs = {name: RUN | {"run": f"train_{name}/{name}"} for name in CURVES}
    plan(evaluate_best_of_n=POOLS, evaluate_checkpoints=runs)
    metrics, told = report()
    found = {(one["name"], one["scorer"]): one for one in metrics["curves"]}
    # no run was scored by the single reward model
    assert found.keys() == {
        ("sft", "reward_model"), ("sft", "ensemble"), ("ppo", "ensemble"),
        ("grpo", "ensemble"),
    }  # fmt: skip
    overoptimised = {key for key, one in found.items() if one["overoptimised"]}
    assert overoptimised == {("sft", "reward_model"), ("ppo", "ensemble")}
    ppo, knows = found["ppo", "ensemble"], found["sft", "ensemble"]
    assert ppo["best_place"] == 8
    assert 0.5 < ppo["fits"]["gold"]["peak_distance"] < 1.5
    assert ppo["accuracy_after_best"]["value"] == pytest.approx(-0.5, abs=0.06)
    assert [point["place"] for point in knows["points"]] == [1, 2, 3, 4]
    assert knows["points"][3]["accuracy"]["value"] == pytest.approx(15 / 16, abs=0.03)
    # its scores are the verdicts: the same spread
    assert knows["units"]["proxy"] == knows["units"]["gold"]
    assert found["sft", "reward_model"]["best_place"] == 1
    assert "**ppo, scored by the ensemble**: over-optimised. The accuracy is best at step 8" in told
    assert "**grpo, scored by the ensemble**: no fall seen" in told
    assert (
        "**best-of-n from sft, by one reward model**: over-optimised. The accuracy is best at n 1"
        in told
    )
    assert "band" not in json.dumps(metrics)
    (effect,) = metrics["effects"]
    assert effect["accuracy_at_end"]["low"] > 0.5
    assert "**the ensemble in place of one reward model, best-of-n from sft**" in told
    images = {path.name for path in (OUTPUT / "plots").glob("*.png")}
    assert images == {
        "overoptimization.png", "training-grpo.png", "training-ppo.png", "disagreement.png",
    }  # fmt: skip
    assert all(f"plots/{image}" in told for image in images)
    with (OUTPUT / "plots/overoptimization.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * (4 + 4 + 4 + 4)
    with (OUTPUT / "plots/training.csv").open(encoding="utf-8", newline="") as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["0", "8", "16", "24"] * 2


def test_a_plan_with_neither_has_a_report_that_says_so():
    plan(evaluate_best_of_n={}, evaluate_checkpoints={})
    metrics, told = report()
    assert metrics["curves"] == []
    assert metrics["runs"] == {}
    assert "No entry of evaluate_best_of_n has a scorer in this plan." in told
    assert (OUTPUT / "plots/overoptimization.png").is_file()
    assert (OUTPUT / "plots/training.csv").read_text().startswith("policy,step,")


def test_a_scorer_that_tells_nothing_apart_is_left_out_with_its_curves_and_the_reason():
    plan(evaluate_best_of_n=POOLS, evaluate_checkpoints={"ppo": RUN | {"run": "train_ppo/ppo"}})
    rows = list(lines.read(POOL, ScoredPool))
    lines.write(POOL, [dataclasses.replace(row, ensemble=[0.0] * SAMPLES) for row in rows])
    metrics, told = report()
    assert [(one["name"], one["scorer"]) for one in metrics["curves"]] == [("sft", "reward_model")]
    assert "Not shown, sft ensemble: all completions of a problem have one score." in told
    assert "### ppo" in told


def test_a_run_from_another_policy_has_no_curve_but_its_page():
    run = RUN | {"run": "train_ppo/ppo", "reference": "train_dpo/dpo/policy"}
    plan(evaluate_best_of_n=POOLS, evaluate_checkpoints={"ppo": run})
    metrics, told = report()
    assert {one["name"] for one in metrics["curves"]} == {"sft"}
    assert "### ppo" in told


def test_the_same_inputs_give_the_same_bytes():
    runs = {"ppo": RUN | {"run": "train_ppo/ppo"}}
    plan(evaluate_best_of_n=POOLS, evaluate_checkpoints=runs)

    def written():
        report()
        files = [path for path in OUTPUT.rglob("*") if path.is_file() and "run" not in path.parts]
        return {path.name: path.read_bytes() for path in files}

    assert written() == written()
