import itertools
import math

import numpy as np
import pytest

from stages.algorithms.selection.best_of_n import (
    best_of_n,
    distinct_cost,
    kl_bound,
    kl_plug_in,
    pass_at_k,
)


def test_half_of_the_pairs_of_four_hold_the_one_right_sample():
    assert pass_at_k(4, 1, k=2) == 0.5


@pytest.mark.parametrize("num_samples", [1, 2, 5, 7])
def test_it_is_the_share_of_subsets_with_a_right_sample(num_samples):
    for num_correct, k in itertools.product(range(num_samples + 1), range(1, num_samples + 1)):
        right = [i < num_correct for i in range(num_samples)]
        subsets = list(itertools.combinations(right, k))
        expected = sum(any(subset) for subset in subsets) / len(subsets)
        assert pass_at_k(num_samples, num_correct, k=k) == pytest.approx(expected, abs=1e-12)


def test_none_right_is_zero_and_too_few_wrong_is_one():
    assert pass_at_k(16, 0, k=16) == 0.0
    assert pass_at_k(16, 13, k=4) == 1.0


def test_a_large_pool_does_not_overflow():
    assert pass_at_k(2000, 1, k=1000) == pytest.approx(0.5, abs=1e-12)


def test_more_draws_than_samples_are_refused():
    with pytest.raises(AssertionError):
        pass_at_k(4, 1, k=5)


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


def enumerated(completions, scores, n):
    """KL over distinct completions, from all N^n draws, the ties of each draw split evenly."""
    size = len(completions)
    chosen = dict.fromkeys(completions, 0.0)
    for draw in itertools.product(range(size), repeat=n):
        top = max(scores[i] for i in draw)
        winners = [i for i in draw if scores[i] == top]
        for i in winners:
            chosen[completions[i]] += 1 / len(winners) / size**n
    drawn = {item: completions.count(item) / size for item in chosen}
    return sum(q * math.log(q / drawn[item]) for item, q in chosen.items() if q)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize(
    ("completions", "scores"),
    [
        ("abcd", [1.0, 2.0, 3.0, 4.0]),
        ("aabc", [2.0, 2.0, 1.0, 3.0]),  # one completion twice
        ("abcd", [1.0, 2.0, 2.0, 3.0]),  # two completions with one score
        ("aabcb", [5.0, 5.0, 5.0, -1.0, 5.0]),
        ("aaaa", [1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_it_is_the_divergence_of_every_draw_enumerated(completions, scores, n):
    result = kl_plug_in(np.array(scores), n=n)
    assert result == pytest.approx(enumerated(list(completions), scores, n), abs=1e-12)


def test_by_hand():
    # q = (1/4, 3/4) of p = (1/2, 1/2)
    expected = 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    assert kl_plug_in(np.array([1.0, 2.0]), n=2) == pytest.approx(expected)
    # q = (1/16, 15/16) of p = (1/4, 3/4)
    tied = kl_plug_in(np.array([3.0, 1.0, 3.0, 3.0]), n=2)
    assert tied == pytest.approx((math.log(1 / 4) + 15 * math.log(5 / 4)) / 16)


@pytest.mark.parametrize("n", [1, 2, 4, 16, 1000])
def test_it_keeps_below_its_bound_and_comes_near_it_where_nothing_ties(n):
    stream = np.random.default_rng(0)
    for size, values in ((16, 16), (16, 4), (200, 50)):
        scores = stream.integers(0, values, size).astype(float)
        result = kl_plug_in(scores, n=n)
        assert 0.0 <= result <= min(kl_bound(n), math.log(size)) + 1e-12
    if n <= 16:
        many = kl_plug_in(stream.random(20_000), n=n)
        assert many == pytest.approx(kl_bound(n), abs=1e-4)


def test_the_bound_is_that_of_the_literature():
    # 0.193, 0.636, 1.204, 1.835: Gao et al.'s formula at 2, 4, 8, 16
    assert [round(kl_bound(n), 3) for n in (1, 2, 4, 8, 16)] == [
        0.0, 0.193, 0.636, 1.204, 1.835,
    ]  # fmt: skip


def test_only_the_order_of_the_scores_counts():
    scores = np.random.default_rng(1).integers(0, 6, 16).astype(float)
    once = kl_plug_in(scores, n=4)
    assert kl_plug_in(np.exp(scores), n=4) == once
    assert kl_plug_in(scores[::-1].copy(), n=4) == once
    # a pool written twice is the same policy
    assert kl_plug_in(np.repeat(scores, 2), n=4) == pytest.approx(once)


def test_the_plug_in_is_a_little_too_low_as_it_says():
    shares = np.array([0.3, 0.2, 0.15, 0.1, 0.08, 0.07, 0.04, 0.03, 0.02, 0.01])
    reached = np.cumsum(shares)
    q = np.diff(reached**4, prepend=0.0)
    truth = float((q * np.log(q / shares)).sum())
    stream = np.random.default_rng(2)
    pools = stream.choice(10, (2000, 16), p=shares).astype(float)
    mean = np.mean([kl_plug_in(pool, n=4) for pool in pools])
    assert 0.95 * truth < mean < 0.99 * truth


def test_the_hand_worked_three():
    assert distinct_cost([2, 1], [10.0, 7.0], n=2) == pytest.approx(44 / 3)
    assert distinct_cost([2, 1], [10.0, 7.0], n=1) == pytest.approx(9.0)
    assert distinct_cost([2, 1], [10.0, 7.0], n=3) == 17.0


@pytest.mark.parametrize("seed", range(10))
def test_it_equals_the_enumeration_of_all_subsets(seed):
    stream = np.random.default_rng(seed)
    values = stream.integers(0, 4, int(stream.integers(1, 9))).tolist()
    kinds = sorted(set(values))
    cost = {kind: float(stream.integers(1, 50)) for kind in kinds}
    counts, costs = [values.count(kind) for kind in kinds], [cost[kind] for kind in kinds]
    for n in range(1, len(values) + 1):
        sums = [
            sum(cost[kind] for kind in {values[i] for i in subset})
            for subset in itertools.combinations(range(len(values)), n)
        ]
        assert distinct_cost(counts, costs, n=n) == pytest.approx(np.mean(sums), abs=1e-12)


def test_if_all_differ_it_grows_with_n_and_if_none_does_it_stays():
    assert [distinct_cost([1] * 5, [3.0] * 5, n=n) for n in (1, 4)] == pytest.approx([3.0, 12.0])
    assert [distinct_cost([5], [3.0], n=n) for n in (1, 4)] == [3.0, 3.0]
