"""The fall after the best point: none where the curve is level, whatever the noise."""

import numpy as np

from stages.algorithms.statistics.cross_fitted import change_after_best


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
