"""Measures of checkpoints and pools, curves of proxy and true reward, and both studies at work."""

import json
import shutil

import numpy as np
import pytest
import studied_run
import torch
from studied_run import SEEDS, completion, problem
from tiny_checkpoints import EOS, PAD, compute, load

from stages import rows
from stages.algorithms.selection import best_of_n
from stages.models.policy import Policy
from stages.models.scalar_head import Scores
from stages.records import lines
from stages.report.evaluation_config import Intervals
from stages.rows import DATA
from studies import checkpoint_measures, checkpoints, overoptimization, proxy_curves, scored_pools
from studies.checkpoint_measures import CheckpointResult
from studies.proxy_curves import ProxyCurve
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
    model, reference = load("llama", seed=1), load("llama", seed=2).eval()
    scorer = Scorer(lambda ids: float(len(ids)))
    kinds = ["right", "wrong", "right", "cut"]
    row, other = measure(model, reference, (scorer, scorer), pools(kinds, ["wrong"] * 4))
    ratios, entropies = [], []
    for kind in kinds:
        logprobs, entropy = score_alone(model, [3, 4, 5], IDS[kind])
        ref_logprobs, _ = score_alone(reference, [3, 4, 5], IDS[kind])
        ratios.append(ref_logprobs - logprobs)
        entropies.append(entropy)
    ratio, entropy = torch.cat(ratios), torch.cat(entropies)
    expected = {
        "kl_k1": -ratio.sum() / 4,
        "kl_k3": (ratio.clamp(max=20).expm1() - ratio.clamp(max=20)).sum() / 4,
        "entropy": entropy.mean(), "tokens": 19 / 4, "reward_model": 19 / 4, "ensemble": 19 / 4,
        "ensemble_std": 19 / 40, "correct": 0.5, "truncated": 0.25, "num_distinct": 3, "step": 3,
        # of its four runs of four tokens 5656 and 6565 are two, each once more; then 656E
        "repetition": (2 * 1 / 4) / 4,
    }  # fmt: skip
    found = {name: getattr(row, name) for name in expected}
    assert found == pytest.approx({name: float(x) for name, x in expected.items()}, rel=1e-4)
    assert (row.id, other.id, other.correct) == ("5", "6", 0.0)
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
    assert (curve.method, list(curve.places)) == ("best_of_n", [1, 2, 3])
    # variances within problems: of 0 to 11, (144 - 1) / 12, and 0; of 1/12, 11/144, and 1/4
    units = {"proxy": (143 / 24) ** 0.5, "gold": (47 / 288) ** 0.5}
    assert curve.units == pytest.approx(units)
    # the best of twelve is in the draw 1/12, 2/12 and 3/12 of the time
    np.testing.assert_allclose(curve.gold, [[1 / 12, 2 / 12, 3 / 12], [0.5, 0.5, 0.5]])
    np.testing.assert_allclose(curve.proxy[0], [5.5, 23 / 3, 8.75])  # n (N + 1) / (n + 1) - 1
    assert curve.kl[1].tolist() == [0.0, 0.0, 0.0]  # one score for all is not moved
    assert curve.kl[0, 2] == best_of_n.kl_plug_in(scores[0], n=3)


def test_pools_without_a_curve_have_a_reason():
    many, right = np.arange(8.0), np.array([0.0, 1.0] * 4)
    reasons = {
        "7 completions": (many[:7], right[:7]),
        "both right and wrong": (many, np.zeros(8)),
        # 0.1 is no binary fraction: the standard deviation of 128 of them is 1e-17
        "one score": (np.full(128, 0.1), np.tile(right, 16)),
    }
    assert scored_pools.explain_missing_curve([many], [right]) is None
    for words, (scores, is_right) in reasons.items():
        assert words in scored_pools.explain_missing_curve([scores], [is_right])
    rows_ = [scored(name, right, [0.0] * 8) for name in "ab"]
    assert scored_pools.make_pool_curve("sft", "ensemble", rows_) is None
    assert "one score" in scored_pools.make_pool_curve("sft", "reward_model", rows_)


# Curves

CONFIG = Intervals(num_bootstrap=200, confidence=0.95)
RISES, FALLS, LEVEL = [0.0, 0.1, 0.2, 0.3, 0.4], [0.0, 0.1, 0.2, 0.1, 0.0], [0.0] * 5


def make_curve(gold, proxy, noise=0.1):
    """A curve of 100 problems whose means are these, above a start of 0.4 and of 5."""
    stream = np.random.default_rng(0)
    proxies, golds = (
        np.array(means) + start + noise * stream.normal(size=(100, 5))
        for start, means in ((5.0, proxy), (0.4, gold))
    )
    return ProxyCurve(
        method="run", name="ppo", scorer="ensemble", places=[0, 2, 4, 6, 8], proxy=proxies,
        kl=np.tile([0.0, -0.01, 1.0, 2.25, 4.0], (100, 1)), gold=golds,
        units={"proxy": 2.0, "gold": 0.5},
    )  # fmt: skip


