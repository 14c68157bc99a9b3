"""The divergence of best-of-n: against every draw enumerated, and against its bound."""

import itertools
import math

import numpy as np
import pytest

from stages.algorithms.selection import best_of_n_kl


def enumerated(completions, scores, n):
    """KL over distinct completions, from all N^n draws, the ties of each draw split evenly."""
    size = len(completions)
    chosen = dict.fromkeys(completions, 0.0)
    for draw in itertools.product(range(size), repeat=n):
        top = max(scores[i] for i in draw)
        winners = [i for i in draw if scores[i] == top]
        for i in winners:
            chosen[completions[i]] += 1 / len(winners) / size**n
    drawn = {one: completions.count(one) / size for one in chosen}
    return sum(q * math.log(q / drawn[one]) for one, q in chosen.items() if q)


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
    found = best_of_n_kl.plug_in(np.array(scores), n=n)
    assert found == pytest.approx(enumerated(list(completions), scores, n), abs=1e-12)


def test_by_hand():
    # q = (1/4, 3/4) of p = (1/2, 1/2)
    expected = 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    assert best_of_n_kl.plug_in(np.array([1.0, 2.0]), n=2) == pytest.approx(expected)
    p, q = best_of_n_kl.level_weights(np.array([3.0, 1.0, 3.0, 3.0]), n=2)
    assert p.tolist() == [0.25, 0.75]
    assert q.tolist() == [1 / 16, 15 / 16]


@pytest.mark.parametrize("n", [1, 2, 4, 16, 1000])
def test_it_keeps_below_its_bound_and_comes_near_it_where_nothing_ties(n):
    stream = np.random.default_rng(0)
    for size, values in ((16, 16), (16, 4), (200, 50)):
        scores = stream.integers(0, values, size).astype(float)
        found = best_of_n_kl.plug_in(scores, n=n)
        assert 0.0 <= found <= min(best_of_n_kl.bound(n), math.log(size)) + 1e-12
    if n <= 16:
        many = best_of_n_kl.plug_in(stream.random(20_000), n=n)
        assert many == pytest.approx(best_of_n_kl.bound(n), abs=1e-4)


def test_the_bound_is_that_of_the_literature():
    # 0.193, 0.636, 1.204, 1.835: Gao et al.'s formula at 2, 4, 8, 16
    assert [round(best_of_n_kl.bound(n), 3) for n in (1, 2, 4, 8, 16)] == [
        0.0, 0.193, 0.636, 1.204, 1.835,
    ]  # fmt: skip


def test_only_the_order_of_the_scores_counts():
    scores = np.random.default_rng(1).integers(0, 6, 16).astype(float)
    once = best_of_n_kl.plug_in(scores, n=4)
    assert best_of_n_kl.plug_in(np.exp(scores), n=4) == once
    assert best_of_n_kl.plug_in(scores[::-1].copy(), n=4) == once
    # a pool written twice is the same policy
    assert best_of_n_kl.plug_in(np.repeat(scores, 2), n=4) == pytest.approx(once)


def test_the_plug_in_is_a_little_too_low_as_it_says():
    shares = np.array([0.3, 0.2, 0.15, 0.1, 0.08, 0.07, 0.04, 0.03, 0.02, 0.01])
    reached = np.cumsum(shares)
    q = np.diff(reached**4, prepend=0.0)
    truth = float((q * np.log(q / shares)).sum())
    stream = np.random.default_rng(2)
    pools = stream.choice(10, (2000, 16), p=shares).astype(float)
    mean = np.mean([best_of_n_kl.plug_in(pool, n=4) for pool in pools])
    assert 0.95 * truth < mean < 0.99 * truth
