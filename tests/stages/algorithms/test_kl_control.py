import math

import pytest

from stages.algorithms.kl_control import adaptive_coef, doubling_coef


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        # Target 6, 100 of 1000 samples. Error (6.6 - 6) / 6 = 0.1: 0.5 x (1 + 0.1 / 10).
        (6.6, 0.505),
        (5.4, 0.495),
        (6.0, 0.5),
        # Beyond 20 percent the error is cut: 0.5 x (1 +- 0.2 / 10).
        (60.0, 0.51),
        (math.inf, 0.51),
        (0.0, 0.49),
        (-3.0, 0.49),
    ],
)
def test_adaptive_by_hand(measured, expected):
    found = adaptive_coef(0.5, measured, target=6.0, num_samples=100, horizon=1000)
    assert found == pytest.approx(expected)


def test_no_samples_change_nothing():
    assert adaptive_coef(0.5, 60.0, target=6.0, num_samples=0, horizon=1000) == 0.5


def test_it_settles_where_a_divergence_that_falls_with_the_coefficient_meets_the_target():
    coef = 1.0
    for _ in range(2000):
        coef = adaptive_coef(coef, 3 / coef, target=6.0, num_samples=256, horizon=10_000)
    assert coef == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        # Target 0.03: below 0.02 half, above 0.045 double.
        (0.019, 0.25),
        (0.021, 0.5),
        (0.044, 0.5),
        (0.046, 1.0),
        (math.inf, 1.0),
        (0.0, 0.25),
    ],
)
def test_doubling_by_hand(measured, expected):
    assert doubling_coef(0.5, measured, target=0.03) == expected


def test_a_measurement_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="found NaN"):
        doubling_coef(0.5, math.nan, target=0.03)
    with pytest.raises(ValueError, match="found NaN"):
        adaptive_coef(0.5, math.nan, target=6.0, num_samples=1, horizon=1000)


def test_a_target_of_nothing_is_refused():
    with pytest.raises(ValueError, match="KL target above 0, found 0"):
        doubling_coef(0.5, 1.0, target=0.0)


def test_a_step_that_could_turn_the_coefficient_negative_is_refused():
    # 0.2 x 5000 samples is the whole horizon: an error of -0.2 would leave nothing.
    with pytest.raises(ValueError, match="raise the horizon"):
        adaptive_coef(0.5, 1.0, target=6.0, num_samples=5000, horizon=1000)
