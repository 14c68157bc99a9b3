"""Intervals, tests and scores against enumeration and definition; how often they hold: weekly."""

import itertools
import math

import numpy as np
import pytest

from stages.algorithms.statistics import error_detection, intervals
from stages.algorithms.statistics.crossed_means import estimate_means
from tests import error_rates
from tests.error_rates import Case, Kind

SETTINGS = {"num_resamples": 500, "confidence": 0.95, "seed": 0}
MANY = {"num_resamples": 20_000, "confidence": 0.5, "seed": 0}


def normal(shape, shift=0.0, seed=0):
    return np.random.default_rng(seed).normal(shift, 1.0, shape)


# --- bootstrap: quantiles over all equally likely resamples -----------------------------------
def test_first_error_bounds_are_quantiles_of_all_draws_of_problems():
    # Solutions 0 and 1 are of one problem and are drawn together.
    predicted, truth, problems = np.array([[0, 1, -1, 0], [0, 0, -1, -1], [0, 0, 1, 2]])
    values = []
    for draw in itertools.product(range(3), repeat=3):
        rows = [row for problem in draw for row in range(4) if problems[row] == problem]
        wrong = [predicted[r] == truth[r] for r in rows if truth[r] != -1]
        right = [predicted[r] == truth[r] for r in rows if truth[r] == -1]
        if wrong and right:
            e, c = np.mean(wrong), np.mean(right)
            values.append(2 * e * c / (e + c) if e + c else 0.0)
    found = error_detection.accuracy_intervals(predicted, truth, problems, **MANY)["f1"]
    assert found.value == 0.5
    assert found[1:] == pytest.approx(np.quantile(values, [0.25, 0.75]))


# --- means over seeds and problems --------------------------------------------------------------
def test_the_interval_leaves_0_out_exactly_where_p_is_small():
    found = estimate_means(normal((3, 30, 200), 0.2), confidence=0.9)
    outside = (found.low > 0.0) | (found.high < 0.0)
    assert 0 < outside.sum() < 200
    np.testing.assert_array_equal(outside, found.p_value < 0.1)


def test_rounding_in_some_cells_is_no_difference():
    noise = np.where(np.arange(40).reshape(2, 20, 1) % 2, 5e-17, 0.0)
    assert estimate_means(noise, confidence=0.95).p_value == 1.0
    assert estimate_means(1e15 * noise, confidence=0.95).p_value < 0.001


# --- first errors -------------------------------------------------------------------------------
def f1(scores, truth, threshold):
    """By definition, a threshold at a time."""
    found = [error_detection.first_below(item, threshold) for item in scores]
    hits = list(zip(found, truth, strict=True))
    e = np.mean([a == b for a, b in hits if b != -1])
    c = np.mean([a == b for a, b in hits if b == -1])
    return 2 * e * c / (e + c) if e + c else 0.0


def test_no_threshold_of_a_fine_grid_is_better():
    stream = np.random.default_rng(0)
    for _ in range(12):
        scores = [stream.random(stream.integers(1, 6)).round(1).tolist() for _ in range(12)]
        truth = [-1, 0, *(int(stream.integers(-1, len(score))) for score in scores[2:])]
        chosen = error_detection.best_threshold(scores, truth)
        assert chosen.f1 == pytest.approx(f1(scores, truth, chosen.threshold))
        assert chosen.f1 >= max(f1(scores, truth, t) for t in np.linspace(0, 1.01, 103)) - 1e-12
    high = math.nextafter(0.5, 1)
    chosen = error_detection.best_threshold([[0.5], [high]], [0, -1])
    assert chosen.f1 == f1([[0.5], [high]], [0, -1], chosen.threshold) == 1.0


# --- how often tests err and intervals hold -------------------------------------------------------
TENTH = [
    Case(kind, *sizes, ratio)
    for kind in (Kind(), Kind(spread=0.0), Kind(0.02, 1), Kind(0.5, 4), Kind(0.98, 16))
    for sizes in ((3, 24), (4, 24), (5, 24), (8, 24), (3, 100))
    for ratio in (0.0, 1.0, 10.0)
]


def test_tests_and_intervals_err_as_rarely_as_they_say():
    """On a tenth of the grid of `tests.error_rates`; three errors of 1,000 tables are 2.3 %."""
    rates = [error_rates.measure(case, 1000, at) for at, case in enumerate(TENTH)]
    errors = np.array([found.errors for found in rates])
    assert errors.max() <= 0.06 + 0.023
    assert errors.mean(axis=0).max() <= 0.05
    assert min(found.coverage for found in rates) >= 0.94 - 0.023
    for *sizes, expected in itertools.product((24, 100), (1, 16), range(1, 7)):
        problems, samples = sizes
        assert error_rates.rare_coverage(expected, problems, 2000, samples) >= 0.94 - 0.016


def test_no_interval_becomes_narrow_where_a_few_problems_differ_a_little():
    cells = np.zeros((3, 530, 6))
    for number in range(1, 6):
        cells[0, :number, number] = 1 / 16
    means = estimate_means(cells, confidence=0.95, largest=1.0)
    widths = (means.high - means.low) / (means.high[0] - means.low[0])
    assert (np.diff(widths) < 0).all()
    np.testing.assert_allclose(widths**2, 1 - np.arange(6) / 6, atol=0.05)


@pytest.mark.weekly
def test_intervals_over_problems_hold():
    stream = np.random.default_rng(0)
    rates = 0.2 + 0.6 * stream.beta(2.0, 2.0, (200, 1000))
    found = intervals.bootstrap_means(stream.binomial(8, rates) / 8, num_resamples=1000,
        confidence=0.95, seed=0)  # fmt: skip
    assert 0.93 <= np.mean((found.low <= 0.5) & (found.high >= 0.5)) <= 0.97
