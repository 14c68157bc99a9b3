import itertools

import numpy as np
import pytest

from stages.algorithms.selection.best_of_n import best_of_n


def enumerate_best_of_n(scores: np.ndarray, quality: np.ndarray, n: int) -> float:
    """The definition: over all subsets, the mean quality of the best-scored samples."""
    values = []
    for subset in itertools.combinations(range(len(scores)), n):
        best = max(scores[i] for i in subset)
        values.append(np.mean([quality[i] for i in subset if scores[i] == best]))
    return float(np.mean(values))


def test_the_hand_worked_pool_of_three():
    quality = np.array([0.0, 1.0, 0.0])
    assert best_of_n(np.array([1.0, 2.0, 3.0]), quality, n=2) == pytest.approx(1 / 3, abs=1e-15)
    assert best_of_n(np.array([1.0, 2.0, 2.0]), quality, n=2) == pytest.approx(1 / 2, abs=1e-15)


@pytest.mark.parametrize("num_levels", [1, 2, 3, 100])
def test_it_equals_the_enumeration_of_all_subsets_with_and_without_ties(num_levels):
    stream = np.random.default_rng(num_levels)
    for num_samples in (1, 4, 8):
        for _ in range(10):
            scores = stream.integers(0, num_levels, num_samples).astype(float)
            quality = stream.random(num_samples)
            for n in range(1, num_samples + 1):
                expected = enumerate_best_of_n(scores, quality, n)
                assert best_of_n(scores, quality, n=n) == pytest.approx(expected, abs=1e-12)


def test_one_draw_is_the_mean_and_all_draws_are_the_best_sample():
    scores, quality = np.array([0.3, -1.0, 2.0, 0.5]), np.array([0.1, 0.2, 0.7, 0.4])
    assert best_of_n(scores, quality, n=1) == pytest.approx(0.35, abs=1e-15)
    assert best_of_n(scores, quality, n=4) == pytest.approx(0.7, abs=1e-15)


def test_a_score_that_says_nothing_gives_the_mean_for_every_n():
    quality = np.array([0.0, 1.0, 1.0, 0.0, 1.0])
    for n in range(1, 6):
        assert best_of_n(np.zeros(5), quality, n=n) == pytest.approx(0.6, abs=1e-15)


def test_order_of_samples_and_monotone_transforms_change_nothing():
    stream = np.random.default_rng(0)
    scores, quality = stream.normal(size=16), stream.integers(0, 2, 16).astype(float)
    order = stream.permutation(16)
    expected = best_of_n(scores, quality, n=5)
    assert best_of_n(scores[order], quality[order], n=5) == pytest.approx(expected, abs=1e-14)
    assert best_of_n(np.exp(scores) + 7, quality, n=5) == expected


def test_it_is_unbiased_for_the_best_of_n_fresh_samples():
    """Pools of 8 from a score with noise: the mean over pools is that of plain best-of-3."""
    stream = np.random.default_rng(1)
    quality = stream.integers(0, 2, (4000, 8)).astype(float)
    scores = quality + stream.normal(size=quality.shape)
    estimates = [best_of_n(s, q, n=3) for s, q in zip(scores, quality, strict=True)]
    direct = quality[np.arange(4000), scores[:, :3].argmax(axis=1)]
    standard_error = np.hypot(np.std(estimates), np.std(direct)) / np.sqrt(4000)
    assert abs(np.mean(estimates) - np.mean(direct)) < 4 * standard_error
    assert np.std(estimates) < np.std(direct)


def test_a_score_that_is_not_a_number_is_refused():
    with pytest.raises(AssertionError, match="finite"):
        best_of_n(np.array([0.0, np.nan]), np.array([0.0, 1.0]), n=1)
