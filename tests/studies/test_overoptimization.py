"""Measures of checkpoints and pools, curves of proxy and true reward, and both studies at work."""

import json
import math
import shutil

import numpy as np
import pytest
import studied_run
import torch
from studied_run import SEEDS, completion, problem
from tiny_checkpoints import EOS, PAD, compute, load

from stages import rows
from stages.algorithms.selection import best_of_n
from stages.algorithms.statistics import reward_over_distance as forms
from stages.models.policy import Policy
from stages.models.scalar_head import Scores
from stages.records import lines
from stages.rows import DATA
from studies import (
    checkpoint_measures,
    checkpoints,
    overoptimization,
    proxy_curves,
    scored_pools,
)
from studies.checkpoint_measures import CheckpointResult
from studies.proxy_curves import OveroptimizationConfig, ProxyCurve
from studies.scored_pools import ScoredProblem

# Measures of a checkpoint

TEMPERATURE = 0.7
IDS = {"right": [5, 6, 5, 6, 5, 6, EOS], "wrong": [9, EOS], "cut": [7, 8, 7]}
TEXTS = {"right": "#### 4", "wrong": "#### 5", "cut": "no"}


class Scorer:
    """Scores a completion by a number of its tokens, and counts what it reads."""

    def __init__(self, measure):
        self.read, self.measure = 0, measure

    def __call__(self, groups):
        values = [self.measure(ids) for group in groups for ids in group.completions]
        self.read += len(values)
        return Scores(values=torch.tensor(values), disagreement=torch.tensor(values) / 10)


def score_alone(model, prompt_ids, ids):
    """log p and entropy of each token of one completion, alone."""
    with torch.no_grad():
        logits = model.eval()(torch.tensor([prompt_ids + ids])).logits[0] / TEMPERATURE
    logprobs = logits.log_softmax(-1)[len(prompt_ids) - 1 : -1]
    return logprobs.gather(1, torch.tensor(ids)[:, None])[:, 0], -(logprobs.exp() * logprobs).sum(1)


def prompt(name):
    return problem(name, "4", prompt_ids=[3, 4, int(name)])


def measure(model, reference, scorers, pools):
    return checkpoint_measures.measure_checkpoint(
        Policy(model, compute(), PAD), Policy(reference), scorers, pools,
        step=3, temperature=TEMPERATURE,
    )  # fmt: skip


def pools(*kinds):
    return [
        (prompt(name), [
            completion(name, i, TEXTS[kind], IDS[kind],
                       finish_reason="length" if kind == "cut" else "stop")
            for i, kind in enumerate(of_problem)
        ])
        for name, of_problem in zip("56", kinds, strict=False)
    ]  # fmt: skip


def test_measures_of_a_checkpoint_by_hand():
    model, reference, scorer = (
        load("llama", seed=1),
        load("llama", seed=2).eval(),
        Scorer(lambda ids: float(len(ids))),
    )
    kinds = ["right", "wrong", "right", "cut"]
    row, other = measure(model, reference, (scorer, scorer), pools(kinds, ["wrong"] * 4))
    k1, k3, entropy = [], [], []
    for kind in kinds:
        logprobs, entropies = score_alone(model, [3, 4, 5], IDS[kind])
        ref, _ = score_alone(reference, [3, 4, 5], IDS[kind])
        ratio = (ref - logprobs).tolist()
        k1.append(-sum(ratio))
        k3.append(sum(math.exp(min(item, 20.0)) - 1 - min(item, 20.0) for item in ratio))
        entropy.append(entropies.sum().item())
    assert row.kl_k1 == pytest.approx(sum(k1) / 4, rel=1e-4)
    assert row.kl_k3 == pytest.approx(sum(k3) / 4, rel=1e-4)
    assert row.tokens == (7 + 2 + 7 + 3) / 4
    assert row.entropy == pytest.approx(sum(entropy) / 19, rel=1e-4)
    assert row.reward_model == row.ensemble == row.tokens
    assert row.ensemble_std == pytest.approx(row.tokens / 10)
    assert (row.correct, row.truncated, row.num_distinct) == (0.5, 0.25, 3)
    # of its four runs of four tokens 5656 and 6565 are two, each once more; then 656E
    assert row.repetition == pytest.approx((2 * 1 / 4) / 4)
    assert (row.step, row.id, other.id, other.correct) == (3, "5", "6", 0.0)
    # three distinct completions and one, each read once by each of the two
    assert scorer.read == 2 * (3 + 1)
    (row,) = measure(model, load("llama", seed=1).eval(), (None, None), pools(["right", "cut"]))
    assert row.kl_k1 == row.kl_k3 == 0.0
    assert row.reward_model is row.ensemble is row.ensemble_std is None


