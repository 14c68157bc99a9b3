"""Intervals, tests and scores against enumeration and definition; how often they hold: weekly."""

import itertools
import math

import numpy as np
import pytest

from stages.algorithms.statistics import (
    error_detection,
    intervals,
    score_quality,
)
from stages.algorithms.statistics.crossed_means import (
    PowerDesign,
    collapse_clusters,
    detectable_difference,
    estimate_means,
)
from tests import error_rates
from tests.error_rates import Case, Kind

SETTINGS = {"num_resamples": 500, "confidence": 0.95, "seed": 0}
MANY = {"num_resamples": 20_000, "confidence": 0.5, "seed": 0}


def normal(shape, shift=0.0, seed=0):
    return np.random.default_rng(seed).normal(shift, 1.0, shape)


# --- bootstrap: quantiles over all equally likely resamples -----------------------------------
def test_bootstrap_bounds_are_quantiles_of_all_resamples():
    values = np.array([0.0, 1.0, 4.0, 10.0])
    means = [np.mean(draw) for draw in itertools.product(values, repeat=4)]
    found = intervals.bootstrap_means(values[:, None], **MANY)
    assert found.value.tolist() == [3.75]
    for bound, share in ((found.low, 0.25), (found.high, 0.75)):
        assert bound[0] == pytest.approx(np.quantile(means, share), abs=0.26)


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


def test_a_difference_of_first_errors_is_paired():
    stream, problems = np.random.default_rng(0), np.arange(400)
    truth = np.where(problems % 2, -1, 1)
    worse = np.where(stream.random(400) < 0.5, truth, 0)
    better = np.where(stream.random(400) < 0.1, truth, worse)

    def f1(predicted, baseline=None):
        rows = predicted, truth, problems
        return error_detection.accuracy_intervals(*rows, baseline=baseline, **SETTINGS)["f1"]

    assert f1(worse, worse) == (0.0, 0.0, 0.0)
    paired, higher = f1(better, worse), f1(better)
    assert paired.value == pytest.approx(higher.value - f1(worse).value)
    assert paired.high - paired.low < 0.5 * (higher.high - higher.low)


def test_bootstrap_draws_are_those_of_the_seed_and_columns_do_not_mix():
    values = normal((60, 3))
    together = intervals.bootstrap_means(values, **SETTINGS)
    alone = intervals.bootstrap_means(values[:, 1:2], **SETTINGS)
    ones = intervals.bootstrap_ratios(values[:, 1:2], np.ones((60, 1)), **SETTINGS)
    for columns, column, ratio in zip(together, alone, ones, strict=True):
        assert columns[1] == pytest.approx(column[0], abs=1e-14)
        assert ratio[0] == pytest.approx(column[0])
    other = intervals.bootstrap_means(values, **SETTINGS | {"seed": 1})
    assert (other.low != together.low).all()


# --- means over seeds and problems --------------------------------------------------------------
@pytest.mark.parametrize("num_seeds", [1, 2, 4])
def test_means_mirror_and_order_does_not_matter(num_seeds):
    stream, values = np.random.default_rng(0), normal((num_seeds, 20, 5), 0.1)
    found, mirrored = (estimate_means(x, confidence=0.95) for x in (values, -values))
    shuffled = stream.permutation(stream.permutation(values, axis=0), axis=1)
    assert mirrored.low == pytest.approx(-found.high)
    assert mirrored.p_value == pytest.approx(found.p_value)
    assert estimate_means(shuffled, confidence=0.95).low == pytest.approx(found.low)


def test_the_interval_leaves_0_out_exactly_where_p_is_small():
    found = estimate_means(normal((3, 30, 200), 0.2), confidence=0.9)
    outside = (found.low > 0.0) | (found.high < 0.0)
    assert 0 < outside.sum() < 200
    np.testing.assert_array_equal(outside, found.p_value < 0.1)


