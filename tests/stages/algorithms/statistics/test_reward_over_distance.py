import math

import numpy as np
import pytest

from stages.algorithms.statistics import reward_over_distance as forms
from stages.algorithms.statistics.reward_over_distance import change_after_best

BOTH = pytest.mark.parametrize("form", ["quadratic", "logarithmic"])


def test_both_forms_by_hand():
    d = np.array([0.0, 1.0, 2.0])
    both = np.array([3.0, 0.5])
    assert forms.reward_curve(both, d, "quadratic").tolist() == [0.0, 2.5, 4.0]
    expected = [0.0, 3.0, 2 * (3 - 0.5 * math.log(2))]
    assert forms.reward_curve(both, d, "logarithmic").tolist() == pytest.approx(expected)


def test_peaks_by_hand():
    # 3 d - d^2 / 2: at 3, 4.5
    both = np.array([3.0, 0.5])
    assert forms.peak_distance(both, "quadratic") == 3.0
    assert forms.peak_reward(both, "quadratic") == 4.5
    # d (1 - log d): at 1, 1
    assert forms.peak_distance(np.array([1.0, 1.0]), "logarithmic") == 1.0
    assert forms.peak_reward(np.array([1.0, 1.0]), "logarithmic") == 1.0
    assert forms.peak_distance(np.array([2.0, 0.5]), "logarithmic") == pytest.approx(math.exp(3))


@BOTH
@pytest.mark.parametrize("coefficients", [(2.0, 0.7), (1.0, -0.3), (-0.5, 0.4), (0.0, 0.0)])
def test_noise_free_points_give_their_coefficients_back(form, coefficients):
    d = np.array([0.0, 0.2, 0.9, 1.5, 3.0])
    made = forms.reward_curve(np.array(coefficients), d, form)
    result = forms.fit_curve(d, made, form)
    np.testing.assert_allclose(result, coefficients, atol=1e-12)


@BOTH
def test_it_is_least_squares(form):
    stream = np.random.default_rng(0)
    d, reward = stream.random(6) * 3 + 0.1, stream.normal(size=6)
    best = forms.fit_curve(d, reward, form)

    def loss(coefficients):
        return ((forms.reward_curve(coefficients, d, form) - reward) ** 2).sum()

    for change in ([1e-3, 0], [-1e-3, 0], [0, 1e-3], [0, -1e-3]):
        assert loss(best + change) > loss(best)


@BOTH
def test_the_peak_is_the_largest_value_of_the_curve(form):
    both = np.array([1.3, 0.8])
    grid = np.linspace(0.0, 10.0, 200_001)
    values = forms.reward_curve(both, grid, form)
    assert forms.peak_distance(both, form) == pytest.approx(grid[values.argmax()], abs=1e-4)
    assert forms.peak_reward(both, form) == pytest.approx(values.max(), abs=1e-8)


def test_without_a_turn_there_is_no_peak():
    for form in ("quadratic", "logarithmic"):
        for beta in (0.0, -0.4):
            assert forms.peak_distance(np.array([1.0, beta]), form) == np.inf
            assert forms.peak_reward(np.array([1.0, beta]), form) == np.inf


def test_a_curve_that_falls_from_the_start_has_its_peak_there():
    falling = np.array([-1.0, 0.5])
    assert forms.peak_distance(falling, "quadratic") == 0.0
    assert forms.peak_reward(falling, "quadratic") == 0.0
    # the logarithmic form rises at first, whatever alpha
    assert forms.peak_distance(falling, "logarithmic") == pytest.approx(math.exp(-3))


def test_a_peak_too_far_for_a_float_is_infinite():
    assert forms.peak_distance(np.array([1.0, 1e-6]), "logarithmic") == np.inf


@BOTH
def test_points_that_fix_no_curve_give_nan(form):
    for d in ([0.0, 0.0, 0.0], [0.0, 2.0], [0.0, 2.0, 2.0]):
        distance = np.array(d)
        result = forms.fit_curve(distance, distance, form)
        assert np.isnan(result).all(), d
        assert np.isnan(forms.peak_distance(result, form))


def test_near_points_are_left_out():
    d = np.array([0.0, 0.05, 1.0, 2.0])
    made = forms.reward_curve(np.array([2.0, 0.7]), d, "logarithmic")
    made[1] = 100.0
    result = forms.fit_curve(d, made, "logarithmic", min_distance=0.05)
    np.testing.assert_allclose(result, [2.0, 0.7], atol=1e-12)
    assert not np.allclose(forms.fit_curve(d, made, "logarithmic"), [2.0, 0.7], atol=0.1)


@BOTH
def test_resamples_are_fitted_one_by_one(form):
    stream = np.random.default_rng(3)
    d, reward = stream.random((5, 4)) + 0.2, stream.normal(size=(5, 4))
    together = forms.fit_curve(d, reward, form, min_distance=0.3)
    for item, place, values in zip(together, d, reward, strict=True):
        np.testing.assert_allclose(item, forms.fit_curve(place, values, form, min_distance=0.3))


def test_by_hand():
    values = np.array(
        [
            [0.0, 2.0, 1.0],  # even: the odd rows are best at point 0
            [5.0, 1.0, 0.0],  # odd: the even rows are best at point 1
            [1.0, 4.0, 2.0],
            [3.0, 3.0, 2.0],
        ]
    )
    other = values * 10
    gold, proxy = change_after_best(values, other)
    assert gold.tolist() == [1.0 - 0.0, 0.0 - 1.0, 2.0 - 1.0, 2.0 - 3.0]
    assert proxy.tolist() == [10.0, -10.0, 10.0, -10.0]


def test_of_a_tie_the_last_counts_and_a_rising_curve_does_not_fall():
    assert change_after_best(np.array([[0.0, 1.0, 1.0], [0.0, 1.0, 1.0]]))[0].tolist() == [0.0, 0.0]
    assert not change_after_best(np.arange(12.0).reshape(4, 3))[0].any()


def test_luck_is_not_taken_for_a_fall():
    stream = np.random.default_rng(0)
    naive, fitted = [], []
    for _ in range(400):
        level = stream.normal(size=(40, 6))
        naive.append(level[:, -1].mean() - level.mean(axis=0).max())
        fitted.append(change_after_best(level)[0].mean())
    standard_error = np.std(fitted) / 20
    assert abs(np.mean(fitted)) < 3 * standard_error
    assert np.mean(naive) < -10 * standard_error


def test_a_fall_is_found():
    stream = np.random.default_rng(1)
    curve = np.array([0.0, 1.0, 0.4]) + stream.normal(scale=0.1, size=(200, 3))
    assert abs(change_after_best(curve)[0].mean() + 0.6) < 0.05