def measured(step, name, **values):
    zero = {"correct": 0.5, "reward_model": 1.0, "ensemble": None, "ensemble_std": None,
            "kl_k1": 0.1 * step, "kl_k3": 0.2 * step, "tokens": 1.0, "entropy": 0.0,
            "truncated": 0.0, "repetition": 0.0, "num_distinct": 1}  # fmt: skip
    return CheckpointResult(step=step, id=name, **(zero | values))


ROWS = [
    measured(step, name, correct=correct, reward_model=score)
    for step, name, correct, score in (
        (0, "a", 0.0, 1.0), (0, "b", 1.0, 3.0), (4, "a", 1.0, 2.0), (4, "b", 1.0, 4.0),
        (8, "a", 1.0, 3.0), (8, "b", 1.0, 8.0),
    )
]  # fmt: skip
BOOTSTRAP = {"num_resamples": 200, "confidence": 0.95, "seed": 0}


def test_summary_of_checkpoints_by_hand():
    summary = checkpoint_measures.summarise_checkpoints(ROWS, **BOOTSTRAP)
    assert (summary["num_problems"], list(summary["steps"])) == (2, ["0", "4", "8"])
    assert summary["best_step"] == 4  # of equally accurate ones the first
    last = summary["steps"]["8"]
    values = [last[name]["value"] for name in ("correct", "reward_model", "correct_gain", "kl_k1")]
    assert values == [1.0, 5.5, 0.5, 0.8]
    # 2 and 5 more than at the start
    assert last["reward_model_gain"] == {"value": 3.5, "low": 2.0, "high": 5.0}
    assert summary["steps"]["0"]["correct_gain"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert last["ensemble"] is last["ensemble_gain"] is last["ensemble_std"] is None
    for rows_ in (ROWS[2:], ROWS[:-1], [*ROWS[:4], ROWS[5], ROWS[4]]):
        with pytest.raises(ValueError, match="Rerun the study checkpoints"):
            checkpoint_measures.summarise_checkpoints(rows_, **BOOTSTRAP)


# Scored pools


@pytest.mark.parametrize("row_tokens", [0, 64])
def test_equal_completions_are_scored_once(row_tokens):
    # the same text from other tokens is another completion
    ids = ([5, 6], [8], [5, 6], [11, 1])
    pool = [completion("a", i, f"#### {8 if i == 1 else 7}", x) for i, x in enumerate(ids)]
    scorer = Scorer(lambda ids: sum(ids) / 3)
    row = scored_pools.score_pool(problem("a"), pool, (scorer, None), row_tokens)
    assert row.correct == [True, False, True, True]
    assert row.reward_model == [3.66667, 2.66667, 3.66667, 4.0]
    assert row.ensemble is None
    assert row.num_distinct == scorer.read == 3


def scored(name, right, scores):
    return ScoredProblem(id=name, correct=[bool(item) for item in right], reward_model=scores,
                         ensemble=None, generated_tokens=8, num_distinct=8)  # fmt: skip


def test_best_of_n_ends_at_a_quarter_of_the_pool():
    scores = [np.arange(12.0), np.zeros(12)]
    right = [np.array([0.0] * 11 + [1.0]), np.array([1.0, 0.0] * 6)]
    rows_ = [scored(name, r, s.tolist()) for name, r, s in zip("ab", right, scores, strict=True)]
    curve = scored_pools.make_pool_curve("sft", "reward_model", rows_)
    assert (curve.method, list(curve.places), curve.form) == ("best_of_n", [1, 2, 3], "quadratic")
    assert curve.units == {
        "proxy": proxy_curves.measure_within_deviation(scores),
        "gold": proxy_curves.measure_within_deviation(right),
    }
    # the best of twelve is in the draw 1/12, 2/12 and 3/12 of the time
    np.testing.assert_allclose(curve.gold, [[1 / 12, 2 / 12, 3 / 12], [0.5, 0.5, 0.5]])
    np.testing.assert_allclose(curve.proxy[0], [5.5, 23 / 3, 8.75])  # n (N + 1) / (n + 1) - 1
    assert curve.kl[1].tolist() == [0.0, 0.0, 0.0]  # one score for all is not moved
    assert curve.kl[0, 2] == best_of_n.kl_plug_in(scores[0], n=3)


def test_pools_without_a_curve_have_a_reason():
    many, right = [np.arange(8.0)], [np.array([0.0, 1.0] * 4)]
    reasons = {
        "7 completions": ([np.arange(7.0)], [right[0][:7]]),
        "both right and wrong": (many, [np.zeros(8)]),
        "one score": ([np.zeros(8)], right),
        # 0.1 is no binary fraction: the standard deviation of 128 of them is 1e-17
        " score": ([np.full(128, 0.1)], [np.tile(right[0], 16)]),
    }
    assert scored_pools.explain_missing_curve(many, right) is None
    for words, pool in reasons.items():
        assert words in scored_pools.explain_missing_curve(*pool)
    rows_ = [scored(name, [True, False] * 4, [0.0] * 8) for name in "ab"]
    assert scored_pools.make_pool_curve("sft", "ensemble", rows_) is None
    assert "one score" in scored_pools.make_pool_curve("sft", "reward_model", rows_)


# Curves

CONFIG = OveroptimizationConfig(min_distance=0.1, num_bootstrap=200, confidence=0.95)
DISTANCE = np.array([0.0, 0.5, 1.0, 1.5, 2.0])


def make_curve(gold, proxy, form="quadratic", noise=0.0, units=None, number=5):
    """A curve of 100 problems whose means follow the coefficients, relative to a start of 0.4."""
    stream = np.random.default_rng(0)

    def around(coefficients, start):
        mean = start + forms.reward_curve(np.array(coefficients), DISTANCE, form)
        return (mean + noise * stream.normal(size=(100, 5)))[:, :number]

    return ProxyCurve(
        method="run", name="ppo", scorer="ensemble", places=[0, 2, 4, 6, 8][:number], form=form,
        kl=np.tile(DISTANCE**2, (100, 1))[:, :number], proxy=around(proxy, 5.0),
        gold=around(gold, 0.4), units=units or {"proxy": 1.0, "gold": 1.0},
    )  # fmt: skip


@pytest.mark.parametrize("form", ["quadratic", "logarithmic"])
def test_a_fit_has_the_coefficients_of_its_curve(form):
    curve = make_curve((0.3, 0.15), (1.0, 0.1), form, units={"proxy": 2.0, "gold": 0.5})
    result = proxy_curves.measure_curves(curve, CONFIG, 0)
    gold, proxy = result["fits"]["gold"], result["fits"]["proxy"]
    assert (gold["alpha"], gold["beta"]) == (0.6, 0.3)  # in units of 0.5
    assert (proxy["alpha"], proxy["beta"]) == (0.5, 0.05)
    expected = forms.peak_distance(np.array([0.6, 0.3]), form)
    assert gold["peak_distance"] == pytest.approx(float(expected), abs=1e-5)
    assert gold["band"]["low"] == gold["band"]["high"] == gold["band"]["value"]
    point = result["points"][2]
    expected = 0.4 + 0.3 - (0.15 if form == "quadratic" else 0)
    assert (point["accuracy"]["value"], point["distance"]) == (pytest.approx(expected), 1.0)
    assert proxy_curves.measure_curves(curve, CONFIG, 0) == result


def test_overoptimisation_is_a_true_reward_that_falls_while_the_proxy_rises():
    result = proxy_curves.measure_curves(make_curve((0.4, 0.2), (1.0, 0.1), noise=0.1), CONFIG, 0)
    assert (result["overoptimised"], result["best_place"]) == (True, 4)
    gold = result["fits"]["gold"]
    assert (gold["peak_is_measured"], gold["peaks_measured"]) == (True, 1.0)
    assert result["accuracy_after_best"]["value"] == pytest.approx(-0.2, abs=0.06)
    assert result["proxy_after_best"]["low"] > 0
    # neither a rising truth nor noise nor a falling proxy is
    for gold, proxy in (((0.4, 0.05), (1.0, 0.1)), ((0.0, 0.0), (1.0, 0.1)), ((0.4, 0.2),) * 2):
        curve = make_curve(gold, proxy, noise=0.1)
        assert not proxy_curves.measure_curves(curve, CONFIG, 0)["overoptimised"], (gold, proxy)


def test_limits_of_fits():
    # a peak beyond what was measured; a proxy that bends up has none at all
    fits = proxy_curves.measure_curves(make_curve((0.4, 0.05), (1.0, -0.1)), CONFIG, 0)["fits"]
    gold, proxy = fits["gold"], fits["proxy"]
    values = gold["peak_distance"], gold["peak_is_measured"], gold["peaks_measured"]
    assert values == (4.0, False, 0.0)
    assert proxy["peak_distance"] is proxy["peak_distance_high"] is proxy["peak_reward"] is None
    two = make_curve((0.4, 0.2), (1.0, 0.1), "logarithmic", number=2)
    assert proxy_curves.measure_curves(two, CONFIG, 0)["fits"] == {"proxy": None, "gold": None}
    below = make_curve((0.4, 0.2), (1.0, 0.1))
    below.kl[:, 1] = -0.01  # an estimate below zero is no distance
    assert proxy_curves.measure_curves(below, CONFIG, 0)["points"][1]["distance"] == 0.0
    spread = proxy_curves.measure_within_deviation
    assert spread([np.array([0.0, 2.0]), np.array([100.0, 104.0])]) == 2.5**0.5
    assert spread([np.array([1.0, 1.0]), np.array([7.0, 7.0])]) == 0.0


NEAR = DISTANCE[:4]
DIFFICULTY = np.random.default_rng(0).normal(size=(50, 1))


def compare(single, several):
    """Curves with a difficulty of each problem, which a paired difference cancels."""
    curves = []
    for scorer, coefficients in (("reward_model", single), ("ensemble", several)):
        gold = 0.4 + DIFFICULTY + forms.reward_curve(np.array(coefficients), NEAR, "quadratic")
        curve = ProxyCurve(
            method="best_of_n", name="sft", scorer=scorer, places=[1, 2, 3, 4], form="quadratic",
            kl=np.tile(NEAR**2, (50, 1)), proxy=gold, gold=gold, units={"proxy": 1.0, "gold": 0.5},
        )  # fmt: skip
        curves.append(curve)
    return proxy_curves.compare_curves(*curves, CONFIG, 0)


def test_curves_of_two_scorers_are_paired():
    # 2 d - d^2 / 1: peak at 1; 2 d - 0.8 d^2: at 1.25
    result = compare((2.0, 1.0), (2.0, 0.8))
    assert (result["name"], result["n"]) == ("sft", 4)
    assert result["peak_shift"] == pytest.approx({"value": 0.25, "low": 0.25, "high": 0.25})
    assert result["accuracy_at_end"]["value"] == pytest.approx(0.2 * 1.5**2)
    assert result["accuracy_at_end"]["low"] == pytest.approx(result["accuracy_at_end"]["high"])
    same = compare((2.0, 1.0), (2.0, 1.0))
    zero = dict.fromkeys(("value", "low", "high"), 0.0)
    assert same["peak_shift"] == same["accuracy_at_end"] == zero
    assert compare((2.0, 1.0), (2.0, -0.1))["peak_shift"] is None


# The studies

DRAWING = {"num_samples": 4, "temperature": 1.0, "max_new_tokens": 6}
RUN = {"runs": ["dpo"], "start": "sft", "reward": "preference", "sampling": DRAWING,
       "num_bootstrap": 100, "confidence": 0.9}  # fmt: skip
STUDY = {
    "policy": "sft", "reward": "preference",
    "best_of_n": DRAWING | {"num_problems": 4, "num_samples": 16},
    "fits": {"min_distance": 0.0, "num_bootstrap": 100, "confidence": 0.9},
}  # fmt: skip


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    studied_run.make("checkpoints", RUN, policies=("sft", "dpo"))
    content = {"checkpoints": RUN, "overoptimization": STUDY}
    studied_run.write_yaml(tmp_path / "studies/params.yaml", content)
    for seed in SEEDS:
        training = DATA / f"policies/dpo/training/{seed}"
        (training / "checkpoints").mkdir(parents=True)
        shutil.copytree(rows.locate_policy("sft", seed), training / "checkpoints/step-0002")
        (training / "history.jsonl").write_text("{}\n" * 5)


def test_every_policy_of_a_run_is_measured(run):
    checkpoints.main("dpo")
    written = studied_run.outputs("checkpoints/dpo")
    metrics = json.loads(written["metrics.json"])
    for seed in SEEDS:
        path = DATA / f"studies/checkpoints/dpo/rows/{seed}/problems.jsonl"
        result = list(lines.read_lines(path, CheckpointResult))
        assert [row.step for row in result] == [0] * 6 + [2] * 6 + [5] * 6
        # the checkpoint is the start itself here: the same draws, no divergence from it
        start, same = result[:6], result[6:12]
        assert [row.correct for row in start] == [row.correct for row in same]
        assert all(row.kl_k1 == pytest.approx(0.0, abs=1e-4) for row in (*start, *same))
        assert any(row.kl_k3 > 0.0 for row in result[12:])
        assert all(row.ensemble_std is not None for row in result)
        assert list(metrics[str(seed)]["steps"]) == ["0", "2", "5"]
    checkpoints.main("dpo")
    assert studied_run.outputs("checkpoints/dpo") == written


@pytest.mark.slow
def test_pools_are_scored_and_each_seed_has_its_verdict(run, monkeypatch):
    # random models are never right: let each text be right or wrong by its length
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
        result = list(lines.read_lines(path, ScoredProblem))
        assert len(result) == 4
        assert all(len(pool.correct) == len(pool.ensemble or []) == 16 for pool in result)
        of_seed = metrics["seeds"][str(seed)]
        names = [(curve["name"], curve["scorer"]) for curve in of_seed["curves"]]
        assert names == [(p, s) for p in ("sft", "dpo") for s in ("reward_model", "ensemble")]
        assert [point["place"] for point in of_seed["curves"][0]["points"]] == [1, 2, 3, 4]
        assert of_seed["generated_tokens"] == sum(pool.generated_tokens for pool in result)
    assert len(metrics["over_seeds"]) == 4
    assert len(metrics["over_seeds"][0]["accuracy_change"]) == len(SEEDS)
    overoptimization.main()
    assert studied_run.outputs("overoptimization") == written


def test_a_run_has_a_curve_for_each_scorer_that_scored_it():
    rows_ = [
        measured(0, "a"), measured(0, "b", correct=0.0),
        measured(6, "a", reward_model=3.0, kl_k1=0.7), measured(6, "b", correct=1.0, kl_k1=0.1),
    ]  # fmt: skip
    units = {name: {"proxy": 1.0, "gold": 1.0} for name in ("reward_model", "ensemble")}
    (curve,) = overoptimization.read_run_curve("ppo", rows_, units)
    assert (curve.name, curve.scorer, curve.form) == ("ppo", "reward_model", "logarithmic")
    assert curve.places == [0, 6]
    assert curve.gold.tolist() == [[0.5, 0.5], [0.0, 1.0]]
    assert curve.proxy.tolist() == [[1.0, 3.0], [1.0, 1.0]]
    assert curve.kl.tolist() == [[0.0, 0.7], [0.0, 0.1]]
    assert overoptimization.read_run_curve("ppo", rows_, {}) == []


def test_the_table_over_seeds_has_the_curves_that_every_seed_has():
    def curve(scorer, change):
        return {
            "method": "best_of_n", "name": "sft", "scorer": scorer, "best_place": 2,
            "overoptimised": False, "accuracy_change": {"value": change},
            "accuracy_after_best": {"value": 0.0}, "proxy_change": {"value": 1.0},
        }  # fmt: skip

    # the ensemble gave all completions of a problem one score with the second seed
    seeds = [[curve("reward_model", 0.1), curve("ensemble", 0.3)], [curve("reward_model", -0.2)]]
    (both,) = overoptimization.summarise_over_seeds(seeds)
    assert both == {
        "method": "best_of_n", "name": "sft", "scorer": "reward_model", "best_place": [2, 2],
        "overoptimised": [False, False], "accuracy_change": [0.1, -0.2],
        "accuracy_after_best": [0.0, 0.0], "proxy_change": [1.0, 1.0],
    }  # fmt: skip
    assert overoptimization.summarise_over_seeds([seeds[0][1:], seeds[1]]) == []
