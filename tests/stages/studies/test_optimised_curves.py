import numpy as np
import pytest

from stages.algorithms.selection import best_of_n
from stages.algorithms.statistics import reward_over_distance as forms
from stages.studies import optimised_curves, proxy_curves
from stages.studies.checkpoint_results import CheckpointResult
from stages.studies.proxy_curves import Curve, OveroptimizationConfig
from stages.studies.scored_pools import ScoredPool

UNITS = {"proxy": 1.0, "gold": 1.0}


def test_best_of_n_goes_to_a_quarter_of_the_pool():
    scores = [np.arange(12.0), np.zeros(12)]
    right = [np.array([0.0] * 11 + [1.0]), np.array([1.0, 0.0] * 6)]
    curve = optimised_curves.of_best_of_n("sft", "ensemble", scores, right)
    assert (curve.method, list(curve.places), curve.form) == ("best_of_n", [1, 2, 3], "quadratic")
    assert curve.units == {
        "proxy": proxy_curves.spread(scores),
        "gold": proxy_curves.spread(right),
    }
    # the best of twelve is in the draw 1/12, 2/12 and 3/12 of the time
    np.testing.assert_allclose(curve.gold, [[1 / 12, 2 / 12, 3 / 12], [0.5, 0.5, 0.5]])
    np.testing.assert_allclose(curve.proxy[0], [5.5, 23 / 3, 8.75])  # n (N + 1) / (n + 1) - 1
    # what has one score for all is not moved
    assert curve.kl[1].tolist() == [0.0, 0.0, 0.0]
    assert curve.kl[0, 2] == best_of_n.kl_plug_in(scores[0], n=3)


def test_what_can_show_nothing_is_told():
    many, right = [np.arange(8.0)], [np.array([0.0, 1.0] * 4)]
    assert optimised_curves.trouble(many, right) is None
    few = optimised_curves.trouble([np.arange(7.0)], [right[0][:7]])
    assert "7 completions" in few
    assert "at least 8" in few
    assert "both right and wrong" in optimised_curves.trouble(many, [np.zeros(8)])
    assert "one score" in optimised_curves.trouble([np.zeros(8)], right)


def test_a_scorer_that_scored_nothing_has_no_curve():
    rows = [
        ScoredPool(
            id=name,
            correct=[True, False] * 4,
            reward_model=[0.0] * 8,
            ensemble=None,
            generated_tokens=8,
            num_distinct=8,
        )
        for name in "ab"
    ]
    assert optimised_curves.of_pools("sft", "ensemble", rows) is None
    assert "one score" in optimised_curves.of_pools("sft", "reward_model", rows)


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
    (curve,) = optimised_curves.of_run("ppo", rows, units)
    assert (curve.name, curve.scorer, curve.form) == ("ppo", "reward_model", "logarithmic")
    assert curve.places == [0, 6]
    assert curve.gold.tolist() == [[0.5, 0.5], [0.0, 1.0]]
    assert curve.proxy.tolist() == [[1.0, 3.0], [1.0, 1.0]]
    assert curve.kl.tolist() == [[0.0, 0.7], [0.0, 0.1]]
    assert optimised_curves.of_run("ppo", rows, {}) == []


CONFIG = OveroptimizationConfig(min_distance=0.1, num_bootstrap=200, confidence=0.95)
DISTANCE = np.array([0.0, 0.5, 1.0, 1.5])
DIFFICULTY = np.random.default_rng(0).normal(size=(50, 1))


def curve(scorer, coefficients):
    """What all problems share, and a difficulty of each, which a paired difference cancels."""
    gold = 0.4 + DIFFICULTY + forms.curve(np.array(coefficients), DISTANCE, "quadratic")
    kl = np.tile(DISTANCE**2, (50, 1))
    return Curve(
        method="best_of_n", name="sft", scorer=scorer, places=[1, 2, 3, 4], form="quadratic",
        kl=kl, proxy=gold, gold=gold, units={"proxy": 1.0, "gold": 0.5},
    )  # fmt: skip


def compare(single, several):
    curves = curve("reward_model", single), curve("ensemble", several)
    return optimised_curves.effect(*curves, CONFIG, 0)


def test_a_peak_farther_away_and_a_better_end():
    # 2 d - d^2 / 1: peak at 1; 2 d - 0.8 d^2: at 1.25
    found = compare((2.0, 1.0), (2.0, 0.8))
    assert (found["name"], found["n"]) == ("sft", 4)
    assert found["peak_shift"] == pytest.approx({"value": 0.25, "low": 0.25, "high": 0.25})
    assert found["accuracy_at_end"]["value"] == pytest.approx(0.2 * 1.5**2)
    assert found["accuracy_at_end"]["low"] == pytest.approx(found["accuracy_at_end"]["high"])


def test_the_same_choices_make_no_difference():
    found = compare((2.0, 1.0), (2.0, 1.0))
    assert found["peak_shift"] == found["accuracy_at_end"] == dict.fromkeys(
        ("value", "low", "high"), 0.0
    )  # fmt: skip


def test_without_a_peak_there_is_no_shift():
    assert compare((2.0, 1.0), (2.0, -0.1))["peak_shift"] is None
