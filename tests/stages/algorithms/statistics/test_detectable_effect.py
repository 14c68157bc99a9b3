import numpy as np
import pytest

from stages.algorithms.statistics.detectable_effect import minimum_detectable, problems_needed


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
