"""Accuracy by difficulty, without regression to the mean."""

import numpy as np
import pytest
from quality_config import QUALITY

from stages.reports import difficulty
from stages.reports.policy_samples import PolicySamples


def policy(right):
    right = np.asarray(right, dtype=np.bool_)
    return PolicySamples(problems=[], right=right, tokens=np.ones(right.shape, dtype=np.int64),
                         cut=np.zeros_like(right), greedy=[], greedy_right=[])  # fmt: skip


def test_groups_by_the_even_samples_alone():
    right = np.zeros((10, 4), dtype=np.bool_)
    right[:, 1::2] = np.random.default_rng(0).random((10, 2)) < 0.5
    right[4:7, 0] = True
    right[7:, ::2] = True
    groups = difficulty.assign(right, seed=0)
    assert sorted(groups) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert set(groups[:4]) == {0, 1}
    assert set(groups[7:]) == {3, 4}


def test_luck_does_not_come_back():
    # all problems are equally hard: whoever looks hard was unlucky, and is no longer
    right = np.random.default_rng(1).random((5000, 8)) < 0.5
    found = difficulty.measure({"b": policy(right)}, QUALITY, seed=0)
    honest = [one["policies"]["b"]["accuracy"]["value"] for one in found]
    assert np.abs(np.array(honest) - 0.5).max() < 0.03
    assert found[0]["assigned"] < 0.25
    assert found[-1]["assigned"] > 0.75


def test_a_group_worked_by_hand():
    # even samples: 0, 0.5, 0.5, 1, 1 -> but five problems are five groups
    baseline = policy([[0, 1, 0, 0], [0, 1, 1, 1], [1, 0, 1, 0]])
    other = policy([[1, 1, 1, 1], [0, 0, 0, 1], [1, 1, 0, 0]])
    hard, middle, easy = difficulty.measure({"b": baseline, "x": other}, QUALITY, seed=0)
    assert [one["problems"] for one in (hard, middle, easy)] == [1, 1, 1]
    assert [one["assigned"] for one in (hard, middle, easy)] == [0.0, 0.5, 1.0]
    accuracies = [
        (one["policies"]["b"]["accuracy"]["value"], one["policies"]["x"]["accuracy"]["value"])
        for one in (hard, middle, easy)
    ]
    assert accuracies == [(0.5, 1.0), (1.0, 0.25), (0.0, 0.5)]
    gains = [one["policies"]["x"]["gain"]["value"] for one in (hard, middle, easy)]
    assert gains == [0.5, -0.75, 0.5]
    assert hard["policies"]["b"]["gain"] is None
    # a rate of 1 has Wilson's interval, never one of width zero
    assert hard["policies"]["x"]["accuracy"]["low"] < 0.3


def test_ties_are_broken_by_the_seed():
    right = np.ones((10, 2), dtype=np.bool_)
    draws = {tuple(difficulty.assign(right, seed=seed)) for seed in range(5)}
    assert len(draws) == 5


def test_one_sample_cannot_both_tell_and_measure():
    with pytest.raises(ValueError, match="at least 2 samples"):
        difficulty.assign(np.ones((5, 1), dtype=np.bool_), seed=0)
