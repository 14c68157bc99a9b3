import numpy as np
import pytest

from stages.algorithms.statistics.holm import holm_adjusted


def test_the_hand_worked_three():
    assert holm_adjusted([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_one_comparison_is_left_as_it_is_and_none_is_none():
    assert holm_adjusted([0.2]) == [0.2]
    assert holm_adjusted([]) == []


def test_it_is_capped_and_keeps_the_order():
    found = holm_adjusted([0.5, 0.9, 0.02, 0.5])
    assert found == pytest.approx([1.0, 1.0, 0.08, 1.0])


def test_it_lies_between_the_plain_values_and_bonferronis():
    stream = np.random.default_rng(0)
    for _ in range(50):
        plain = stream.random(6) ** 3
        found = np.array(holm_adjusted(plain.tolist()))
        assert (found >= plain).all()
        assert (found <= np.minimum(1.0, 6 * plain) + 1e-15).all()
        assert (np.argsort(found[np.argsort(plain)], kind="stable") == np.arange(6)).all()


def test_it_errs_in_a_table_without_differences_as_rarely_as_it_says():
    stream = np.random.default_rng(1)
    errs = [min(holm_adjusted(stream.random(8).tolist())) <= 0.05 for _ in range(4000)]
    assert np.mean(errs) == pytest.approx(1 - (1 - 0.05 / 8) ** 8, abs=0.017)  # five errors
