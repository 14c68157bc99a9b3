"""Both studies on random models: the policies along a run, and best-of-n by a proxy."""

import json
import shutil

import pytest
import studied_run
from studied_run import SEEDS

from stages import rows
from stages.records import lines
from stages.rows import DATA
from stages.studies import checkpoints, overoptimization
from stages.studies.checkpoint_measures import CheckpointResult
from stages.studies.scored_pools import ScoredProblem

DRAWING = {"num_samples": 4, "temperature": 1.0, "max_new_tokens": 6}
RUN = {
    "runs": ["dpo"], "start": "sft", "reward": "preference", "sampling": DRAWING,
    "num_bootstrap": 100, "confidence": 0.9,
}  # fmt: skip
STUDY = {
    "policy": "sft",
    "reward": "preference",
    "best_of_n": DRAWING | {"num_problems": 4, "num_samples": 16},
    "fits": {"min_distance": 0.0, "num_bootstrap": 100, "confidence": 0.9},
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    studied_run.make("checkpoints", RUN, policies=("sft", "dpo"))
    content = {"checkpoints": RUN, "overoptimization": STUDY}
    studied_run.write_yaml(tmp_path / "stages/studies/params.yaml", content)
    for seed in SEEDS:
        training = DATA / f"policies/dpo/training/{seed}"
        (training / "checkpoints").mkdir(parents=True)
        shutil.copytree(rows.locate_policy("sft", seed), training / "checkpoints/step-0002")
        (training / "history.jsonl").write_text("{}\n" * 5)


def test_every_policy_along_a_run_is_measured():
    checkpoints.main("dpo")
    written = studied_run.outputs("checkpoints/dpo")
    metrics = json.loads(written["metrics.json"])
    for seed in SEEDS:
        path = DATA / f"studies/checkpoints/dpo/rows/{seed}/problems.jsonl"
        result = list(lines.read_lines(path, CheckpointResult))
        assert [row.step for row in result] == [0] * 6 + [2] * 6 + [5] * 6
        # The checkpoint is the start itself here: the same draws, no divergence from it.
        start, same = result[:6], result[6:12]
        assert [row.correct for row in start] == [row.correct for row in same]
        assert all(row.kl_k1 == pytest.approx(0.0, abs=1e-4) for row in (*start, *same))
        assert any(row.kl_k3 > 0.0 for row in result[12:])
        assert all(row.ensemble_std is not None for row in result)
        assert list(metrics[str(seed)]["steps"]) == ["0", "2", "5"]
    report = written["report.md"].decode()
    assert "### seed 0" in report
    assert "### seed 1" in report
    assert written["plots/training.png"].startswith(b"\x89PNG")
    checkpoints.main("dpo")
    assert studied_run.outputs("checkpoints/dpo") == written


@pytest.mark.slow
def test_pools_are_scored_and_each_seed_has_its_verdict(monkeypatch):
    # Random models are never right: let each text be right or wrong by its length.
    monkeypatch.setattr(
        "stages.rewards.answer_checker.is_correct",
        lambda text, _answer, _forms=None: len(text) % 2 == 0,
    )
    checkpoints.main("dpo")
    overoptimization.main()
    written = studied_run.outputs("overoptimization")
    metrics = json.loads(written["metrics.json"])
    for seed in SEEDS:
        path = DATA / f"studies/overoptimization/rows/{seed}/pools.jsonl"
        pools = list(lines.read_lines(path, ScoredProblem))
        assert len(pools) == 4
        assert all(len(pool.correct) == len(pool.ensemble or []) == 16 for pool in pools)
        measured = metrics["seeds"][str(seed)]
        result = [(curve["name"], curve["scorer"]) for curve in measured["curves"]]
        assert result == [
            ("sft", "reward_model"), ("sft", "ensemble"), ("dpo", "reward_model"),
            ("dpo", "ensemble"),
        ]  # fmt: skip
        assert [point["place"] for point in measured["curves"][0]["points"]] == [1, 2, 3, 4]
        assert measured["generated_tokens"] == sum(pool.generated_tokens for pool in pools)
        assert written[f"plots/seed-{seed}.png"].startswith(b"\x89PNG")
    assert len(metrics["over_seeds"]) == 4
    assert len(metrics["over_seeds"][0]["accuracy_change"]) == len(SEEDS)
    report = written["report.md"].decode()
    assert "of 2 seeds" in report
    overoptimization.main()
    assert studied_run.outputs("overoptimization") == written


UNITS = {"proxy": 1.0, "gold": 1.0}


def row(step, name, **values):
    given = {
        "correct": 0.5, "reward_model": 1.0, "ensemble": None, "ensemble_std": None, "kl_k1": 0.0,
        "kl_k3": 0.0, "tokens": 1.0, "entropy": 0.0, "truncated": 0.0, "repetition": 0.0,
        "num_distinct": 1,
    }  # fmt: skip
    return CheckpointResult(step=step, id=name, **(given | values))


def test_a_run_has_a_curve_for_each_scorer_that_scored_it():
    rows = [
        row(0, "a"),
        row(0, "b", correct=0.0),
        row(6, "a", reward_model=3.0, kl_k1=0.7),
        row(6, "b", correct=1.0, kl_k1=0.1),
    ]
    units = {"reward_model": UNITS, "ensemble": UNITS}
    (curve,) = overoptimization.read_run_curve("ppo", rows, units)
    assert (curve.name, curve.scorer, curve.form) == ("ppo", "reward_model", "logarithmic")
    assert curve.places == [0, 6]
    assert curve.gold.tolist() == [[0.5, 0.5], [0.0, 1.0]]
    assert curve.proxy.tolist() == [[1.0, 3.0], [1.0, 1.0]]
    assert curve.kl.tolist() == [[0.0, 0.7], [0.0, 0.1]]
    assert overoptimization.read_run_curve("ppo", rows, {}) == []


def test_the_table_over_seeds_has_the_curves_that_every_seed_has():
    def curve(scorer, change):
        return {
            "method": "best_of_n", "name": "sft", "scorer": scorer, "best_place": 2,
            "overoptimised": False, "accuracy_change": {"value": change},
            "accuracy_after_best": {"value": 0.0}, "proxy_change": {"value": 1.0},
        }  # fmt: skip

    # The ensemble gave all completions of a problem one score with the second seed.
    seeds = [[curve("reward_model", 0.1), curve("ensemble", 0.3)], [curve("reward_model", -0.2)]]
    (both,) = overoptimization.summarise_over_seeds(seeds)
    assert both == {
        "method": "best_of_n", "name": "sft", "scorer": "reward_model", "best_place": [2, 2],
        "overoptimised": [False, False], "accuracy_change": [0.1, -0.2],
        "accuracy_after_best": [0.0, 0.0], "proxy_change": [1.0, 1.0],
    }  # fmt: skip
    # With the first seed that scorer alone is left: no curve is common.
    assert overoptimization.summarise_over_seeds([seeds[0][1:], seeds[1]]) == []
