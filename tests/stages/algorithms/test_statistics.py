"""Intervals, tests and scores against enumeration and definition; how often they hold: weekly."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from stages.algorithms.statistics import (
    crossed_means,
    error_detection,
    intervals,
    reward_over_distance,
    score_quality,
)
from stages.algorithms.statistics.crossed_means import (
    PowerDesign,
    VarianceComponents,
    collapse_clusters,
    detectable_difference,
    estimate_means,
    holm_adjusted,
    required_sizes,
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


def test_bootstrap_columns_are_independent_and_draws_those_of_the_seed():
    values = normal((60, 3))
    together = intervals.bootstrap_means(values, **SETTINGS)
    alone = intervals.bootstrap_means(values[:, 1:2], **SETTINGS)
    ones = intervals.bootstrap_ratios(values[:, 1:2], np.ones((60, 1)), **SETTINGS)
    for all_, one, ratio in zip(together, alone, ones, strict=True):
        assert all_[1] == pytest.approx(one[0], abs=1e-14)
        assert ratio[0] == pytest.approx(one[0])
    other = intervals.bootstrap_means(values, **SETTINGS | {"seed": 1})
    assert (other.low != together.low).all()
    few = intervals.bootstrap_means(normal((6400, 1))[:400], **SETTINGS)
    many = intervals.bootstrap_means(normal((6400, 1)), **SETTINGS)
    assert (few.high - few.low) / (many.high - many.low) == pytest.approx([4.0], rel=0.2)


def test_intervals_of_rates_mirror():
    low, high = intervals.wilson_interval(3, 20, confidence=0.9)
    assert intervals.wilson_interval(17, 20, confidence=0.9) == pytest.approx((1 - high, 1 - low))


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


DESIGN = PowerDesign(significance=0.05, power=0.8)
SEVERAL = VarianceComponents(*np.array([[0.0004], [0.01], [0.05]]))


@pytest.mark.parametrize("effect", [0.05, -0.08])
def test_required_sizes_are_the_fewest_that_detect_the_effect(effect):
    problems, seeds = required_sizes(SEVERAL, effect, DESIGN, num_seeds=8, num_problems=200)
    for sizes, fewer in (
        ({"num_seeds": 8, "num_problems": problems}, {"num_problems": problems - 1}),
        ({"num_seeds": seeds, "num_problems": 200}, {"num_seeds": seeds - 1}),
    ):
        assert detectable_difference(SEVERAL, DESIGN, **sizes) <= abs(effect)
        assert detectable_difference(SEVERAL, DESIGN, **sizes | fewer) > abs(effect)


@pytest.mark.parametrize("offset", [0.0, 0.5])
def test_an_experiment_is_planned_as_it_is_estimated(offset):
    # With and without a spread of the seeds; so many problems that what is rare adds little.
    values = normal((3, 2000), seed=4) + normal((1, 2000), seed=5)
    values = values - values.mean(axis=1, keepdims=True) + offset * np.arange(3)[:, None]
    found = estimate_means(values[..., None], confidence=0.95)
    half = PowerDesign(significance=0.05, power=0.5)  # its quantile is 0
    planned = detectable_difference(found.components, half, num_seeds=3, num_problems=2000)
    assert planned == pytest.approx(found.high - found.value, rel=0.01)


def test_a_forecast_is_detected_as_often_as_its_design_says():
    """By the test itself, on tables drawn with these components; 4,000 draws: 3 errors are 0.02."""
    forecast = crossed_means.forecast_difference(SEVERAL, DESIGN, confidence=0.95, num_seeds=3,
        num_problems=40)  # fmt: skip
    stream, shapes = np.random.default_rng(0), [(3, 1, 4000), (1, 40, 4000), (3, 40, 4000)]
    deviations = (SEVERAL.seed, SEVERAL.problem, SEVERAL.residual)
    parts = (stream.normal(0, v**0.5, s) for v, s in zip(deviations, shapes, strict=True))
    found = estimate_means(forecast.detectable + sum(parts), confidence=0.95)
    assert np.mean(found.p_value <= 0.05) == pytest.approx(0.8, abs=0.02)
    assert np.median(found.high - found.value) == pytest.approx(forecast.half_width, rel=0.03)


def test_holm_keeps_the_order_and_lies_between_plain_values_and_bonferroni():
    stream = np.random.default_rng(0)
    for _ in range(50):
        plain = stream.random(6) ** 3
        found = np.array(holm_adjusted(plain.tolist()))
        assert (found >= plain).all()
        assert (found <= np.minimum(1.0, 6 * plain) + 1e-15).all()
        assert (np.diff(found[np.argsort(plain)]) >= 0).all()


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


# --- reward over distance -----------------------------------------------------------------------
@pytest.mark.parametrize("form", ["quadratic", "logarithmic"])
def test_fits_are_least_squares_and_peaks_the_largest_values(form):
    d = np.array([0.0, 0.2, 0.9, 1.5, 3.0])
    for both in ((2.0, 0.7), (1.0, -0.3), (-0.5, 0.4), (0.0, 0.0)):
        reward = reward_over_distance.reward_curve(np.array(both), d, form)
        found = reward_over_distance.fit_curve(d, reward, form)
        np.testing.assert_allclose(found, both, atol=1e-12)
    distances, rewards = np.random.default_rng(3).random((5, 4)) + 0.2, normal((5, 4))
    found = reward_over_distance.fit_curve(distances, rewards, form, min_distance=0.3)
    for item, place, values in zip(found, distances, rewards, strict=True):
        alone = reward_over_distance.fit_curve(place, values, form, min_distance=0.3)
        np.testing.assert_allclose(item, alone)
        used = place > 0.3

        def loss(coefficients, place=place[used], values=values[used]):
            curve = reward_over_distance.reward_curve(np.array(coefficients), place, form)
            return ((curve - values) ** 2).sum()

        for change in ([1e-3, 0], [-1e-3, 0], [0, 1e-3], [0, -1e-3]):
            assert loss(item + change) > loss(item)
    both, grid = np.array([1.3, 0.8]), np.linspace(0.0, 10.0, 200_001)
    values = reward_over_distance.reward_curve(both, grid, form)
    peak = reward_over_distance.peak_distance(both, form)
    assert peak == pytest.approx(grid[values.argmax()], abs=1e-4)
    assert reward_over_distance.peak_reward(both, form) == pytest.approx(values.max(), abs=1e-8)


# --- scores ---------------------------------------------------------------------------------------
def test_auc_compares_all_pairs_and_turns_with_the_scores():
    stream = np.random.default_rng(1)
    scores, is_right = stream.integers(0, 5, 30).astype(float), stream.random(30) < 0.5
    right, wrong = scores[is_right][:, None], scores[~is_right][None]
    found = score_quality.auc(scores, is_right)
    assert found == pytest.approx(np.mean((right > wrong) + 0.5 * (right == wrong)))
    assert score_quality.auc(-scores, is_right) == pytest.approx(1 - found)
    assert score_quality.auc(np.exp(scores), is_right) == found


def calibrate(probabilities, outcomes, num_bins=10):
    problems = np.arange(len(probabilities))
    return score_quality.expected_calibration_error(probabilities, outcomes.astype(float), problems,
        num_bins=num_bins, **SETTINGS)  # fmt: skip


def test_calibration_does_not_depend_on_the_order_of_a_pair():
    margins, labels = 2 * normal(200), np.random.default_rng(1).random(200)
    confidence, outcome = score_quality.preferred_side(margins, labels)
    turned = score_quality.preferred_side(-margins, 1 - labels)
    np.testing.assert_allclose(np.stack(turned), np.stack([confidence, outcome]))
    q = 1 / (1 + np.exp(-margins))
    both = np.concatenate([q, 1 - q]), np.concatenate([labels, 1 - labels])
    once = calibrate(confidence, outcome, num_bins=5)
    assert once.value == pytest.approx(calibrate(*both).value)


def test_overconfidence_shows_and_calibration_has_only_its_noise():
    stream = np.random.default_rng(1)
    truth = stream.random(4000)
    outcomes = stream.random(4000) < truth
    calibrated = calibrate(truth, outcomes)
    assert calibrated.value < 3 * np.sqrt(10 / 4000)
    assert calibrate(truth**3 / (truth**3 + (1 - truth) ** 3), outcomes).low > calibrated.high


# --- how often intervals hold, on pools of samples whose true accuracies are known ----------------
POOLS = 1000


def difficulties(stream, num_problems):
    """P(right) of each problem and pool, between 0.2 and 0.8; the true mean is 0.5."""
    return 0.2 + 0.6 * stream.beta(2.0, 2.0, (num_problems, POOLS))


def differences(num_seeds, seed_deviation, *, seed=0, num_problems=150, num_samples=8):
    """One method minus another, true mean 0: seed x problem x pool.

    Each seed adds something to each method on every problem; no probability is cut at 0 or 1.
    """
    stream = np.random.default_rng(seed)

    def spread(deviation, shape):
        return stream.uniform(-1.0, 1.0, shape) * deviation * 3**0.5

    shared = difficulties(stream, num_problems)
    rates = (shared + spread(0.03, (num_problems, POOLS)) + spread(seed_deviation,
        (num_seeds, 1, POOLS)) for _ in range(2))  # fmt: skip
    one, other = (stream.binomial(num_samples, rate) / num_samples for rate in rates)
    return one - other


def coverage(found, truth=0.0):
    return float(np.mean((found.low <= truth) & (truth <= found.high)))


TENTH = [
    Case(kind, *sizes, ratio)
    for kind in (Kind(), Kind(spread=0.0), Kind(0.02, 1), Kind(0.5, 4), Kind(0.98, 16))
    for sizes in ((3, 24), (4, 24), (5, 24), (8, 24), (3, 100))
    for ratio in (0.0, 1.0, 10.0)
]


def test_tests_and_intervals_err_as_rarely_as_they_say():
    """On a tenth of the grid of `tests.error_rates`; three errors of 1,000 tables are 2.3 %."""
    rates = [error_rates.measure(case, 1000, at)[0][0] for at, case in enumerate(TENTH)]
    errors = np.array([found.errors for found in rates])
    assert errors.max() <= 0.06 + 0.023
    assert errors.mean(axis=0).max() <= 0.05
    assert min(found.coverage for found in rates) >= 0.94 - 0.023
    for num_problems, expected in itertools.product((24, 100), range(1, 7)):
        assert error_rates.rare_coverage(expected, num_problems, 2000) >= 0.94 - 0.016


def parametric_bootstrap(values, num_draws=100_000):
    """The report's p-value by other code, and how often the fitted mixed model has as small a one.

    y[s, p] = seed[s] + problem[p] + residual[s, p], normal, with mean 0 and the variances that the
    mean squares estimate.
    """
    shape = num_seeds, num_problems = values.shape
    means = values.mean(1, keepdims=True), values.mean(0, keepdims=True)
    residuals = values - means[0] - means[1] + values.mean()
    degrees = np.array([num_seeds - 1, num_problems - 1, (num_seeds - 1) * (num_problems - 1)])
    between = (np.square(m - values.mean()).sum() * values.size / m.size for m in means)
    squares = np.array([*between, np.square(residuals).sum()]) / degrees
    fitted = np.maximum(squares, squares[2])
    deviations = np.square(values - np.median(values))
    rare = 3 * deviations[deviations > 0].mean() / num_problems**2

    def p(mean, seed, problem, residual):
        seed = np.maximum(seed, residual) / np.prod(shape)
        total = seed + np.maximum(problem - residual, 0) / np.prod(shape) + rare
        tails = (special.stdtr(float(n), -abs(mean) / total**0.5) for n in degrees[:2])
        return 2 * sum(np.multiply((seed / total, 1 - seed / total), [*tails]))

    stream = np.random.default_rng(0)
    drawn = fitted[:, None] * stream.chisquare(degrees, (num_draws, 3)).T / degrees[:, None]
    deviation = (fitted @ [1, 1, -1] / np.prod(shape)) ** 0.5
    observed = p(values.mean(), *squares)
    return observed, np.mean(p(stream.normal(0, deviation, num_draws), *drawn) <= observed)


def test_a_parametric_bootstrap_of_the_default_run_gives_no_larger_p_values():
    """Mean accuracies of the default run's 530 test problems, in sixteenths.

    The bootstrap takes the seeds' fitted share of the variance for certain. Where nearly all is the
    seeds' and they differ by more than noise, the share does not matter, and both agree; else the
    report's p-value, which allows for every share, is larger.
    """
    lines = (Path(__file__).parent / "default_run_cells.txt").read_text().splitlines()
    cells = {}
    for name, _, digits in map(str.split, lines):
        cells.setdefault(name, []).append([int(digit, 17) / 16 for digit in digits])
    ratios = {}
    for first, second in itertools.combinations(cells, 2):
        difference = np.array(cells[second]) - np.array(cells[first])
        found = estimate_means(difference[..., None], confidence=0.95, largest=1.0).p_value[0]
        same, drawn = parametric_bootstrap(difference)
        assert found == pytest.approx(same, rel=1e-6)
        if found > 0.001:
            ratios[f"{second} - {first}"] = drawn / found
    assert len(ratios) == 7
    assert max(ratios.values()) <= 1.1
    assert ratios["ppo - dpo-ai"] >= 0.9


@pytest.mark.weekly
def test_variance_components_are_unbiased():
    components = estimate_means(differences(8, 0.05, seed=3), confidence=0.95).components
    assert components.seed.mean() == pytest.approx(2 * 0.05**2, rel=0.05)
    assert components.problem.mean() == pytest.approx(2 * 0.03**2, rel=0.1)


@pytest.mark.weekly
def test_95_of_100_intervals_over_problems_hold_the_truth():
    stream = np.random.default_rng(0)
    means = stream.binomial(8, difficulties(stream, 200)) / 8
    many = SETTINGS | {"num_resamples": 1000}
    assert 0.93 <= coverage(intervals.bootstrap_means(means, **many), 0.5) <= 0.97
    paired = differences(1, 0.0, num_problems=200)[0]
    assert 0.93 <= coverage(intervals.bootstrap_means(paired, **many)) <= 0.97
    rates = stream.uniform(0.05, 0.95, 1000)
    bounds = [intervals.wilson_interval(int(n), 100, confidence=0.95)
        for n in stream.binomial(100, rates)]  # fmt: skip
    held = [low <= rate <= high for rate, (low, high) in zip(rates, bounds, strict=True)]
    assert 0.93 <= np.mean(held) <= 0.97


@pytest.mark.weekly
def test_tables_without_differences_err_as_rarely_as_they_say():
    stream = np.random.default_rng(1)
    errs = [min(holm_adjusted(stream.random(8).tolist())) <= 0.05 for _ in range(4000)]
    assert np.mean(errs) == pytest.approx(1 - (1 - 0.05 / 8) ** 8, abs=0.017)  # five errors
    naive, found = [], []
    for _ in range(400):
        level = stream.normal(size=(40, 6))
        naive.append(level[:, -1].mean() - level.mean(axis=0).max())
        found.append(reward_over_distance.change_after_best(level)[0].mean())
    assert abs(np.mean(found)) < 3 * np.std(found) / 20
    assert np.mean(naive) < -10 * np.std(found) / 20