def test_points_are_in_units_and_relative_to_the_start():
    result = proxy_curves.measure_curve(make_curve(FALLS, RISES, noise=0.0), CONFIG, 0)
    # an estimate of a KL below zero is no distance
    assert [point["distance"] for point in result["points"]] == [0.0, 0.0, 1.0, 1.5, 2.0]
    values = {key: result["points"][3][key]["value"] for key in ("gold", "proxy", "accuracy")}
    assert values == pytest.approx({"gold": 0.1 / 0.5, "proxy": 0.3 / 2.0, "accuracy": 0.5})
    assert result["accuracy_change"]["value"] == pytest.approx(0.0)
    assert result["proxy_change"] == pytest.approx(dict.fromkeys(("value", "low", "high"), 0.2))


@pytest.mark.parametrize(
    ("gold", "proxy", "is_overoptimised"),
    [(FALLS, RISES, True), (RISES, RISES, False), (LEVEL, RISES, False), (FALLS, FALLS, False)],
)
def test_overoptimisation_is_a_true_reward_that_falls_while_the_proxy_rises(
    gold, proxy, is_overoptimised
):
    result = proxy_curves.measure_curve(make_curve(gold, proxy), CONFIG, 0)
    assert result["overoptimised"] == is_overoptimised
    if gold == FALLS:
        assert result["best_place"] == 4
        assert result["accuracy_after_best"]["value"] == pytest.approx(-0.2, abs=0.06)


def test_scorers_are_paired_by_problem():
    # both of the same noise, which a paired difference cancels
    single, several = make_curve(LEVEL, RISES), make_curve(RISES, RISES)
    effect = proxy_curves.compare_ends(single, several, CONFIG, 0)
    assert (effect["name"], effect["n"]) == ("ppo", 8)
    assert effect["accuracy_at_end"] == pytest.approx({"value": 0.4, "low": 0.4, "high": 0.4})


def test_the_best_point_is_chosen_on_the_other_half_of_the_problems():
    # Even rows: the odd ones are best at point 0. Odd rows: the even ones at point 1.
    curves = np.array([[0.0, 2, 1], [5, 1, 0], [1, 4, 2], [3, 3, 2]])
    changes = [values.tolist() for values in proxy_curves.change_after_best(curves, 10 * curves)]
    assert changes == [[1, -1, 1, -1], [10, -10, 10, -10]]
    # The odd row's best points tie: the last of them.
    (tied,) = proxy_curves.change_after_best(np.array([[0.0, 5, 3], [0, 1, 1]]))
    assert tied.tolist() == [0, 0]


# The studies

DRAWING = {"num_samples": 4, "temperature": 1.0, "max_new_tokens": 6}
RUN = {"runs": ["dpo"], "start": "sft", "reward": "preference", "sampling": DRAWING,
       "num_bootstrap": 100, "confidence": 0.9}  # fmt: skip
STUDY = {
    "best_of_n": DRAWING | {"num_problems": 4, "num_samples": 16},
    "num_bootstrap": 100, "confidence": 0.9,
}  # fmt: skip


def test_curves_are_of_the_runs_that_the_parameters_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("dpo", "old"):
        path = overoptimization.CHECKPOINTS / name / "rows/0/problems.jsonl"
        path.parent.mkdir(parents=True)
        lines.write_lines(path, ROWS)
    units = {scorer: {"proxy": 1.0, "gold": 1.0} for scorer in overoptimization.SCORERS}
    curves = overoptimization.read_run_curves(["dpo"], 0, units)
    assert [(curve.name, curve.scorer) for curve in curves] == [("dpo", "reward_model")]


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


@pytest.mark.slow
def test_every_policy_of_a_run_is_measured_and_each_seed_has_its_verdict(run, monkeypatch):
    # random models are never right: let each text be right or wrong by its length
    monkeypatch.setattr(
        "stages.rewards.answer_checker.is_correct",
        lambda text, _answer, _forms=None: len(text) % 2 == 0,
    )
    checkpoints.main("dpo")
    written = studied_run.outputs("checkpoints/dpo")
    checkpoints.main("dpo")
    assert studied_run.outputs("checkpoints/dpo") == written
    overoptimization.main()
    measured = json.loads(written["metrics.json"])
    metrics = json.loads(studied_run.outputs("overoptimization")["metrics.json"])
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
        assert list(measured[str(seed)]["steps"]) == ["0", "2", "5"]
        path = DATA / f"studies/overoptimization/rows/{seed}/pools.jsonl"
        pools = list(lines.read_lines(path, ScoredProblem))
        assert [len(pool.correct) for pool in pools] == [16] * 4
        assert [len(pool.ensemble or []) for pool in pools] == [16] * 4
        of_seed = metrics["seeds"][str(seed)]
        names = [(curve["name"], curve["scorer"]) for curve in of_seed["curves"]]
        assert names == [(p, s) for p in ("sft", "dpo") for s in ("reward_model", "ensemble")]
        assert [point["place"] for point in of_seed["curves"][0]["points"]] == [1, 2, 3, 4]
        assert of_seed["generated_tokens"] == sum(pool.generated_tokens for pool in pools)
    assert len(metrics["over_seeds"]) == 4
    assert len(metrics["over_seeds"][0]["accuracy_change"]) == len(SEEDS)
