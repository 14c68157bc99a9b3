"""Estimates from a pool of samples against all of its subsets, and what changes none of them."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from stages.algorithms import packing
from stages.algorithms.selection import best_of_n, votes


def subsets(number, n):
    return list(itertools.combinations(range(number), n))


def mean(values):
    return float(np.mean(values))


def random_pools(number=12, size=7):
    """Scores with many ties, quality, answers (-1: none), weights with ties and zeros."""
    stream = np.random.default_rng(0)
    for levels in itertools.islice(itertools.cycle((1, 2, 3, 100)), number):
        num_samples = int(stream.integers(1, size + 1))
        yield (
            stream.integers(0, levels, num_samples).astype(float), stream.random(num_samples),
            stream.integers(-1, 3, num_samples), stream.integers(0, 4, num_samples) / 10,
        )  # fmt: skip


def best(scores, quality, _answers, _weights, n):
    results = []
    for subset in subsets(len(scores), n):
        top = max(scores[i] for i in subset)
        results.append(mean([quality[i] for i in subset if scores[i] == top]))
    return mean(results), best_of_n.best_of_n(scores, quality, n=n)


def any_right(scores, _quality, _answers, _weights, n):
    right = scores > 0
    results = [any(right[i] for i in subset) for subset in subsets(len(right), n)]
    return mean(results), best_of_n.pass_at_k(len(right), int(right.sum()), k=n)


def cost(_scores, _quality, answers, _weights, n):
    kinds = sorted(set(answers.tolist()))
    each = {kind: 3.0 + kind**2 for kind in kinds}
    results = [sum(each[k] for k in {int(answers[i]) for i in subset})
        for subset in subsets(len(answers), n)]  # fmt: skip
    counts = [int((answers == kind).sum()) for kind in kinds]
    return mean(results), best_of_n.distinct_cost(counts, [each[k] for k in kinds], n=n)


RIGHT = np.array([True, False, True])


def vote(answers, weights, n):
    """In tenths, so that equal sums are equal."""
    results = []
    for subset in subsets(len(answers), n):
        sums = Counter()
        for i in subset:
            if answers[i] != votes.UNREADABLE:
                sums[int(answers[i])] += round(10 * weights[i])
        top = [answer for answer in sums if sums[answer] == max(sums.values())]
        results.append(mean([RIGHT[answer] for answer in top]) if top else 0.0)
    return mean(results)


def weighted(_scores, _quality, answers, weights, n):
    chosen = np.array(subsets(len(answers), n))
    actual = votes.weighted_vote(answers, weights, RIGHT, subsets=chosen)
    return vote(answers, weights, n), actual


def majority(_scores, _quality, answers, _weights, n):
    kinds = sorted(set(answers.tolist()) - {-1})
    sizes = np.array([(answers == kind).sum() for kind in kinds], dtype=np.int64)
    right = RIGHT[kinds] if kinds else np.array([], dtype=bool)
    (actual,) = votes.majority_vote(sizes, right, num_unreadable=int((answers == -1).sum()), ns=[n])
    return vote(answers, np.ones(len(answers)), n), float(actual)


ESTIMATES = [best, any_right, cost, weighted, majority]


@pytest.mark.parametrize("estimate", ESTIMATES, ids=lambda function: function.__name__)
def test_estimates_are_means_over_all_subsets(estimate):
    for pool in random_pools():
        for n in range(1, len(pool[0]) + 1):
            expected, actual = estimate(*pool, n)
            assert actual == pytest.approx(expected, abs=1e-12), (pool, n)


def test_random_subsets_are_even_and_those_of_their_seed():
    drawn = votes.nested_subsets(5, num_draws=20_000, seed=0)[:, :2]
    assert np.abs(np.bincount(drawn.ravel(), minlength=5) / drawn.size - 0.2).max() < 0.01
    first = votes.nested_subsets(6, num_draws=9, seed=1)
    assert (first == votes.nested_subsets(6, num_draws=9, seed=1)).all()
    assert (first != votes.nested_subsets(6, num_draws=9, seed=2)).any()
    assert len({tuple(order) for order in first.tolist()}) > 1


def every_draw(completions, scores, n):
    """KL over distinct completions, from all N^n draws, the ties of each shared evenly."""
    size, chosen = len(completions), Counter()
    for draw in itertools.product(range(size), repeat=n):
        top = max(scores[i] for i in draw)
        winners = [i for i in draw if scores[i] == top]
        for i in winners:
            chosen[completions[i]] += 1 / len(winners) / size**n
    return sum(q * math.log(q * size / completions.count(c)) for c, q in chosen.items() if q)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize(
    ("completions", "scores"),
    [("abcd", [1, 2, 3, 4]), ("aabc", [2, 2, 1, 3]), ("abcd", [1, 2, 2, 3]), ("aaaa", [1] * 4),
     ("aabcb", [5, 5, 5, -1, 5])],
)  # fmt: skip
def test_the_kl_of_best_of_n_is_that_of_every_draw_and_of_scores_in_order_alone(
    completions, scores, n
):
    scores = np.array(scores, dtype=float)
    actual = best_of_n.kl_plug_in(scores, n=n)
    assert actual == pytest.approx(every_draw(completions, scores, n), abs=1e-12)
    assert best_of_n.kl_plug_in(np.exp(scores)[::-1].copy(), n=n) == actual
    assert best_of_n.kl_plug_in(np.repeat(scores, 2), n=n) == pytest.approx(actual)


@pytest.mark.parametrize("limit", [1, 20, 37, 1000])
def test_every_row_is_in_one_batch_or_bin_within_its_limit(limit):
    lengths = np.random.default_rng(0).integers(1, 21, 200).tolist()
    batches = packing.token_budget_batches(lengths, limit)
    bins = packing.first_fit_decreasing(lengths, limit)
    for groups in (batches, bins):
        assert sorted(itertools.chain.from_iterable(groups)) == list(range(200))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= limit
    sums = [sum(lengths[i] for i in chosen) for chosen in bins]
    assert all(len(b) == 1 or total <= limit for b, total in zip(bins, sums, strict=True))
    for number, chosen in enumerate(bins):
        assert all(sums[b] + lengths[i] > limit for b in range(number) for i in chosen)
