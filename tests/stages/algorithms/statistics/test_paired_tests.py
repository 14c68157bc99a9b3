import itertools

import numpy as np
import pytest
from scipy import stats
from scipy.stats import binomtest

from stages.algorithms.statistics import paired_tests
from stages.algorithms.statistics.paired_tests import (
    holm_adjusted,
    mcnemar_test,
    minimum_detectable,
    problems_needed,
    z_test,
)


def test_the_hand_worked_value():
    # mean 1/2, sd sqrt(1/3), z = 0.5 / (sqrt(1/3) / 2) = sqrt(3); 2 (1 - Phi(1.7320508)) = 0.083265
    assert z_test(np.array([1.0, 1.0, 0.0, 0.0])) == pytest.approx(0.0832645, abs=1e-6)


def test_it_is_the_t_test_for_many_problems_and_does_not_depend_on_the_sign():
    differences = np.random.default_rng(0).normal(0.02, 0.4, 5000)
    expected = stats.ttest_1samp(differences, 0.0).pvalue
    assert z_test(differences) == pytest.approx(expected, rel=0.01)
    assert z_test(-differences) == z_test(differences)


def test_differences_without_a_spread():
    assert z_test(np.zeros(5)) == 1.0
    assert z_test(np.full(5, 0.25)) == 0.0


def test_the_surest_difference_is_not_rounded_to_nothing():
    assert 0.0 < z_test(np.random.default_rng(0).normal(0.5, 1.0, 900)) < 1e-30


def test_under_the_hypothesis_one_in_twenty_is_below_five_per_cent():
    stream = np.random.default_rng(1)
    found = [z_test(stream.normal(0.0, 1.0, 200)) for _ in range(4000)]
    assert np.mean(np.array(found) < 0.05) == pytest.approx(0.05, abs=0.011)


def p_value(differences, num_draws=20_000):
    return paired_tests.sign_flip_test(
        np.array(differences, dtype=float), num_draws=num_draws, seed=0
    )


@pytest.mark.parametrize("differences", [[1, 1, 1, 1], [1, 1, 1, 1] + [0] * 96, [3, -1, 2, 0.5]])
def test_it_is_the_share_of_all_signs_that_reach_the_sum(differences):
    total = sum(differences)
    signs = list(itertools.product((1, -1), repeat=sum(d != 0 for d in differences)))
    own = [d for d in differences if d]
    exact = np.mean([sum(s * d for s, d in zip(one, own, strict=True)) >= total for one in signs])
    assert p_value(differences) == pytest.approx(exact, abs=0.01)


def test_nothing_differs_and_nothing_is_claimed():
    assert p_value([0, 0, 0]) == 1.0


def test_a_lean_to_the_other_side_is_no_evidence():
    assert p_value([-1] * 20) > 0.99


def test_the_smallest_p_is_one_over_the_draws_and_one():
    assert p_value([1] * 200, num_draws=99) == 0.01


def test_the_hand_worked_six():
    assert mcnemar_test(1, 5) == 0.21875
    assert mcnemar_test(5, 1) == 0.21875


def test_nothing_discordant_and_an_even_split_say_nothing():
    assert mcnemar_test(0, 0) == 1.0
    assert mcnemar_test(4, 4) == 1.0


def test_it_is_the_share_of_coin_flips_at_least_as_uneven():
    flips = list(itertools.product([0, 1], repeat=9))
    uneven = [abs(2 * sum(flip) - 9) >= abs(2 * 2 - 9) for flip in flips]
    assert mcnemar_test(2, 7) == pytest.approx(sum(uneven) / len(flips), abs=1e-15)


@pytest.mark.parametrize(("first", "second"), [(0, 1), (3, 14), (40, 61), (300, 1400)])
def test_it_is_scipys_binomial_test(first, second):
    expected = binomtest(first, first + second).pvalue
    assert mcnemar_test(first, second) == pytest.approx(expected, rel=1e-9)


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


def spread(deviation: float, num_problems: int) -> np.ndarray:
    """Differences with exactly this standard deviation, of mean 0."""
    values = np.where(np.arange(num_problems) % 2 == 0, 1.0, -1.0)
    return values * deviation / values.std(ddof=1)


def test_the_hand_worked_hundred():
    found = minimum_detectable(spread(0.4, 100), significance=0.05, power=0.8)
    assert found == pytest.approx((1.959964 + 0.841621) * 0.04, abs=1e-6)


def test_ten_per_cent_of_discordance_on_gsm8k_is_2_4_points():
    # 1,319 problems of which 10 % differ, half each way
    values = np.zeros(1319)
    values[:66], values[66:132] = 1.0, -1.0
    found = minimum_detectable(values, significance=0.05, power=0.8)
    assert found == pytest.approx(0.024, abs=5e-4)


def test_the_number_needed_detects_the_effect_and_no_fewer_do():
    values = spread(0.37, 200)
    needed = problems_needed(values, 0.05, significance=0.05, power=0.8)
    scale = minimum_detectable(values, significance=0.05, power=0.8) * np.sqrt(200)
    assert scale / np.sqrt(needed) <= 0.05 < scale / np.sqrt(needed - 1)
    assert problems_needed(values, -0.05, significance=0.05, power=0.8) == needed


def test_the_power_is_what_it_says():
    stream = np.random.default_rng(0)
    effect = minimum_detectable(spread(1.0, 400), significance=0.05, power=0.8)
    found = []
    for _ in range(2000):
        values = stream.normal(effect, 1.0, 400)
        found.append(abs(values.mean()) > 1.959964 * values.std(ddof=1) / 20)
    assert np.mean(found) == pytest.approx(0.8, abs=0.045)  # five standard errors


def test_no_number_of_problems_shows_equality():
    with pytest.raises(AssertionError, match="cannot be detected"):
        problems_needed(spread(1.0, 10), 0.0, significance=0.05, power=0.8)
