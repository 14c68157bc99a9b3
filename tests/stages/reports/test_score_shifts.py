"""Scores of right and wrong completions, within their problems."""

import numpy as np
from quality_config import QUALITY

from stages.reports import score_shifts
from stages.reports.policy_samples import PolicySamples


def policy(right):
    right = np.asarray(right, dtype=np.bool_)
    return PolicySamples(problems=[], right=right, tokens=np.ones(right.shape, dtype=np.int64),
                         cut=np.zeros_like(right), greedy=[], greedy_right=[])  # fmt: skip


POLICIES = {"b": policy([[1, 0], [1, 1], [0, 0]]), "x": policy([[0, 0], [1, 0], [0, 1]])}
SCORES = {
    "b": np.array([[2.0, 0.0], [101.0, 103.0], [-50.0, -50.0]]),
    "x": np.array([[3.0, 1.0], [102.0, 104.0], [-49.0, -52.0]]),
}


def test_zero_is_the_baselines_mean_on_the_same_problem():
    shifts = score_shifts.shifts(SCORES)
    assert shifts["b"].tolist() == [[1, -1], [-1, 1], [0, 0]]
    assert shifts["x"].tolist() == [[2, 0], [0, 2], [1, -2]]


def test_a_constant_of_a_problem_changes_nothing():
    moved = {name: one + np.array([[7.0], [-3.0], [1000.0]]) for name, one in SCORES.items()}
    before = score_shifts.measure(SCORES, POLICIES, QUALITY, seed=0)
    assert score_shifts.measure(moved, POLICIES, QUALITY, seed=0) == before


def test_numbers_by_hand():
    found = score_shifts.measure(SCORES, POLICIES, QUALITY, seed=0)["x"]
    assert found["all"]["value"] == round((1 + 1 - 0.5) / 3, 6)
    assert found["right"]["value"] == (0 - 2) / 2
    assert found["wrong"]["value"] == round((1 + 2 + 1) / 3, 6)
    # above b's mean right score: of 3 and 1 the first (2), 104 (102); problem 3 has no right one
    assert found["exploited"]["value"] == (0.5 + 1) / 2


def test_a_policy_without_wrong_completions_exploits_nothing():
    every = {"b": policy([[1, 1]])}
    found = score_shifts.measure({"b": np.array([[1.0, 2.0]])}, every, QUALITY, seed=0)["b"]
    assert found["wrong"] is None
    assert found["exploited"] is None
