"""The ensemble against one of its models: nothing where they choose alike, paired where not."""

import numpy as np
import pytest

from stages.algorithms.statistics import reward_over_distance as forms
from stages.reports import ensemble_effect
from stages.reports.overoptimization import Curve, OveroptimizationConfig

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
    return ensemble_effect.compare(*curves, CONFIG, 0)


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