def test_rounding_in_some_cells_is_no_difference():
    noise = np.where(np.arange(40).reshape(2, 20, 1) % 2, 5e-17, 0.0)
    assert estimate_means(noise, confidence=0.95).p_value == 1.0
    assert estimate_means(1e15 * noise, confidence=0.95).p_value < 0.001


def test_repeated_problems_are_no_evidence():
    cells = np.random.default_rng(0).random((3, 5, 2))
    repeated, clusters = np.repeat(cells, 4, axis=1), np.repeat(np.arange(5), 4)
    assert collapse_clusters(repeated, clusters) == pytest.approx(cells)
    assert collapse_clusters(cells, np.arange(5)) is cells
    found, independent = (estimate_means(x, confidence=0.95) for x in (cells, repeated))
    assert (independent.standard_error < found.standard_error).all()
    uneven = np.array([0, 0, 0, 1, 2])
    assert collapse_clusters(cells, uneven).mean(axis=1) == pytest.approx(cells.mean(axis=1))


@pytest.mark.parametrize("offset", [0.0, 0.5])
def test_an_experiment_is_planned_as_it_is_estimated(offset):
    # With and without a spread of the seeds; so many problems that what is rare adds little.
    values = normal((3, 2000), seed=4) + normal((1, 2000), seed=5)
    values = values - values.mean(axis=1, keepdims=True) + offset * np.arange(3)[:, None]
    found = estimate_means(values[..., None], confidence=0.95)
    half = PowerDesign(significance=0.05, power=0.5)  # its quantile is 0
    planned = detectable_difference(found.components, half, num_seeds=3, num_problems=2000)
    assert planned == pytest.approx(found.high - found.value, rel=0.01)


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


# --- scores ---------------------------------------------------------------------------------------
def test_auc_compares_all_pairs_and_turns_with_the_scores():
    stream = np.random.default_rng(1)
    scores, is_right = stream.integers(0, 5, 30).astype(float), stream.random(30) < 0.5
    right, wrong = scores[is_right][:, None], scores[~is_right][None]
    found = score_quality.auc(scores, is_right)
    assert found == pytest.approx(np.mean((right > wrong) + 0.5 * (right == wrong)))
    assert score_quality.auc(-scores, is_right) == pytest.approx(1 - found)
    assert score_quality.auc(np.exp(scores), is_right) == found


def test_calibration_shows_overconfidence_and_no_order_of_a_pair():
    stream = np.random.default_rng(1)

    def calibrate(probabilities, outcomes):
        problems = np.arange(len(probabilities))
        return score_quality.expected_calibration_error(probabilities, outcomes.astype(float),
            problems, num_bins=10, **SETTINGS)  # fmt: skip

    truth = stream.random(4000)
    outcomes = stream.random(4000) < truth
    calibrated = calibrate(truth, outcomes)
    assert calibrated.value < 3 * np.sqrt(10 / 4000)
    assert calibrate(truth**3 / (truth**3 + (1 - truth) ** 3), outcomes).low > calibrated.high
    margins, labels = 2 * normal(200), stream.random(200)
    preferred = score_quality.preferred_side(margins, labels)
    turned = score_quality.preferred_side(-margins, 1 - labels)
    np.testing.assert_allclose(np.stack(turned), np.stack(preferred))


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
    for num_problems, expected in itertools.product((24, 100), range(1, 7)):
        assert error_rates.rare_coverage(expected, num_problems, 2000) >= 0.94 - 0.016


@pytest.mark.weekly
def test_intervals_over_problems_hold():
    stream = np.random.default_rng(0)
    rates = 0.2 + 0.6 * stream.beta(2.0, 2.0, (200, 1000))
    found = intervals.bootstrap_means(stream.binomial(8, rates) / 8, num_resamples=1000,
        confidence=0.95, seed=0)  # fmt: skip
    assert 0.93 <= np.mean((found.low <= 0.5) & (found.high >= 0.5)) <= 0.97
